"""A commit as a stream for `git fast-import`: paths and contents are data to git, never files it opens.

The stream names the branch of the trusted git directory, its parent, what goes and what comes.
"""

import re
import tempfile
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

import anyio.to_thread

from supervisor.repo.git import LONG_S, WORKER_EMAIL, WORKER_NAME, Git
from supervisor.repo.workspace_read import Content

MAX_MESSAGE_CHARACTERS = 2000
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class CommitPlan:
    """One commit: paths that go, and paths that come with where their content lies in the spool."""

    ref: str
    parent: str | None
    message: str
    deleted: Sequence[bytes]
    written: Sequence[tuple[bytes, Content]]


async def import_commit(git: Git, plan: CommitPlan, spool: IO[bytes]) -> str:
    """Make the commit, move the branch to it, and return its id."""
    with tempfile.TemporaryFile(dir=git.git_dir) as stream:
        await anyio.to_thread.run_sync(partial(write_stream, stream, plan, spool, int(time.time())))
        stream.seek(0)
        words = ("fast-import", "--quiet", "--done", "--date-format=raw")
        out = await git.run(*words, stdin=stream.fileno(), timeout_s=LONG_S)
    return out.decode().strip()


def write_stream(stream: IO[bytes], plan: CommitPlan, spool: IO[bytes], now_s: int) -> None:
    """Write the stream of `plan`, committed at `now_s` (seconds since 1970)."""
    message = printable(plan.message).encode()
    stream.write(b"commit %s\nmark :1\n" % plan.ref.encode())
    stream.write(b"committer %s <%s> %d +0000\n" % (WORKER_NAME.encode(), WORKER_EMAIL.encode(), now_s))
    stream.write(b"data %d\n%s\n" % (len(message), message))
    if plan.parent is not None:
        stream.write(b"from %s\n" % plan.parent.encode())
    for path in plan.deleted:
        stream.write(b"D %s\n" % quoted(path))
    for path, content in plan.written:
        stream.write(b"M %o inline %s\n" % (content.listed.mode, quoted(path)))
        stream.write(b"data %d\n" % content.size)
        spool.seek(content.offset)
        _copy(spool, stream, content.size)
        stream.write(b"\n")
    stream.write(b"get-mark :1\ndone\n")


def quoted(path: bytes) -> bytes:
    """A path in git's C style, whatever bytes it has."""
    return b'"' + re.sub(rb"[^\x20\x21\x23-\x5b\x5d-\x7e]", lambda match: b"\\%03o" % match[0][0], path) + b'"'


def printable(text: str) -> str:
    """A message without control characters, direction marks and lone surrogates, and not too long."""
    kept = (c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "?" for c in text)
    return "".join(kept)[:MAX_MESSAGE_CHARACTERS] or "Change"


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size:
        piece = source.read(min(size, CHUNK_BYTES))
        if not piece:
            raise OSError("the spool of changed contents is shorter than it was")
        size -= len(piece)
        target.write(piece)
