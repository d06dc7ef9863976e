"""A commit per changing call, from what lies in the workspace.

Each time the whole workspace is listed, changed files are read, and the trusted branch is moved to what may come back
of it: so what is left behind is a statement about the workspace as it is, not a history. Git never sees the workspace.
Above it stands `worker_repository`; below it the walk, the ignore rules, the tree policy and `fast_import`.
"""

import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Literal, NamedTuple

import anyio.to_thread

from supervisor.repo.clone_in import BaseFiles
from supervisor.repo.fast_import import CommitPlan, import_commit
from supervisor.repo.folders import opened
from supervisor.repo.git import Git
from supervisor.repo.ignore_rules import IgnoreRules
from supervisor.repo.path_rules import PathRules
from supervisor.repo.tree import TreeEntry, shown
from supervisor.repo.tree_policy import Spellings, link_refusal, name_refusal
from supervisor.repo.workspace_read import Content, WorkspaceReader
from supervisor.repo.workspace_walk import MAX_DEPTH, Listing, list_workspace

ChangeKind = Literal["added", "modified", "deleted"]
UNSETTLED_NS = 100_000_000
"""A file written this shortly before it was looked at may be written again within the same tick of the clock."""
STANDS_ON_WITHHELD = "stands where files lie that the worker was not given"


class Seen(NamedTuple):
    """What was last seen at a path: `identity` is empty where it has to be read again whatever its status."""

    identity: bytes
    entry: TreeEntry


@dataclass(frozen=True)
class ChangedFile:
    """One path that a call changed. `digest`: `sha256:` and hex of its content, None when deleted. `left_behind`: why
    the change does not come back, None if it does."""

    path: str
    kind: ChangeKind
    digest: str | None
    left_behind: str | None = None


@dataclass(frozen=True)
class CommitRecord:
    """What one call changed. `commit` is None where all of it stays behind."""

    call: str | None
    commit: str | None
    files: tuple[ChangedFile, ...]


@dataclass
class _Look:
    """One look at the workspace."""

    files: dict[bytes, Seen] = field(default_factory=dict)
    read: dict[bytes, Content] = field(default_factory=dict)
    blocked: dict[bytes, str] = field(default_factory=dict)
    ignored: list[bytes] = field(default_factory=list)


@dataclass
class _Choice:
    """What of a look becomes the next commit, and what stays behind."""

    deleted: list[bytes] = field(default_factory=list)
    written: list[tuple[bytes, Content]] = field(default_factory=list)
    left_behind: dict[bytes, str] = field(default_factory=dict)


