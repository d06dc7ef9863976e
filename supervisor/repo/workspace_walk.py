"""Looks through a workspace that a worker writes at the same time. Blocking, in a thread; never runs git, never follows
a link, and holds a descriptor of every folder it is in, so a path that is swapped while it looks leads nowhere else.

It says what lies there and reads no file. What may come back is not its business.
"""

import os
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.repo.folders import FOLDER_FLAGS, opened
from supervisor.repo.repository_error import RepositoryError
from supervisor.repo.tree import EXECUTABLE, FILE, LINK
from supervisor.repo.tree_policy import is_git_name

MAX_ENTRIES = 250_000
"""Files and folders in one workspace, ignored folders counting as one; a worker that makes more is told to stop."""
MAX_DEPTH = 64
"""Folders within folders; each level holds one descriptor open."""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


@dataclass(frozen=True)
class Listed:
    """One file or link as it was listed: its git mode, its size in bytes, and what changes whenever it is written."""

    mode: int
    size: int
    identity: bytes
    changed_ns: int


@dataclass
class Listing:
    """What lies in a workspace. `blocked`: paths that are not looked at, and why. `undecided`: paths outside the tree
    on which the ignore rules have not spoken yet; a folder among them was not entered."""

    files: dict[bytes, Listed] = field(default_factory=dict)
    blocked: dict[bytes, str] = field(default_factory=dict)
    ignored: list[bytes] = field(default_factory=list)
    undecided: list[tuple[bytes, bool]] = field(default_factory=list)


IsIgnored = Callable[[bytes, bool], bool | None]
"""(path, whether it is a folder) -> whether it is ignored; None where that is not known yet."""


def list_workspace(workspace: Path, is_ignored: IsIgnored) -> Listing:
    """List everything below `workspace` but its own `.git`. Raises `RepositoryError` over `MAX_ENTRIES`."""
    listing = Listing()
    with opened(workspace) as root:
        _list_folder(root, b"", os.fstat(root).st_dev, is_ignored, listing, MAX_DEPTH)
    return listing


def identify(status: os.stat_result) -> Listed:
    """A file's `Listed` from its status."""
    plain = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
    mode = LINK if stat.S_ISLNK(status.st_mode) else plain
    identity = struct.pack(
        "=QQqqqI", status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode
    )
    return Listed(mode, status.st_size, identity, max(status.st_mtime_ns, status.st_ctime_ns))


def why_blocked(status: os.stat_result, device: int) -> str | None:
    """Why a thing that is no folder is not looked at; None for a plain file and a link."""
    if status.st_dev != device:
        return "on another file system"
    if stat.S_ISLNK(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return _KINDS.get(stat.S_IFMT(status.st_mode), "neither a file nor a link")
    return "a hard link" if status.st_nlink != 1 else None


def _list_folder(folder: int, prefix: bytes, device: int, is_ignored: IsIgnored, listing: Listing, depth: int) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            path = prefix + name
            if is_git_name(name):
                if path != b".git":
                    listing.blocked[path] = "a name that stands for .git"
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            _list_entry(folder, path, status, device, is_ignored, listing, depth)
            if len(listing.files) + len(listing.blocked) > MAX_ENTRIES:
                raise RepositoryError(
                    f"The workspace holds more than {MAX_ENTRIES} files.",
                    "Have the repository ignore what the worker generates, or let it delete it.",
                )


def _list_entry(
    folder: int,
    path: bytes,
    status: os.stat_result,
    device: int,
    is_ignored: IsIgnored,
    listing: Listing,
    depth: int,
) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    ignored = is_ignored(path, is_folder)
    if ignored:
        listing.ignored.append(path)
    elif ignored is None:
        listing.undecided.append((path, is_folder))
    elif is_folder:
        _enter(folder, path, device, is_ignored, listing, depth)
    elif why := why_blocked(status, device):
        listing.blocked[path] = why
    else:
        listing.files[path] = identify(status)


def _enter(folder: int, path: bytes, device: int, is_ignored: IsIgnored, listing: Listing, depth: int) -> None:
    if depth == 0:
        listing.blocked[path] = f"more than {MAX_DEPTH} folders deep"
        return
    try:
        below = os.open(path.rpartition(b"/")[2], FOLDER_FLAGS, dir_fd=folder)
    except OSError:
        listing.blocked[path] = "a folder that cannot be opened"
        return
    try:
        if os.fstat(below).st_dev != device:
            listing.blocked[path] = "on another file system"
            return
        _list_folder(below, path + b"/", device, is_ignored, listing, depth - 1)
    finally:
        os.close(below)
