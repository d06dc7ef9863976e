"""The permission files in use: each loaded once, watched for as long as the bridge runs, its changes recorded.

Below: `policy` and the log. Above: the admin channel. It decides nothing: it gives out delegates that judge by the
version in force, and answers `policy.check` and `policy.explain`, which execute nothing.
"""

import posixpath
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from bridge.audit.audit_log import AuditLog
from bridge.callers import CurrentDelegate
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Decision, NativeCall, PathAccess, ToolInvoke
from bridge.policy.permission_file import Problem, ReadPolicy
from bridge.policy.permission_set import PermissionSet, Role
from bridge.policy.permission_source import PermissionFileError, PermissionSource, load_policy
from bridge.policy.security_delegate import SecurityDelegate
from bridge.policy.workspace_paths import MOUNT


@dataclass(frozen=True)
class ExplainQuestion:
    """What `policy.explain` is asked. With `shell` or `paths`, or at a workspace, it is about a worker's own tool."""

    target: str
    op: str
    shell: str | None = None
    paths: tuple[PathAccess, ...] = ()

    @property
    def is_native(self) -> bool:
        """Whether the native lists answer it."""
        segments = self.target.split(".")
        return bool(self.shell or self.paths) or (segments[0] == "workers" and segments[-1] == "workspace")


class Policies:
    """One source per file. `tasks` is the group that the watchers run in."""

    def __init__(self, log: AuditLog, tasks: TaskGroup) -> None:
        self._log = log
        self._tasks = tasks
        self._sources: dict[Path | None, PermissionSource] = {}

    async def source(self, path: Path | None) -> PermissionSource:
        """The source of a file, or of the built-in role. Raises `MX_AGENT_INVALID_ARGUMENTS` with every problem."""
        where = None if path is None else await anyio.to_thread.run_sync(path.absolute)
        if where not in self._sources:
            source = await self._load(where)
            self._sources[where] = source
            await self._record_loaded(where, source.permissions)
            self._tasks.start_soon(self._watch, source)
        return self._sources[where]

    async def _load(self, path: Path | None) -> PermissionSource:
        try:
            return await anyio.to_thread.run_sync(PermissionSource, path)
        except PermissionFileError as error:
            problems: list[JsonValue] = [problem_to_json(problem) for problem in error.problems]
            await self._log.append("policy.refused", {"path": str(path), "problems": problems})
            raise MatrixError(
                "MX_AGENT_INVALID_ARGUMENTS", f"The permission file is refused.\n{error}", problems=problems
            ) from None

    async def _watch(self, source: PermissionSource) -> None:
        async def loaded(permissions: PermissionSet) -> None:
            await self._record_loaded(source.path, permissions)

        async def refused(problems: tuple[Problem, ...]) -> None:
            told: list[JsonValue] = [problem_to_json(problem) for problem in problems]
            await self._log.append("policy.refused", {"path": str(source.path), "problems": told})

        await source.watch(loaded, refused)

    async def _record_loaded(self, path: Path | None, permissions: PermissionSet) -> None:
        shown = None if path is None else str(path)
        roles = list(permissions.roles)
        await self._log.append("policy.loaded", {"path": shown, "policy": permissions.digest, "roles": list(roles)})


async def check(path: Path) -> ReadPolicy:
    """The permissions of a file, or its problems."""
    return await anyio.to_thread.run_sync(load_policy, path)


def role_of(permissions: PermissionSet, name: str | None) -> Role:
    """The role called `name`, or the only one. Raises `MX_AGENT_INVALID_ARGUMENTS`, listing the roles there are."""
    role = permissions.only_role() if name is None else permissions.roles.get(name)
    if role is None:
        roles = ", ".join(repr(known) for known in permissions.roles)
        why = "has more than one role" if name is None else f"has no role {name!r}"
        raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"The permission file {why}. Name one of {roles} with --role.")
    return role


def current_delegate(source: PermissionSource, role: str) -> CurrentDelegate:
    """Judges by the version of the file that is in force; a role that is gone from it may do nothing."""
    made: list[SecurityDelegate] = []

    def current() -> SecurityDelegate:
        permissions = source.permissions
        if not made or made[0].policy != permissions.digest:
            made[:] = [SecurityDelegate(permissions.roles.get(role, Role(role)), permissions.digest)]
        return made[0]

    return current


def explain(delegate: SecurityDelegate, question: ExplainQuestion) -> Decision:
    """The decision that such a call would get; paths are taken as they are written, since there is no workspace."""
    if not question.is_native:
        return delegate.decide(ToolInvoke(question.target, question.op))
    paths = tuple(PathAccess(path.shown, path.access, _as_written(path.shown)) for path in question.paths)
    return delegate.decide_native(NativeCall(question.op, question.op, {}, paths, question.shell))


def problem_to_json(problem: Problem) -> JsonObject:
    """`{"line", "column", "message", "mend"}`."""
    return {"line": problem.line, "column": problem.column, "message": problem.message, "mend": problem.mend}


def _as_written(shown: str) -> str | None:
    normal = posixpath.normpath(posixpath.join(f"/{MOUNT}", shown))
    relative = posixpath.relpath(normal, f"/{MOUNT}")
    return None if relative.startswith("..") else relative
