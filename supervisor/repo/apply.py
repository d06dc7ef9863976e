"""Brings a result onto the user's work tree: three-way, uncommitted, all or nothing.

Ours is the work tree as it is (the user's own edits included), theirs the result, the base their common commit. The
merge runs in a scratch repository on objects alone; the user's index, HEAD, refs and objects are only read. What comes
out is checked against the work tree and then written by our own writer. The user's filters apply as in any check-out,
named by the attributes the work tree has now, so a result that brings attributes has nothing executed.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from supervisor.repo.fast_import import quoted
from supervisor.repo.git import LONG_S, Git, init
from supervisor.repo.hand_over import borrow_objects, branch_tip
from supervisor.repo.inspection import USAGE, RepositoryState, without_foreign_filters, work_tree_git
from supervisor.repo.repository_error import ApplyConflictError, RepositoryError
from supervisor.repo.smudge import prepare_writes
from supervisor.repo.tree import changes_between, empty_tree, shown
from supervisor.repo.work_tree_writer import write_all

_MERGE_CONFIG = ("merge.directoryRenames=false", "merge.conflictStyle=merge")
_FLAGGED = b"abcdefghijklmnopqrstuvwxyzS"
"""`ls-files -v` tags of entries that git was told to take for unchanged without looking."""


async def apply_result(source: RepositoryState, branch: str, base: str | None, folder: Path) -> tuple[str, ...]:
    """Merge `base`..`branch` into the work tree of `source`; returns the paths that were written.

    `folder` is a place of ours for scratch files. Raises `ApplyConflictError` with nothing changed, or
    `RepositoryError` where there is no work tree or no such branch.
    """
    if source.top_level is None:
        message = "The repository is bare, so there is no work tree to apply to."
        raise RepositoryError(message, "Merge the branch in a clone.", USAGE)
    tip = await branch_tip(source, branch)
    if tip is None:
        message = f"The repository has no branch {branch!r}."
        raise RepositoryError(message, "It comes with the end of a run that changed something.")
    place = Path(tempfile.mkdtemp(prefix="apply-", dir=folder))
    try:
        return await _Application(source, source.top_level, place).run(base, tip)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))


class _Application:
    """One attempt, with its scratch folder."""

    def __init__(self, source: RepositoryState, top_level: Path, place: Path) -> None:
        self._source = source
        self._top_level = top_level
        self._place = place

    async def run(self, base: str | None, tip: str) -> tuple[str, ...]:
        merging = await init(self._place / "merge.git", self._source.object_format, bare=True)
        borrow_objects(merging.git_dir, self._source)
        base_tree = f"{base}^{{tree}}" if base else empty_tree(self._source.object_format)
        reading = await self._reading(merging)
        touched = [change.path for change in await changes_between(merging, base_tree, f"{tip}^{{tree}}")]
        ours = await self._work_tree_as_tree(reading, touched)
        merged = await _merge(merging, base_tree, ours, f"{tip}^{{tree}}")
        changes = await changes_between(merging, ours, merged)
        writes = await prepare_writes(reading, merging, changes, self._place)
        try:
            with anyio.CancelScope(shield=True):  # either before it or after it, never in the middle
                await anyio.to_thread.run_sync(write_all, self._top_level, writes, self._place)
        except OSError as failed:
            message = f"The work tree cannot be written, and is as it was: {failed.strerror}."
            raise RepositoryError(message, "Look at its permissions and its disk.") from failed
        return tuple(shown(change.path) for change in changes)

    async def _reading(self, merging: Git) -> Git:
        """git on the user's work tree with an index and an object folder of ours: nothing of the user's is written."""
        git = await without_foreign_filters(work_tree_git(self._source.git_dir, self._top_level))
        index = self._place / "index"
        users_index = self._source.git_dir / "index"
        if users_index.is_file():
            await anyio.to_thread.run_sync(shutil.copyfile, users_index, index)
        return git.with_environment(
            GIT_INDEX_FILE=str(index),
            GIT_OBJECT_DIRECTORY=str(merging.git_dir / "objects"),
            GIT_ALTERNATE_OBJECT_DIRECTORIES=os.fsdecode(quoted(os.fsencode(self._source.common_dir / "objects"))),
        )

    async def _work_tree_as_tree(self, reading: Git, touched: Sequence[bytes]) -> str:
        """The id of the tree that the tracked files make as they lie in the work tree."""
        await _look_at_flagged(reading, set(touched))
        words = ("diff-files", "-z", "--name-only", "--ignore-submodules=all", "--no-ext-diff")
        edited = await reading.run(*words, timeout_s=LONG_S)
        await reading.run("update-index", "-z", "--add", "--remove", "--stdin", stdin=edited, timeout_s=LONG_S)
        if await reading.run("ls-files", "--unmerged", "-z"):
            message = "The repository is in the middle of a merge, so nothing was applied."
            raise RepositoryError(message, "Finish or abort the merge, and apply again.")
        return str(await reading.line("write-tree"))


async def _look_at_flagged(reading: Git, touched: set[bytes]) -> None:
    """Make git look at touched files that it was told to take for unchanged, so that an edit of them is not lost."""
    records = (await reading.run("ls-files", "-v", "-z")).split(b"\0")[:-1]
    flagged = [record[2:] for record in records if record[:1] in _FLAGGED and record[2:] in touched]
    if flagged:
        words = ("update-index", "-z", "--no-assume-unchanged", "--no-skip-worktree", "--stdin")
        await reading.run(*words, stdin=b"".join(path + b"\0" for path in flagged))


async def _merge(git: Git, base: str, ours: str, theirs: str) -> str:
    """The id of the merged tree. Commits of our own give the merge exactly this base."""
    if base == empty_tree("sha1") or base == empty_tree("sha256"):
        await git.run("hash-object", "-t", "tree", "-w", "--stdin")
    root = str(await git.line("commit-tree", "-m", "base", base))
    sides = [str(await git.line("commit-tree", "-m", "side", "-p", root, tree)) for tree in (ours, theirs)]
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages")
    merging = Git(git.git_dir, config=_MERGE_CONFIG)
    code, out = await merging.call(*words, "--end-of-options", *sides, ok=(0, 1), timeout_s=LONG_S)
    tree, *conflicts = out.split(b"\0")[:-1]
    if code == 1:
        raise ApplyConflictError(
            "both sides changed the same lines or files", tuple(sorted({shown(p) for p in conflicts}))
        )
    return tree.decode()
