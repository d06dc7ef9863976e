"""Fills an empty workspace from blobs, by descriptor. Runs before any worker does; blocking, in a thread.

Regular files, executable bits and links alone. Content is written as the commit has it: no filter, no line ending rule.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from supervisor.repo.blob_stream import Blob
from supervisor.repo.folders import Owner, opened, parent_of
from supervisor.repo.tree import EXECUTABLE, LINK, TreeEntry

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_POINTER_BYTES = 1024


def fill(
    workspace: Path, entries: Sequence[tuple[bytes, TreeEntry]], owner: Owner | None, blobs: Iterator[Blob]
) -> list[bytes]:
    """Write `entries`, whose contents come in the same order from `blobs`. Returns the paths that are LFS pointers."""
    pointers = []
    with opened(workspace) as root:
        for (path, entry), blob in zip(entries, blobs, strict=True):
            with parent_of(root, path, create=True, owner=owner) as (folder, name):
                if entry.mode == LINK:
                    _write_link(folder, name, blob, owner)
                elif _write_file(folder, name, blob, 0o755 if entry.mode == EXECUTABLE else 0o644, owner):
                    pointers.append(path)
    return pointers


def copy_folder(source: Path, workspace: Path, name: bytes, owner: Owner | None) -> None:
    """Copy a folder that we built ourselves (the fresh `.git`) to `name` in the workspace."""
    contents = _files_below(source)
    with opened(workspace) as root:
        for relative, content in contents.items():
            with parent_of(root, name + b"/" + relative, create=True, owner=owner) as (folder, last):
                if content is None:
                    os.mkdir(last, 0o755, dir_fd=folder)
                    if owner is not None:
                        os.chown(last, *owner, dir_fd=folder, follow_symlinks=False)
                    continue
                descriptor = _create(folder, last, 0o644, owner)
                with os.fdopen(descriptor, "wb") as target, content.open("rb") as origin:
                    while piece := origin.read(1024 * 1024):
                        target.write(piece)


def _files_below(source: Path) -> Mapping[bytes, Path | None]:
    """Files by their relative path; a folder without any stands as None."""
    found: dict[bytes, Path | None] = {}
    for folder, folders, files in os.walk(source):
        here = Path(folder)
        for name in files:
            found[os.fsencode((here / name).relative_to(source))] = here / name
        if not folders and not files and here != source:
            found[os.fsencode(here.relative_to(source))] = None
    return found


def _write_link(folder: int, name: bytes, blob: Blob, owner: Owner | None) -> None:
    os.symlink(blob.content(), name, dir_fd=folder)
    if owner is not None:
        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)


def _write_file(folder: int, name: bytes, blob: Blob, mode: int, owner: Owner | None) -> bool:
    is_pointer = False
    with os.fdopen(_create(folder, name, mode, owner), "wb", buffering=0) as target:
        for piece in blob.chunks():
            target.write(piece)
            is_pointer = blob.size <= MAX_POINTER_BYTES and piece.startswith(LFS_POINTER)
    return is_pointer


def _create(folder: int, name: bytes, mode: int, owner: Owner | None) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=folder)
    os.fchmod(descriptor, mode)
    if owner is not None:
        os.fchown(descriptor, *owner)
    return descriptor
