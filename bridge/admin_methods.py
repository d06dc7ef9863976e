"""The methods of the admin channel (docs/wires.md): JSON in, one word to the part that does it, JSON out.

Above: `assembly`, which owns the channel. Below: everything the bridge is made of. It keeps no state of its own.
Whoever holds the descriptor of this channel is trusted to say who a caller is; what it sends is read strictly all the
same.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import anyio

from bridge import policies
from bridge.admin_parameters import Parameters
from bridge.bridge_parts import BridgeParts
from bridge.callers import CallBudget, CallerSession, CallTimeouts
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.matrix_tool_projection import MatrixToolProjection, by_alias, project
from bridge.contract.tool_invocation import Caller, NativeCall, PathAccess
from bridge.native_calls import NativeAsk
from bridge.pinned_ops import PinnedOps
from bridge.policy.permission_set import Budget, Role
from bridge.policy.security_delegate import SecurityDelegate
from bridge.policy.workspace_paths import WorkspacePaths

MAX_TYPED_TOOLS: Final = 64
"""Tools with a name of their own on a worker's surface; the rest is reached by `matrix_invoke` and the catalog."""
LINT_TIMEOUT_MS: Final = 10_000
APPENDABLE: Final = frozenset({"inference", "file.change", "commit", "worker.state", "gate"})
"""What the supervisor may put into the log; calls, decisions and policies are the bridge's own to record."""

Method = Callable[[Parameters], Awaitable[JsonObject]]


class AdminMethods:
    """Answers the supervisor."""

    def __init__(self, parts: BridgeParts) -> None:
        self._parts = parts
        self._methods: Mapping[str, Method] = {
            "bridge.hello": self._hello,
            "actors.add": self._actors_add,
            "actors.list": self._actors_list,
            "actors.describe": self._actors_describe,
            "actors.reload": self._actors_reload,
            "actors.lint": self._actors_lint,
            "policy.check": self._policy_check,
            "policy.explain": self._policy_explain,
            "caller.open": self._caller_open,
            "caller.close": self._caller_close,
            "native.decide": self._native_decide,
            "native.finish": self._native_finish,
            "record.append": self._record_append,
            "audit.head": self._audit_head,
        }

    async def serve(self, method: str, params: JsonObject) -> JsonValue:
        """Answer one request. Raises `MatrixError`."""
        answer = self._methods.get(method)
        if answer is None:
            raise method_not_found(method)
        return await answer(Parameters(params))

    async def _hello(self, _given: Parameters) -> JsonObject:
        identity = self._parts.identity
        return {"pid": identity.pid, "root": identity.root, "version": identity.version}

    async def _actors_add(self, given: Parameters) -> JsonObject:
        added = await self._parts.hosts.add(Path(given.text("path")), guarded=given.flag("guarded"))
        return {"mounts": list(added.mounts), "warnings": list(added.warnings)}

    async def _actors_reload(self, given: Parameters) -> JsonObject:
        added = await self._parts.hosts.reload(given.text_or_none("target"))
        return {"mounts": list(added.mounts), "warnings": list(added.warnings)}

    async def _actors_list(self, _given: Parameters) -> JsonObject:
        entries: list[JsonValue] = []
        for declaration in self._parts.buses.declarations():
            owner = self._parts.buses.owner(declaration.mount)
            entries.append(
                {
                    "mount": declaration.mount,
                    "type": declaration.type,
                    "description": declaration.description,
                    "source": "" if owner is None else owner.source,
                    "ops": list(declaration.accepts),
                }
            )
        return {"actors": entries}

    async def _actors_describe(self, given: Parameters) -> JsonObject:
        return self._parts.bus.actor(given.text("target")).to_introspect(self._parts.identity.root)

    async def _actors_lint(self, given: Parameters) -> JsonObject:
        argv = [sys.executable, "-P", "-m", "bridge.actor_lint", given.text("path")]
        try:
            with anyio.fail_after(LINT_TIMEOUT_MS / 1000):
                ended = await anyio.run_process(argv, stdin=subprocess.DEVNULL, stderr=None)
            answer: JsonObject = json.loads(ended.stdout)
        except (TimeoutError, subprocess.CalledProcessError, ValueError) as error:
            message = f"The path could not be read within {LINT_TIMEOUT_MS} ms ({type(error).__name__})."
            raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", message) from None
        return answer

    async def _policy_check(self, given: Parameters) -> JsonObject:
        read = await policies.check(Path(given.text("path")))
        return {
            "ok": read.permissions is not None,
            "roles": [] if read.permissions is None else list(read.permissions.roles),
            "problems": [policies.problem_to_json(problem) for problem in read.problems],
        }

    async def _policy_explain(self, given: Parameters) -> JsonObject:
        source = await self._parts.policies.source(given.path_or_none("path"))
        role = policies.role_of(source.permissions, given.text_or_none("role"))
        paths = tuple(_path_accesses(given))
        question = policies.ExplainQuestion(given.text("target"), given.text("op"), given.text_or_none("shell"), paths)
        decision = policies.explain(SecurityDelegate(role, source.permissions.digest), question)
        return {
            "verdict": decision.verdict,
            "reason": decision.reason,
            "rule": decision.rule,
            "nearest": decision.nearest,
        }

    async def _caller_open(self, given: Parameters) -> JsonObject:
        source = await self._parts.policies.source(given.path_or_none("policy"))
        role = policies.role_of(source.permissions, given.text_or_none("role"))
        delegate = policies.current_delegate(source, role.name)
        tools = self._tools_of(delegate())
        session = CallerSession(
            caller=Caller(given.caller_kind(), role.name, given.text_or_none("worker"), given.text_or_none("run")),
            delegate=delegate,
            budget=CallBudget(role.budget.tool_calls),
            timeouts=_timeouts(given),
            workspace=given.path_or_none("workspace"),
            pinned=PinnedOps(self._parts.buses.declarations()),
        )
        capability = self._parts.callers.open(session)
        return {
            "capability": capability,
            "role": role.name,
            "policy": source.permissions.digest,
            "tools": [tool.to_json() for tool in tools[:MAX_TYPED_TOOLS]],
            "moreTools": max(0, len(tools) - MAX_TYPED_TOOLS),
            **_native_rules(role),
            "budget": _budget(role.budget),
        }

    def _tools_of(self, delegate: SecurityDelegate) -> list[MatrixToolProjection]:
        """Ordered by canonical name. Raises `MX_AGENT_MALFORMED_NAME` where two share an alias."""
        root = self._parts.identity.root
        tools = [
            project(root, declaration, op)
            for declaration in self._parts.buses.declarations()
            for op in delegate.usable_ops(declaration)
            if op in declaration.accepts
        ]
        return sorted(by_alias(tools).values(), key=lambda tool: tool.canonical)

    async def _caller_close(self, given: Parameters) -> JsonObject:
        session = self._parts.callers.close(given.text("capability"))
        await session.wait_calls_over()
        await self._parts.native.close(session)
        return {"events": self._parts.events.forget(session.caller.worker)}

    async def _native_decide(self, given: Parameters) -> JsonObject:
        session = self._parts.callers.find(given.text("capability"))
        native = NativeCall(
            op=given.text("op"),
            tool=given.text("tool"),
            payload=given.object("payload"),
            paths=tuple(_resolved(session, given)),
            command=given.text_or_none("command"),
            cwd=given.text_or_none("cwd"),
        )
        ask = NativeAsk(native, given.text("workerCall"), given.text_or_none("agent"))
        with session.open_call():
            return (await self._parts.native.decide(session, ask)).to_json()

    async def _native_finish(self, given: Parameters) -> JsonObject:
        session = self._parts.callers.find(given.text("capability"))
        await self._parts.native.finish(
            session, given.text("workerCall"), given.outcome(), given.any("result"), given.number_or_none("durationMs")
        )
        return {}

    async def _record_append(self, given: Parameters) -> JsonObject:
        kind, key = given.text("kind"), given.text("key")
        if kind not in APPENDABLE:
            known = ", ".join(sorted(APPENDABLE))
            raise MatrixError(
                "MX_AGENT_INVALID_ARGUMENTS", f"A record of kind {kind!r} is not taken; these are: {known}."
            )
        appended = await self._parts.log.append(kind, given.without("kind", "key"), key=f"supervisor:{key}")
        return {"seq": appended.seq}

    async def _audit_head(self, _given: Parameters) -> JsonObject:
        head = self._parts.log.head
        return {"seq": head.seq, "hash": head.hash}


