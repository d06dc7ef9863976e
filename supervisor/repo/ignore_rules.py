"""The base commit's ignore rules, asked through git: what they ignore is build output, not work.

Only rules that the user committed count, not the user's `info/exclude` or global excludes: a worker cannot hide a file,
nor have the host read patterns of its making. git sees a scratch folder with the base's `.gitignore` files and empty
folders of the names asked about, never the workspace.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread

from supervisor.repo.blob_stream import Blob, stream_blobs
from supervisor.repo.git import Git
from supervisor.repo.tree import EXECUTABLE, FILE, TreeEntry
from supervisor.repo.workspace_fill import fill


class IgnoreRules:
    """Decides on paths once and remembers. `tracked` paths and the folders above them are never ignored."""

    def __init__(self, git: Git, base_files: dict[bytes, TreeEntry]) -> None:
        self._git = git
        self._rules = [
            (path, entry)
            for path, entry in base_files.items()
            if path.rpartition(b"/")[2] == b".gitignore" and entry.mode in (FILE, EXECUTABLE)
        ]
        self._decided: dict[tuple[bytes, bool], bool] = {}

    def is_ignored(self, path: bytes, is_folder: bool) -> bool | None:
        """What was decided on `path`; None where nothing was yet."""
        return self._decided.get((path, is_folder))

    async def decide(self, paths: Sequence[tuple[bytes, bool]]) -> None:
        """Decide on `paths`, each with whether it is a folder."""
        with tempfile.TemporaryDirectory(dir=self._git.git_dir.parent) as place:
            scratch = Path(place)
            requests = [entry.oid.encode() for _, entry in self._rules]
            await stream_blobs(self._git, requests, partial(self._write_rules, scratch))
            await anyio.to_thread.run_sync(_make_folders, scratch, [path for path, is_folder in paths if is_folder])
            git = Git(self._git.git_dir, work_tree=scratch)
            names = b"".join(b"./%s\0" % path for path, _ in paths)  # "./": a name is never a pattern
            _, out = await git.call("check-ignore", "-z", "--stdin", "--no-index", stdin=names, ok=(0, 1))
        ignored = set(out.split(b"\0")[:-1])
        self._decided.update((asked, b"./" + asked[0] in ignored) for asked in paths)

    def _write_rules(self, scratch: Path, blobs: Iterator[Blob]) -> None:
        fill(scratch, self._rules, None, blobs)


def _make_folders(scratch: Path, folders: Sequence[bytes]) -> None:
    for folder in folders:
        try:
            (scratch / os.fsdecode(folder)).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue  # a rules file has the name: then no rule for folders can speak about it
