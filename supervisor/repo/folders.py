"""Folders by descriptor: no step follows a link, so a swapped folder cannot lead elsewhere. Leaf; blocking calls."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""For a file that somebody else may swap: never through a link, never waiting for the other end of a FIFO."""


class Owner(NamedTuple):
    """Who files belong to."""

    uid: int
    gid: int


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the folder `path`, whose last part is no link."""
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent_of(
    root: int, path: bytes, *, create: bool = False, owner: Owner | None = None
) -> Iterator[tuple[int, bytes]]:
    """The descriptor of the folder that holds `path` below `root`, and the last segment. `create` makes what is
    missing, owned by `owner`. Raises `OSError` where a part is no folder."""
    *segments, name = path.split(b"/")
    descriptor = os.dup(root)
    try:
        for segment in segments:
            below = _enter(descriptor, segment, create, owner)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def remove_empty(root: int, folders: Sequence[bytes]) -> None:
    """Remove those of `folders` that are empty, deepest first; the others stay."""
    for folder in sorted(folders, key=lambda path: -path.count(b"/")):
        try:
            with parent_of(root, folder) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        except OSError:
            continue


def _enter(descriptor: int, segment: bytes, create: bool, owner: Owner | None) -> int:
    try:
        return os.open(segment, FOLDER_FLAGS, dir_fd=descriptor)
    except FileNotFoundError:
        if not create:
            raise
    os.mkdir(segment, 0o755, dir_fd=descriptor)
    below = os.open(segment, FOLDER_FLAGS, dir_fd=descriptor)
    if owner is not None:
        os.fchown(below, *owner)
    return below
