"""What a run does with its repository: the clone, a commit for each changing call, the branch at the end, as records.

Above: `run`. Below: `supervisor.repo`, which knows neither run nor log.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast

import anyio

from bridge.contract.json_types import JsonObject
from supervisor.repo import CommitRecord, Owner, PathRules, RepositoryState, WorkerRepository, inspect
from supervisor.repo.inspection import read_files
from supervisor.repo.worker_repository import STATE_FILE

INSTRUCTION_FILES: Final = ("CLAUDE.md", "AGENTS.md")
LARGEST_INSTRUCTIONS: Final = 64 * 1024
"""Bytes of each instruction file that reach the worker."""
MOST_FILE_RECORDS: Final = 1000
"""Changed paths of one call with a record of their own: more would keep the hand-over waiting for the log, and the
`commit` record binds all of them by its hash."""

AppendRecord = Callable[[str, JsonObject], Awaitable[None]]
NO_RESULT: Final[JsonObject] = {
    "branch": None,
    "commits": 0,
    "files": {"changed": 0, "insertions": 0, "deletions": 0},
    "leftBehind": [],
    "review": [],
}


class RunChanges:
    """The repository side of one run. `folder` is the worker's; `append` writes a record of the run."""

    def __init__(self, repo: Path, folder: Path, worker_id: str, append: AppendRecord) -> None:
        self.workspace = folder / "workspace"
        self._repo = repo
        self._folder = folder
        self._worker_id = worker_id
        self._append = append
        self._state: RepositoryState | None = None
        self._repository: WorkerRepository | None = None
        self._recording = anyio.Lock()

    async def inspect(self) -> None:
        """Find the repository. Raises `RepositoryError`."""
        self._state = await inspect(self._repo)

    async def instructions(self, paths: JsonObject) -> str:
        """The repository's instruction files as text, as the last commit has them, but for those that are denied."""
        assert self._state is not None
        rules = _rules(paths)
        granted = [name for name in INSTRUCTION_FILES if not rules.is_denied(name.encode())]
        found = await read_files(self._state, granted, LARGEST_INSTRUCTIONS)
        return "\n\n".join(f"# {name} of the repository\n\n{text}" for name, text in found.items())

    def make_workspace(self) -> None:
        """Make the empty folder that `clone` fills, so that a container can be made with it before."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.workspace.mkdir(mode=0o755)

    def notices(self) -> list[str]:
        """What a person should know of the work tree before the worker starts."""
        assert self._state is not None
        left = self._state.uncommitted
        notices = []
        if left:
            counts = f"{left.modified} modified, {left.staged} staged, {left.untracked} untracked"
            notices.append(f"The worker gets the last commit; not copied in: {counts} ({', '.join(left.names)}).")
        if self._state.head is None:
            notices.append("The repository has no commit yet: the worker starts with an empty folder.")
        return notices

    async def clone(self, owner: tuple[int, int], paths: JsonObject) -> list[str]:
        """Clone in under the role's paths; what was left out, as sentences. Raises `RepositoryError`."""
        assert self._state is not None
        self._repository = await WorkerRepository.prepare(
            self._state, self._worker_id, self._folder, self.workspace, _rules(paths), Owner(*owner)
        )
        return [f"not copied in: {item.path} ({item.why})" for item in self._repository.left_out]

    async def record_after(self, call: str) -> None:
        """Commit what the workspace has that it had not before, as the work of `call`."""
        if self._repository is None:
            return
        async with self._recording:
            commit = await self._repository.record_changes(call, f"Call {call}")
            if commit is not None:
                await self._write_records(commit)

    async def take_up(self) -> bool:
        """Go on with the clone of a run that a dead supervisor began. False where there is none yet.

        Raises `RepositoryError`.
        """
        if (self._folder / STATE_FILE).is_file():
            self._repository = await WorkerRepository.reopen(self._folder)
        return self._repository is not None

    async def hand_over(self) -> JsonObject:
        """Bring the result out; the result object's fields of it. Raises `RepositoryError`; the work is kept then."""
        if self._repository is None:
            return dict(NO_RESULT)
        async with self._recording:
            done = await self._repository.hand_over()
            if done.last is not None:
                await self._write_records(done.last)
        return {
            "branch": done.branch,
            "commits": done.commits,
            "files": {
                "changed": done.files.changed,
                "insertions": done.files.insertions,
                "deletions": done.files.deletions,
            },
            "leftBehind": [{"path": item.path, "why": item.why} for item in done.left_behind],
            "review": [{"path": item.path, "why": item.why} for item in done.review],
        }

    async def _write_records(self, commit: CommitRecord) -> None:
        call = commit.call or "unattributed"
        for file in commit.files[:MOST_FILE_RECORDS]:
            fields: JsonObject = {"path": file.path, "change": file.kind, "digest": file.digest, "call": call}
            await self._append("file.change", {**fields, "leftBehind": file.left_behind})
        unlisted = len(commit.files) - MOST_FILE_RECORDS
        if unlisted > 0:
            more: JsonObject = {"path": None, "change": "unlisted", "digest": None, "call": call, "files": unlisted}
            await self._append("file.change", more)
        if commit.commit is not None:
            await self._append("commit", {"commit": commit.commit, "call": call, "files": len(commit.files)})


def _rules(paths: JsonObject) -> PathRules:
    """The role's path lists as the bridge sent them."""
    write, deny = (tuple(cast("list[str]", paths.get(name) or [])) for name in ("write", "deny"))
    return PathRules(write, deny)
