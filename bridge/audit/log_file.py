"""The log's file: one writer, all-or-nothing appends, and the repair of what a crash or a full disk left.

Synchronous; called by one thread at a time (`group_commit`). Knows bytes and heads, no kind of record and no key. Every
failure is an `OSError` here; `group_commit` gives it its code. Below: `chain`.
"""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from bridge.audit.chain import GENESIS, Head, intact_alone

LOG_FILE: Final = "log.jsonl"
TAIL_BYTES: Final = 16 * 1024 * 1024  # read at open: several times the largest record, and read in some 10 ms


class AnotherWriterError(OSError):
    """Somebody else has the log open for writing."""


@dataclass(frozen=True)
class TornTail:
    """Bytes after the last intact record, moved aside at open."""

    length: int
    digest: str  # "sha256:<hex>"
    file: str  # name of the file beside the log that holds them now


class LogFile:
    """The open log. `head` is the last record that was written; `tail` what was read of the log's end at open."""

    def __init__(self, folder: Path) -> None:
        """Opens or makes the log (folder 0700, file 0600), takes the lock, and moves a torn tail aside.

        Raises `AnotherWriterError`, `OSError`.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._path = folder / LOG_FILE
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self._lock()
            os.fchmod(self._fd, 0o600)
            _sync_folder(folder)
            self.tail, self.head, end = self._read_tail()
            self.torn = self._move_torn_aside(folder, end)
        except BaseException:
            os.close(self._fd)
            raise
        self._synced = os.fstat(self._fd).st_size  # everything below this offset reached the disk
        self._unsynced = b""  # acknowledged, written after that offset, not yet known to be on the disk
        self._torn = False  # bytes of a refused append may stand after them
        self._sync_failed = False

    @property
    def dirty(self) -> bool:
        """Whether acknowledged records wait for `sync`."""
        return bool(self._unsynced)

    def append(self, lines: bytes, head: Head, *, durable: bool) -> None:
        """Adds `lines`, which end at `head`, all or none. `durable`: they and all before are on disk when it returns.

        Raises `OSError`; then nothing was added, now or once the disk works again.
        """
        try:
            self._check_place()
            self._heal()
            self._torn = bool(lines)
            _write_all(self._fd, lines)
            if durable:
                self._fsync()
        except OSError:
            with contextlib.suppress(OSError):
                self._heal()
            raise
        self._torn = False
        self.head = head
        self._unsynced += lines
        if durable:
            self._settle()

    def sync(self) -> None:
        """Puts every acknowledged record on disk. Raises `OSError`."""
        self.append(b"", self.head, durable=True)

    def take_tail(self) -> bytes:
        """`tail`, which is then kept no longer."""
        tail, self.tail = self.tail, b""
        return tail

    def close(self) -> None:
        """Gives up the file and the lock."""
        os.close(self._fd)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherWriterError(f"another process has {str(self._path)!r} open for writing") from None

    def _fsync(self) -> None:
        self._sync_failed = True
        os.fsync(self._fd)
        self._sync_failed = False

    def _settle(self) -> None:
        self._synced += len(self._unsynced)
        self._unsynced = b""

    def _heal(self) -> None:
        """Takes a refused append off the end, and repeats what a failed fsync may have lost from memory."""
        if self._sync_failed:
            # After a failed fsync the kernel may count the pages as clean, so syncing again would prove nothing.
            os.ftruncate(self._fd, self._synced)
            _write_all(self._fd, self._unsynced)
            self._fsync()
            self._settle()
        elif self._torn:
            os.ftruncate(self._fd, self._synced + len(self._unsynced))
        self._torn = False

    def _check_place(self) -> None:
        """Refuses a log that was removed, replaced, cut or written by somebody else meanwhile."""
        here, there = os.fstat(self._fd), self._path.stat()
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise OSError(f"{str(self._path)!r} was replaced by another file")
        expected = self._synced + len(self._unsynced)
        if here.st_size != expected and not (self._torn or self._sync_failed):
            raise OSError(f"{str(self._path)!r} has {here.st_size} bytes, not {expected}: somebody else changed it")

    def _read_tail(self) -> tuple[bytes, Head, int]:
        """The end of the log up to its last intact record, that record's head, and the offset behind it."""
        size = os.fstat(self._fd).st_size
        for start in (max(0, size - TAIL_BYTES), 0):
            content = os.pread(self._fd, size - start, start)
            end = content.rfind(b"\n") + 1
            while end > 0:
                begin = content.rfind(b"\n", 0, end - 1) + 1
                if head := intact_alone(content[begin : end - 1]):
                    return content[:end], head, start + end
                end = begin
            if start == 0:
                break
        return b"", GENESIS, 0

    def _move_torn_aside(self, folder: Path, end: int) -> TornTail | None:
        torn = os.pread(self._fd, os.fstat(self._fd).st_size - end, end)
        if not torn:
            return None
        digest = sha256(torn).hexdigest()
        aside = folder / f"torn-{self.head.seq + 1}-{digest[:12]}.bin"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(descriptor, torn)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.ftruncate(self._fd, end)
        os.fsync(self._fd)
        return TornTail(len(torn), f"sha256:{digest}", aside.name)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
