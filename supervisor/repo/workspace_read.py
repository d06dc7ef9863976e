"""Reads changed files of a workspace into a spool, by descriptor. Blocking, in a thread.

A file is taken as it is during one unbroken read: if its status differs afterwards it is read again, and one that never
holds still is left for later. Contents go to an unlinked file, never wholly into memory.
"""

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import IO

from supervisor.repo.folders import FILE_FLAGS, parent_of
from supervisor.repo.workspace_walk import Listed, identify, why_blocked

MAX_FILE_BYTES = 100 * 1024 * 1024
"""Larger files are refused by the usual hosts of repositories too."""
MAX_SPOOL_BYTES = 2 * 1024 * 1024 * 1024
"""New contents of one call."""
ATTEMPTS = 3
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Content:
    """What was read of one path: blob id, SHA-256 in hex, where it lies in the spool, how many bytes; `target` of a
    link."""

    listed: Listed
    oid: str
    digest: str
    offset: int
    size: int
    target: bytes | None = None


class WorkspaceReader:
    """Reads files below `root` (a descriptor) into `spool`."""

    def __init__(self, root: int, spool: IO[bytes], object_format: str) -> None:
        self._root = root
        self._spool = spool
        self._object_format = object_format
        self._device = os.fstat(root).st_dev

    def read(self, path: bytes) -> Content | str | None:
        """The content of `path`; or why there is none to have; or None if nothing is there any more."""
        why = "kept changing while it was read"
        for _ in range(ATTEMPTS):
            try:
                with parent_of(self._root, path) as (folder, name):
                    content = self._read_once(folder, name)
            except FileNotFoundError:
                return None
            except OSError:
                why = "cannot be read"
                continue
            if content is not None:
                return content
        return why

    def forget(self, content: Content) -> None:
        """Give back the spool's space of the content that was read last."""
        self._spool.seek(content.offset)
        self._spool.truncate()

    def _read_once(self, folder: int, name: bytes) -> Content | str | None:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return self._read_link(folder, name, status)
        if why := self._refusal(status):
            return why
        descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            return self._refusal(os.fstat(descriptor)) or self._copy(source)

    def _refusal(self, status: os.stat_result) -> str | None:
        if stat.S_ISDIR(status.st_mode):
            return "kept changing while it was read"
        if status.st_size > MAX_FILE_BYTES:
            return f"larger than {MAX_FILE_BYTES // 1024 // 1024} MiB"
        if self._spool.tell() + status.st_size > MAX_SPOOL_BYTES:
            return "over the limit on changed bytes of one call"
        return why_blocked(status, self._device)

    def _read_link(self, folder: int, name: bytes, status: os.stat_result) -> Content:
        target = os.readlink(name, dir_fd=folder)
        offset = self._spool.tell()
        self._spool.write(target)
        oid = self._blob_hash(len(target))
        oid.update(target)
        return Content(
            identify(status), oid.hexdigest(), hashlib.sha256(target).hexdigest(), offset, len(target), target
        )

    def _copy(self, source: IO[bytes]) -> Content | None:
        """One unbroken read, or None if the file was written meanwhile."""
        before = os.fstat(source.fileno())
        oid, digest, offset = self._blob_hash(before.st_size), hashlib.sha256(), self._spool.tell()
        left = before.st_size + 1
        while left and (piece := source.read(min(left, CHUNK_BYTES))):
            left -= len(piece)
            oid.update(piece)
            digest.update(piece)
            self._spool.write(piece)
        listed = identify(before)
        if left == 1 and identify(os.fstat(source.fileno())) == listed:
            return Content(listed, oid.hexdigest(), digest.hexdigest(), offset, listed.size)
        self._spool.seek(offset)
        self._spool.truncate()
        return None

    def _blob_hash(self, size: int) -> "hashlib._Hash":
        return hashlib.new(self._object_format, b"blob %d\0" % size, usedforsecurity=False)
