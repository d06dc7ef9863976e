"""One worker's repository, from clone in to removal. What the supervisor holds.

It keeps a trusted git directory and a small state file in the worker's state folder, so that it survives a restart, and
fills and follows the workspace beside them. It knows no container, no bridge and no log: the supervisor writes records
from what it returns. Calls on one worker's repository are taken one at a time.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from supervisor.repo.apply import apply_result
from supervisor.repo.clone_in import BaseFiles, LeftOut, fill_workspace, give_fresh_git, take_base
from supervisor.repo.folders import Owner
from supervisor.repo.git import LONG_S, Git, GitFailedError
from supervisor.repo.hand_over import ResultStat, branch_tip, deliver, result_stat
from supervisor.repo.inspection import RepositoryState
from supervisor.repo.path_rules import PathRules
from supervisor.repo.recording import CommitRecord, Recorder
from supervisor.repo.repository_error import RepositoryError
from supervisor.repo.review import ReviewItem, review_before_running
from supervisor.repo.tree import TreeEntry, changes_between, empty_tree, read_tree, shown
from supervisor.repo.workspace_walk import list_workspace

DIFF_BYTES = 64 * 1024 * 1024
"""A longer diff is cut, with a last line that says so."""
EVERYTHING = PathRules()
STATE_FILE = "repository.json"
TRUSTED = "trusted.git"


@dataclass(frozen=True)
class LeftBehind:
    """A path of the workspace that does not come back, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class HandOver:
    """What a run's end brought. `branch` is None where nothing changed. `last` is what changed since the last recorded
    call and belongs to none."""

    branch: str | None
    base: str | None
    commits: int
    files: ResultStat
    left_behind: tuple[LeftBehind, ...]
    review: tuple[ReviewItem, ...]
    last: CommitRecord | None

    @property
    def nothing_changed(self) -> bool:
        """Whether the result equals its base, so that no branch was made."""
        return self.branch is None


@dataclass(frozen=True)
class _State:
    """What has to survive a restart."""

    worker_id: str
    workspace: str
    top_level: str | None
    git_dir: str
    common_dir: str
    object_format: str
    base: str | None
    branch: str | None
    write: tuple[str, ...]
    deny: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    applied: str | None = None  # the commit that was applied last