def _path_accesses(given: Parameters) -> list[PathAccess]:
    return [PathAccess(path.text("shown"), path.access()) for path in given.objects("paths")]


def _resolved(session: CallerSession, given: Parameters) -> list[PathAccess]:
    """The paths of a native call, each with where it lies in the caller's workspace."""
    cwd = given.text_or_none("cwd")
    folder = None if session.workspace is None else WorkspacePaths(session.workspace)
    return [
        PathAccess(path.shown, path.access, None if folder is None else folder.resolve(path.shown, cwd))
        for path in _path_accesses(given)
    ]


def _timeouts(given: Parameters) -> CallTimeouts:
    told, default = given.object("timeouts"), CallTimeouts()
    tool_ms, introspect_ms = told.get("toolMs"), told.get("introspectMs")
    return CallTimeouts(
        tool_ms if isinstance(tool_ms, int) and tool_ms > 0 else default.tool_ms,
        introspect_ms if isinstance(introspect_ms, int) and introspect_ms > 0 else default.introspect_ms,
    )


def _native_rules(role: Role) -> JsonObject:
    ops, paths = role.native.ops, role.native.paths
    return {
        "native": {
            "allow": [pattern.text for pattern in ops.allow],
            "ask": [pattern.text for pattern in ops.ask],
            "deny": [pattern.text for pattern in ops.deny],
        },
        "paths": {"read": list(paths.read), "write": list(paths.write), "deny": list(paths.deny)},
    }


def _budget(budget: Budget) -> JsonObject:
    return {
        "toolCalls": budget.tool_calls,
        "tokens": budget.tokens,
        "usd": budget.usd,
        "seconds": budget.seconds,
    }
