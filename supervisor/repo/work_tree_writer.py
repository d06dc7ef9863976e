"""Writes a set of changes into the user's work tree, all or nothing. Blocking, in a thread; by descriptor, never
through a link. It decides nothing: what to write was merged before. Below it: folders."""

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.repo.folders import FILE_FLAGS, Owner, opened, parent_of, remove_empty
from supervisor.repo.repository_error import ApplyConflictError
from supervisor.repo.tree import EXECUTABLE, LINK, shown

CHUNK_BYTES = 1024 * 1024
IN_THE_WAY = "these files are in the way"


@dataclass(frozen=True)
class FileWrite:
    """One path as it shall be: `content` is a file of ours with the bytes (a link's target), None deletes the path.
    `expected`: whether the path is there now."""

    path: bytes
    expected: bool
    mode: int
    content: Path | None


@dataclass(frozen=True)
class _Before:
    """What stood at a path: a copy of a file with its status, or a link's target; both None where nothing stood."""

    path: bytes
    copy: Path | None
    target: bytes | None
    status: os.stat_result | None


def write_all(top_level: Path, writes: Sequence[FileWrite], scratch: Path) -> None:
    """Do all of `writes`, or put everything back and raise. Raises `ApplyConflictError` where the tree is not as
    expected, `OSError` where the disk refuses."""
    status = top_level.stat()
    owner = Owner(status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    with opened(top_level) as root:
        _refuse_unexpected(root, writes)
        done: list[_Before] = []
        made: list[bytes] = []
        try:
            for write in sorted(writes, key=lambda write: write.content is not None):
                made += _missing_folders(root, write.path) if write.content is not None else []
                done.append(_remember(root, write.path, scratch))
                _write(root, write, owner)
                if write.content is None:
                    remove_empty(root, _folders_of(write.path))
        except BaseException:
            _put_back(root, done, made, owner)
            raise


def _refuse_unexpected(root: int, writes: Sequence[FileWrite]) -> None:
    deleted = {write.path for write in writes if write.content is None}
    wrong = [shown(write.path) for write in writes if not _is_expected(root, write, deleted)]
    if wrong:
        raise ApplyConflictError(IN_THE_WAY, tuple(wrong))


def _is_expected(root: int, write: FileWrite, deleted: set[bytes]) -> bool:
    try:
        with parent_of(root, write.path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if write.expected:
                return is_plain
            if not is_plain:
                return any(path.startswith(write.path + b"/") for path in deleted)
            return _is_same(folder, name, status, write)
    except FileNotFoundError:
        return not write.expected
    except OSError:
        return not write.expected and any(write.path.startswith(path + b"/") for path in deleted)


def _is_same(folder: int, name: bytes, status: os.stat_result, write: FileWrite) -> bool:
    """Whether an untracked file that stands in the way is what would be written."""
    if write.content is None or stat.S_ISLNK(status.st_mode) != (write.mode == LINK):
        return False
    if write.mode == LINK:
        return os.readlink(name, dir_fd=folder) == write.content.read_bytes()
    if status.st_size != write.content.stat().st_size:
        return False
    with os.fdopen(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as there, write.content.open("rb") as ours:
        return all(there.read(CHUNK_BYTES) == piece for piece in iter(lambda: ours.read(CHUNK_BYTES), b""))


def _remember(root: int, path: bytes, scratch: Path) -> _Before:
    try:
        with parent_of(root, path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return _Before(path, None, os.readlink(name, dir_fd=folder), status)
            descriptor, copy = tempfile.mkstemp(dir=scratch)
            with (
                os.fdopen(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as source,
                os.fdopen(descriptor, "wb") as target,
            ):
                while piece := source.read(CHUNK_BYTES):
                    target.write(piece)
            return _Before(path, Path(copy), None, status)
    except (FileNotFoundError, NotADirectoryError):
        return _Before(path, None, None, None)


def _write(root: int, write: FileWrite, owner: Owner | None) -> None:
    if write.content is None:
        with parent_of(root, write.path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        return
    with parent_of(root, write.path, create=True, owner=owner) as (folder, name), _swapped_in(folder, name) as new:
        if write.mode == LINK:
            os.symlink(write.content.read_bytes(), new, dir_fd=folder)
        else:
            _copy_new(folder, new, write, _permissions(folder, name, write.mode == EXECUTABLE))
        if owner is not None:
            os.chown(new, *owner, dir_fd=folder, follow_symlinks=False)


def _copy_new(folder: int, new: bytes, write: FileWrite, permissions: int | None) -> None:
    assert write.content is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o777 if write.mode == EXECUTABLE else 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as target, write.content.open("rb") as source:
        while piece := source.read(CHUNK_BYTES):
            target.write(piece)
        if permissions is not None:
            os.fchmod(descriptor, permissions)


def _permissions(folder: int, name: bytes, executable: bool) -> int | None:
    """The present permissions with the executable bit as wanted; None where no file stands, so the umask decides."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    mode = stat.S_IMODE(status.st_mode)
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


@contextmanager
def _swapped_in(folder: int, name: bytes) -> Iterator[bytes]:
    """A new name in the same folder that takes the place of `name` at the end, or goes away."""
    new = b".mxs-apply-" + os.urandom(8).hex().encode()
    try:
        yield new
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        if _exists(folder, new):
            os.unlink(new, dir_fd=folder)
        raise


def _exists(folder: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _put_back(root: int, done: Sequence[_Before], made: Sequence[bytes], owner: Owner | None) -> None:
    for before in reversed(done):
        if before.status is None:
            _remove_new(root, before.path)
    remove_empty(root, made)
    for before in done:
        if before.status is not None:
            _restore(root, before, owner)


def _remove_new(root: int, path: bytes) -> None:
    try:
        with parent_of(root, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return  # it was never written


def _restore(root: int, before: _Before, owner: Owner | None) -> None:
    assert before.status is not None
    times = (before.status.st_atime_ns, before.status.st_mtime_ns)
    with parent_of(root, before.path, create=True, owner=owner) as (folder, name), _swapped_in(folder, name) as new:
        if before.target is not None:
            os.symlink(before.target, new, dir_fd=folder)
        else:
            write = FileWrite(before.path, True, 0, before.copy)
            _copy_new(folder, new, write, stat.S_IMODE(before.status.st_mode))
        if owner is not None:
            os.chown(new, before.status.st_uid, before.status.st_gid, dir_fd=folder, follow_symlinks=False)
        os.utime(new, ns=times, dir_fd=folder, follow_symlinks=False)


def _folders_of(path: bytes) -> list[bytes]:
    segments = path.split(b"/")[:-1]
    return [b"/".join(segments[: n + 1]) for n in range(len(segments))]


def _missing_folders(root: int, path: bytes) -> list[bytes]:
    missing = []
    for folder in _folders_of(path):
        try:
            with parent_of(root, folder) as (parent, name):
                if not _exists(parent, name):
                    missing.append(folder)
        except OSError:
            missing.append(folder)
    return missing