class WorkerRepository:
    """Made by `prepare` or `reopen`. `left_out`: what of the base the workspace lacks; `branch`: `mxs/<worker id>`."""

    def __init__(self, folder: Path, state: _State, recorder: Recorder) -> None:
        self.branch = f"mxs/{state.worker_id}"
        self.base = state.base
        self.left_out = tuple(LeftOut(path, why) for path, why in state.left_out)
        self._folder = folder
        self._state = state
        self._recorder = recorder
        self._git = Git(folder / TRUSTED)
        self._turn = anyio.Lock()

    @classmethod
    async def prepare(
        cls,
        source: RepositoryState,
        worker_id: str,
        folder: Path,
        workspace: Path,
        rules: PathRules = EVERYTHING,
        owner: Owner | None = None,
    ) -> "WorkerRepository":
        """Clone in: fill the empty folder `workspace` from the last commit of `source`, keeping what is trusted in
        `folder`. Files belong to `owner` (needs root) or to whoever runs this. Raises `RepositoryError`."""
        state = _new_state(source, worker_id, workspace, rules)
        await anyio.to_thread.run_sync(_make_folders, folder, workspace, owner)
        branch = f"mxs/{worker_id}"
        git = await take_base(source.git(), folder / TRUSTED, source.object_format, source.head, branch)
        base = await BaseFiles.choose(git, source.head, rules)
        left_out = await fill_workspace(git, base, workspace, owner)
        await give_fresh_git(git, source.object_format, source.head, base, source.branch or "main", workspace, owner)
        state = replace(state, left_out=tuple((item.path, item.why) for item in left_out))
        recorder = _recorder(git, state, base, source.head, base.copied)
        recorder.trust(await anyio.to_thread.run_sync(list_workspace, workspace, _nothing_is_ignored))
        await anyio.to_thread.run_sync(_save, folder, state)
        return cls(folder, state, recorder)

    @classmethod
    async def reopen(cls, folder: Path) -> "WorkerRepository":
        """Take up the repository that `prepare` made in `folder`, after a restart. Raises `RepositoryError`."""
        state = await anyio.to_thread.run_sync(_load, folder)
        git = Git(folder / TRUSTED)
        tip = await git.line(
            "rev-parse", "-q", "--verify", f"refs/heads/mxs/{state.worker_id}^{{commit}}", ok=(0, 1, 128)
        )
        base = await BaseFiles.choose(git, state.base, PathRules(state.write, state.deny))
        tree = await read_tree(git, tip) if tip else {}
        return cls(folder, state, _recorder(git, state, base, tip, tree))

    async def record_changes(self, call: str | None, message: str) -> CommitRecord | None:
        """Commit what the workspace has that it had not before, as the work of `call` (None: of no known call).
        Returns None if nothing changed. Raises `RepositoryError`."""
        async with self._turn:
            return await self._recorder.record(call, message)

    async def hand_over(self) -> HandOver:
        """Record what is left, and bring the result to the user's repository as one ref. Again after it succeeded, it
        says the same and does nothing. Raises `RepositoryError`; the result is kept then."""
        async with self._turn:
            last = await self._recorder.record(None, "Changes outside any call")
            left_behind = tuple(
                LeftBehind(shown(path), why) for path, why in sorted(self._recorder.left_behind.items())
            )
            changes = await changes_between(self._git, self._base_tree(), self._tip_tree())
            if not changes:
                return HandOver(None, self.base, 0, ResultStat(), left_behind, (), last)
            if await branch_tip(self._source(), self.branch) != self._recorder.tip:
                await deliver(self._git, self._source(), self.branch, self.base)
            files = await result_stat(self._git, self._base_tree(), self._tip_tree())
            review = review_before_running(changes)
            return HandOver(self.branch, self.base, await self._commits(), files, left_behind, review, last)

    async def stat(self) -> ResultStat:
        """How much the result changes so far."""
        return await result_stat(self._git, self._base_tree(), self._tip_tree())

    async def diff(self) -> bytes:
        """The result so far as a unified diff, raw: print it only through something that is safe on a terminal. It is
        cut at `DIFF_BYTES`."""
        options = ("--no-color", "--full-index", "--binary", "--no-renames", "--submodule=short")
        words = (*options, "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--end-of-options")
        try:
            trees = (self._base_tree(), self._tip_tree())
            text = await self._git.run("diff-tree", "-r", "-p", "--no-commit-id", *words, *trees, timeout_s=LONG_S)
        except GitFailedError as failed:
            if failed.returncode is not None:
                raise
            raise RepositoryError(
                "The diff is too large to show.", f"Look at the branch {self.branch!r} with git."
            ) from failed
        if len(text) <= DIFF_BYTES:
            return text
        return text[: text.rindex(b"\n", 0, DIFF_BYTES) + 1] + b"# The diff is longer; it was cut here.\n"

    async def apply(self) -> tuple[str, ...]:
        """Merge the result into the user's work tree, uncommitted, all or nothing; returns the paths written.
        Raises `ApplyConflictError` or `RepositoryError`, with nothing changed."""
        async with self._turn:
            written = await apply_result(self._source(), self.branch, self.base, self._folder)
            self._state = replace(self._state, applied=self._recorder.tip)
            await anyio.to_thread.run_sync(_save, self._folder, self._state)
            return written

    async def is_safe_to_remove(self) -> bool:
        """Whether the result is empty, applied, or in the user's repository."""
        tip = self._recorder.tip
        if tip == self.base or tip == self._state.applied:
            return True
        return self._source().common_dir.is_dir() and await branch_tip(self._source(), self.branch) == tip

    async def remove(self, *, force: bool = False) -> None:
        """Delete workspace and trusted directory. The branch in the user's repository stays. Without `force`, a result
        that is nowhere else is not deleted: raises `RepositoryError`."""
        async with self._turn:
            if not force and not await self.is_safe_to_remove():
                message = f"The result of {self._state.worker_id!r} was neither handed over nor applied."
                raise RepositoryError(message, "See it with `mxs diff`; remove it all the same with `--force`.")
            for path in (Path(self._state.workspace), self._git.git_dir, self._folder / STATE_FILE):
                await anyio.to_thread.run_sync(_remove, path)

    def _source(self) -> RepositoryState:
        state = self._state
        top_level = Path(state.top_level) if state.top_level is not None else None
        return RepositoryState(
            top_level, Path(state.git_dir), Path(state.common_dir), state.object_format, state.base, state.branch
        )

    def _base_tree(self) -> str:
        return f"{self.base}^{{tree}}" if self.base else empty_tree(self._state.object_format)

    def _tip_tree(self) -> str:
        tip = self._recorder.tip
        return f"{tip}^{{tree}}" if tip else empty_tree(self._state.object_format)

    async def _commits(self) -> int:
        span = f"{self.base}..{self._recorder.tip}" if self.base else str(self._recorder.tip)
        return int(await self._git.line("rev-list", "--count", span) or 0)


def _new_state(source: RepositoryState, worker_id: str, workspace: Path, rules: PathRules) -> _State:
    return _State(
        worker_id=worker_id,
        workspace=str(workspace),
        top_level=str(source.top_level) if source.top_level is not None else None,
        git_dir=str(source.git_dir),
        common_dir=str(source.common_dir),
        object_format=source.object_format,
        base=source.head,
        branch=source.branch,
        write=rules.write,
        deny=rules.deny,
    )


def _recorder(git: Git, state: _State, base: BaseFiles, tip: str | None, tree: dict[bytes, TreeEntry]) -> Recorder:
    rules = PathRules(tuple(state.write), tuple(state.deny))
    ref = f"refs/heads/mxs/{state.worker_id}"
    return Recorder(git, ref, tip, tree, base, rules, Path(state.workspace), state.object_format)


def _nothing_is_ignored(_path: bytes, _is_folder: bool) -> bool:
    return False


def _make_folders(folder: Path, workspace: Path, owner: Owner | None) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    workspace.mkdir(mode=0o755, parents=True, exist_ok=True)
    if any(workspace.iterdir()):
        raise RepositoryError(f"The workspace {str(workspace)!r} is not empty.", "Remove the worker that used it.")
    if owner is not None:
        os.chown(workspace, *owner)


def _save(folder: Path, state: _State) -> None:
    new = folder / f"{STATE_FILE}.new"
    with new.open("w", encoding="ascii") as file:
        json.dump(asdict(state), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / STATE_FILE)


def _load(folder: Path) -> _State:
    try:
        fields = json.loads((folder / STATE_FILE).read_text(encoding="ascii"))
        state = _State(**fields)
    except (OSError, ValueError, TypeError) as broken:
        message = f"The worker's repository in {str(folder)!r} cannot be taken up."
        raise RepositoryError(message, "Its branch, if it has one, is in your repository.") from broken
    left_out = tuple((path, why) for path, why in state.left_out)
    return replace(state, write=tuple(state.write), deny=tuple(state.deny), left_out=left_out)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
