"""The contents of blobs, streamed out of `git cat-file --batch` into a consumer that runs in a thread.

The consumer reads from a pipe, so one large file is never held in memory, and the event loop never waits for a disk.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import IO, TypeVar

import anyio
import anyio.to_thread

from supervisor.repo.git import LONG_S, Git, GitFailedError

T = TypeVar("T")
CHUNK_BYTES = 1024 * 1024


class Blob:
    """One blob on the pipe: read all of it (or let `drain` do so) before the next."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self.size = size
        self._source = source
        self._left = size

    def chunks(self) -> Iterator[bytes]:
        """The content, a piece at a time."""
        while self._left:
            piece = self._source.read(min(self._left, CHUNK_BYTES))
            if not piece:
                raise GitFailedError("cat-file", None, "the content of an object ended early")
            self._left -= len(piece)
            yield piece

    def content(self) -> bytes:
        """All of it at once; for blobs whose `size` was looked at."""
        return b"".join(self.chunks())

    def drain(self) -> None:
        """Skip what was not read, and the separator after it."""
        for _ in self.chunks():
            pass
        self._source.read(1)


async def stream_blobs(git: Git, requests: Sequence[bytes], consume: Callable[[Iterator[Blob]], T], *words: str) -> T:
    """Run `consume` over the blobs that `requests` name, in their order, in a thread.

    A request is an object id; with `--filters` among `words`, an id, a space and the path whose filters apply. Raises
    `GitFailedError` where an object is missing, and whatever `consume` raises.
    """
    if not requests:
        return await anyio.to_thread.run_sync(consume, iter(()))
    read_end, write_end = os.pipe()
    source = os.fdopen(read_end, "rb", buffering=CHUNK_BYTES)

    def run() -> T:
        with closing(source):
            return consume(_blobs(source, len(requests)))

    with tempfile.TemporaryFile() as asked:
        asked.write(b"".join(request + b"\0" for request in requests))
        asked.seek(0)
        return await _run_both(git, words, asked.fileno(), write_end, run)


async def _run_both(git: Git, words: Sequence[str], stdin: int, write_end: int, run: Callable[[], T]) -> T:
    results: list[T] = []

    async def produce() -> None:
        try:
            await git.run("cat-file", "--batch", "-z", *words, stdin=stdin, stdout=write_end, timeout_s=LONG_S)
        finally:
            os.close(write_end)

    async def take() -> None:
        results.append(await anyio.to_thread.run_sync(run))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            group.start_soon(take)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return results[0]


def _blobs(source: IO[bytes], count: int) -> Iterator[Blob]:
    for _ in range(count):
        head = source.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise GitFailedError("cat-file", None, "an object of the tree is missing")
        blob = Blob(source, int(head[2]))
        yield blob
        blob.drain()
