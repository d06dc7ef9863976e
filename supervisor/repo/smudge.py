"""The contents that a check-out would write, in scratch files: the user's filters and line endings where they apply.

Attributes are those the work tree has now, never those that the result brings. Most files have none; those are streamed
by one process, each of the others takes one of its own.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from supervisor.repo.blob_stream import Blob, stream_blobs
from supervisor.repo.git import LONG_S, Git
from supervisor.repo.tree import LINK, TreeChange
from supervisor.repo.work_tree_writer import FileWrite

_ATTRIBUTES = ("filter", "text", "eol", "crlf", "ident", "working-tree-encoding")
_NONE = (b"unspecified", b"unset")


async def prepare_writes(reading: Git, merging: Git, changes: Sequence[TreeChange], place: Path) -> list[FileWrite]:
    """One write for each of `changes`, with its content in `place`. `reading` is git on the user's work tree, `merging`
    on the merged objects."""
    paths = [change.path for change in changes if change.new is not None and change.new.mode != LINK]
    converted = await _converted_paths(reading, paths)
    plain: list[tuple[Path, bytes]] = []
    writes = []
    for number, change in enumerate(changes):
        if change.new is None:
            writes.append(FileWrite(change.path, True, 0, None))
            continue
        content = place / f"content-{number}"
        if change.path in converted:
            with content.open("xb") as target:
                words = ("cat-file", "--filters", b"--path=" + change.path, change.new.oid)
                await reading.run(*words, stdout=target.fileno(), timeout_s=LONG_S)
        else:
            plain.append((content, change.new.oid.encode()))
        writes.append(FileWrite(change.path, change.old is not None, change.new.mode, content))
    await _write_plain(merging, plain)
    return writes


async def _write_plain(git: Git, plain: Sequence[tuple[Path, bytes]]) -> None:
    def write(blobs: Iterator[Blob]) -> None:
        for (content, _), blob in zip(plain, blobs, strict=True):
            with content.open("xb") as target:
                for piece in blob.chunks():
                    target.write(piece)

    await stream_blobs(git, [oid for _, oid in plain], write)


async def _converted_paths(git: Git, paths: Sequence[bytes]) -> set[bytes]:
    """The paths whose content in the work tree may differ from their blob."""
    crlf = [await git.line("config", "--get", key, ok=(0, 1)) for key in ("core.autocrlf", "core.eol")]
    if not paths or (crlf[0] or "").casefold() not in ("", "false", "input"):
        return set(paths)
    names = b"".join(path + b"\0" for path in paths)
    fields = (await git.run("check-attr", "-z", "--stdin", *_ATTRIBUTES, stdin=names)).split(b"\0")[:-1]
    ends_with_lf = (crlf[1] or "").casefold() != "crlf"
    return {
        path
        for path, attribute, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True)
        if value not in _NONE and not (attribute == b"text" and ends_with_lf)
    }