class Recorder:
    """Follows one workspace. Not for use by two tasks at once."""

    def __init__(
        self, git: Git, ref: str, tip: str | None, tree: Mapping[bytes, TreeEntry], base: BaseFiles, rules: PathRules,
        workspace: Path, object_format: str,
    ) -> None:  # fmt: skip
        self.tip = tip
        self.left_behind: dict[bytes, str] = {}
        self._git = git
        self._ref = ref
        self._tree = {path: entry for path, entry in tree.items() if path not in base.withheld}
        self._withheld = base.withheld
        self._withheld_folders = _folders_above(base.withheld)
        self._rules = rules
        self._workspace = workspace
        self._object_format = object_format
        self._ignore = IgnoreRules(git, base.copied)
        self._seen = {path: Seen(b"", entry) for path, entry in self._tree.items()}

    def trust(self, listing: Listing) -> None:
        """Take `listing`, made before the worker started, for what was filled in: nothing of it is read again."""
        for path, listed in listing.files.items():
            if path in self._seen:
                self._seen[path] = Seen(listed.identity, self._seen[path].entry)

    async def record(self, call: str | None, message: str) -> CommitRecord | None:
        """Commit what changed since the last time; None if nothing did. Raises `RepositoryError`."""
        with tempfile.TemporaryFile(dir=self._git.git_dir) as spool:
            look = await self._look(spool)
            choice = self._choose(look)
            if choice.deleted or choice.written:
                self.tip = await self._commit(call, message, choice, spool)
        self.left_behind = choice.left_behind
        files = self._remember(look)
        return CommitRecord(call, self.tip if choice.deleted or choice.written else None, files) if files else None

    async def _commit(self, call: str | None, message: str, choice: _Choice, spool: IO[bytes]) -> str:
        text = f"{message}\n\nmxs-call: {call}\n" if call else f"{message}\n"
        plan = CommitPlan(self._ref, self.tip, text, choice.deleted, choice.written)
        commit = await import_commit(self._git, plan, spool)
        for path in choice.deleted:
            del self._tree[path]
        self._tree.update((path, _entry(content)) for path, content in choice.written)
        return commit

    async def _look(self, spool: IO[bytes]) -> _Look:
        folders = _folders_above(self._tree)

        def is_ignored(path: bytes, is_folder: bool) -> bool | None:
            return False if path in self._tree or path in folders else self._ignore.is_ignored(path, is_folder)

        rounds = 0
        while True:  # each round decides on one level of new folders more
            started_ns = time.time_ns()
            listing = await anyio.to_thread.run_sync(list_workspace, self._workspace, is_ignored)
            rounds += 1
            if not listing.undecided or rounds > MAX_DEPTH:
                break
            await self._ignore.decide(listing.undecided)
        listing.blocked.update((path, "still appearing while it was looked at") for path, _ in listing.undecided)
        return await anyio.to_thread.run_sync(partial(self._read_changed, listing, spool, started_ns))

    def _read_changed(self, listing: Listing, spool: IO[bytes], started_ns: int) -> _Look:
        look = _Look(blocked=dict(listing.blocked), ignored=listing.ignored)
        with opened(self._workspace) as root:
            reader = WorkspaceReader(root, spool, self._object_format)
            for path, listed in listing.files.items():
                seen = self._seen.get(path)
                if seen is not None and seen.identity == listed.identity and not self._is_wanted(path, seen.entry):
                    look.files[path] = seen
                else:
                    self._take(reader, path, look, started_ns)
        return look

    def _take(self, reader: WorkspaceReader, path: bytes, look: _Look, started_ns: int) -> None:
        content = reader.read(path)
        if isinstance(content, str):
            look.blocked[path] = content
        elif content is not None:
            settled = content.listed.changed_ns < started_ns - UNSETTLED_NS
            look.files[path] = Seen(content.listed.identity if settled else b"", _entry(content))
            look.read[path] = content
            if not self._is_wanted(path, _entry(content)):
                reader.forget(content)

    def _is_wanted(self, path: bytes, entry: TreeEntry) -> bool:
        """Whether the branch may need this content."""
        return self._tree.get(path) != entry and self._static_refusal(path) is None

    def _static_refusal(self, path: bytes) -> str | None:
        return self._rules.refusal(path) or (name_refusal(path) if path not in self._tree else None)

    def _choose(self, look: _Look) -> _Choice:
        choice = _Choice(
            left_behind={**dict.fromkeys(look.ignored, "ignored by the repository's rules"), **look.blocked}
        )
        for path in self._tree.keys() - look.files.keys():
            if _is_blocked(path, look.blocked):
                continue
            if why := self._rules.refusal(path):
                choice.left_behind[path] = f"deleted, but {why}"
            else:
                choice.deleted.append(path)
        changed = sorted(path for path, seen in look.files.items() if self._tree.get(path) != seen.entry)
        spellings = (
            self._spellings(choice.deleted) if any(path not in self._tree for path in changed) else Spellings(())
        )
        for path in changed:
            if why := self._refusal(path, look.read.get(path), spellings):
                choice.left_behind[path] = why
            else:
                choice.written.append((path, look.read[path]))
                spellings.add(path)
        return choice

    def _refusal(self, path: bytes, content: Content | None, spellings: Spellings) -> str | None:
        if why := self._static_refusal(path):
            return why
        assert content is not None  # what the branch may need was read
        if content.target is not None and (why := link_refusal(path, content.target)):
            return why
        if path in self._tree:
            return None
        if path in self._withheld_folders or any(prefix in self._withheld for prefix in _prefixes(path)):
            return STANDS_ON_WITHHELD
        return spellings.refusal(path)

    def _spellings(self, deleted: list[bytes]) -> Spellings:
        gone = set(deleted)
        return Spellings(path for path in (*self._tree, *self._withheld) if path not in gone)

    def _remember(self, look: _Look) -> tuple[ChangedFile, ...]:
        """Take `look` for what was seen last, and say how it differs from what was seen before."""
        before, self._seen = self._seen, dict(look.files)
        self._seen.update((path, seen) for path, seen in before.items() if _is_blocked(path, look.blocked))
        differing = [
            path for path in before.keys() | self._seen.keys() if _entry_at(before, path) != _entry_at(self._seen, path)
        ]
        return tuple(self._changed_file(path, path in before, look) for path in sorted(differing))

    def _changed_file(self, path: bytes, was_there: bool, look: _Look) -> ChangedFile:
        content = look.read.get(path)
        kind: ChangeKind = "deleted" if path not in look.files else "modified" if was_there else "added"
        digest = f"sha256:{content.digest}" if content is not None else None
        return ChangedFile(shown(path), kind, digest, self.left_behind.get(path))


def _entry_at(files: Mapping[bytes, Seen], path: bytes) -> TreeEntry | None:
    return files[path].entry if path in files else None


def _entry(content: Content) -> TreeEntry:
    return TreeEntry(content.listed.mode, content.oid)


def _folders_above(paths: Iterable[bytes]) -> set[bytes]:
    folders: set[bytes] = set()
    for path in paths:
        while (path := path.rpartition(b"/")[0]) and path not in folders:
            folders.add(path)
    return folders


def _is_blocked(path: bytes, blocked: Mapping[bytes, str]) -> bool:
    if not blocked:
        return False
    return any(prefix in blocked for prefix in _prefixes(path))


def _prefixes(path: bytes) -> list[bytes]:
    """The folders above `path`, and `path` itself."""
    segments = path.split(b"/")
    return [b"/".join(segments[: n + 1]) for n in range(len(segments))]
