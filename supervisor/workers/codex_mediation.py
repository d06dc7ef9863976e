"""Puts `NativeMediation` before every tool of Codex: its managed hook first, its approval requests second.

The order in the program is hook, approval, tool; ids of all three are the same, in code mode too. A hook body comes
from inside the container, where anyone can write one: so an id is bound to what was asked first, and an approval,
which only the program itself can send, must show the very same command or paths. Matrix tools pass, since the
bridge judges them in their handler. Decides nothing: what has no answer in time, no verdict, or another content, is
a refusal. Above: `codex`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import join, normpath
from typing import Final

import anyio

from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import NativeCall, Outcome, PathAccess
from sandboxes.sandbox_spec import WORKSPACE
from supervisor.workers.codex_launch import HELPER_SECONDS
from supervisor.workers.codex_shell_words import line_given_to_shell
from supervisor.workers.native_codex import native_call
from supervisor.workers.worker import NativeMediation, NativeVerdict, WorkerEvent

DECISION_TIMEOUT_S: Final = HELPER_SECONDS - 10.0
"""Ends before the helper's time does, so that the refusal says why."""
FINISH_TIMEOUT_S: Final = 60.0
"""The end of a call may wait for a commit of what it changed."""
ITEM_TIMEOUT_S: Final = 60.0
"""An approval of a patch names no paths; they stand in an item sent before it, which
may wait behind `FINISH_TIMEOUT_S`."""
MAX_RESULT_CHARS: Final = 65_536
"""The bridge cuts results to 4 KiB with their digest; nothing larger than this is carried there."""
MAX_CALLS: Final = 100_000

UNAVAILABLE: Final = (
    "MX_AGENT_BRIDGE_UNAVAILABLE: the call was not decided, so it was refused. "
    "Nothing was executed; asking again later may help."
)
REUSED: Final = (
    "MX_AGENT_INVALID_ARGUMENTS: this call's id was used before for something else, so the call was refused. "
    "Make the call again under a new id."
)
UNREADABLE: Final = "MX_AGENT_INVALID_ARGUMENTS: the call cannot be read, so it was refused."

logger = logging.getLogger(__name__)


@dataclass
class _Call:
    """One native call: what was asked under its id, the verdict once there is one, and whether its end was reported."""

    native: NativeCall
    thread: str | None
    decided: anyio.Event = field(default_factory=anyio.Event)
    verdict: NativeVerdict = field(default_factory=lambda: NativeVerdict("", False, UNAVAILABLE))
    ended: bool = False


class CodexMediation:
    """The native calls of one worker. `matrix` are the names of its Matrix tools."""

    def __init__(
        self,
        mediation: NativeMediation,
        matrix: frozenset[str],
        emit: Callable[[WorkerEvent], None],
        decision_timeout_s: float = DECISION_TIMEOUT_S,
        item_timeout_s: float = ITEM_TIMEOUT_S,
    ) -> None:
        self._mediation = mediation
        self._matrix = matrix
        self._emit = emit
        self._decision_timeout_s = decision_timeout_s
        self._item_timeout_s = item_timeout_s
        self._calls: dict[str, _Call] = {}
        self._patches: dict[str, tuple[PathAccess, ...]] = {}
        self._patch_arrived = anyio.Event()
        self._finishing = anyio.Lock()
        self._call_ended = anyio.Event()

    # before a call

    async def answer_hook(self, body: JsonObject) -> NativeVerdict:
        """The first line: what stands on the hook's standard input. Only `PreToolUse` is known."""
        tool, arguments, call = body.get("tool_name"), body.get("tool_input"), body.get("tool_use_id")
        if body.get("hook_event_name") != "PreToolUse" or not isinstance(arguments, dict):
            return NativeVerdict("", False, UNREADABLE)
        if not (isinstance(tool, str) and isinstance(call, str) and tool and call):
            return NativeVerdict("", False, UNREADABLE)
        if tool in self._matrix:
            return NativeVerdict(call, True, "")
        cwd, agent = body.get("cwd"), body.get("agent_id")
        native = native_call(tool, arguments, cwd if isinstance(cwd, str) else None)
        return await self.decide(native, call, agent if isinstance(agent, str) else None)

    async def approve_command(self, params: JsonObject, agent: str | None) -> bool:
        """The second line for a command. It decides alone where no hook has asked."""
        call, line = str(params.get("itemId", "")), line_given_to_shell(str(params.get("command", "")))
        known = self._calls.get(call)
        widened = params.get("additionalPermissions") or params.get("networkApprovalContext")
        if line is None or not call or widened or params.get("kind", "command") != "command":
            return await self._refuse(call)
        if known is None:
            cwd = params.get("cwd")
            native = native_call("Bash", {"command": line}, cwd if isinstance(cwd, str) else None)
            return (await self.decide(native, call, agent)).allowed
        if known.native.command != line:
            return await self._refuse(call)
        await known.decided.wait()
        return known.verdict.allowed and not known.ended

    async def approve_patch(self, params: JsonObject, agent: str | None) -> bool:
        """The second line for a patch: the paths as the program has resolved them must be those the hook asked about,
        or they are asked about as a call of their own (a patch in a command with a working directory, say)."""
        call = str(params.get("itemId", ""))
        paths = await self._paths_of_patch(call)
        known = self._calls.get(call)
        if not paths or params.get("grantRoot"):
            return await self._refuse(call)
        native = NativeCall("file.write", "apply_patch", _shown(paths), paths, cwd=str(WORKSPACE))
        if known is None:
            return (await self.decide(native, call, agent)).allowed
        await known.decided.wait()
        if not known.verdict.allowed or known.ended:
            return False
        if _resolved(paths, None) <= _resolved(known.native.paths, known.native.cwd):
            return True
        return (await self.decide(native, f"{call}#paths", agent)).allowed

    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        """One question for each id: further askers get its answer, and none where they ask something else."""
        known = self._calls.get(worker_call)
        if known is not None:
            if known.ended or not _same(known.native, native):
                return NativeVerdict(known.verdict.call, False, REUSED)
            await known.decided.wait()
            return known.verdict
        if len(self._calls) >= MAX_CALLS:
            return NativeVerdict("", False, UNAVAILABLE)
        call = self._calls[worker_call] = _Call(native, agent)
        try:
            call.verdict = await self._ask(native, worker_call, agent)
        finally:
            call.decided.set()
        if call.verdict.allowed:
            self._emit(WorkerEvent("native.started", {"tool": native.tool, "call": worker_call}))
        return call.verdict

    async def _ask(self, native: NativeCall, worker_call: str, agent: str | None) -> NativeVerdict:
        """Every fault of the mediation, also an answer that is no verdict, becomes a refusal here. What ended before is
        recorded first, so that a change belongs to the call that made it."""
        try:
            with anyio.fail_after(self._decision_timeout_s):
                async with self._finishing:
                    pass
                verdict = await self._mediation.decide(native, worker_call, agent)
            if _is_verdict(verdict):
                return verdict
            logger.error("the mediation answered with something that is no verdict")
        except Exception:  # fail closed; the text of a foreign exception goes to the log alone
            logger.exception("a native call could not be decided")
        return NativeVerdict("", False, UNAVAILABLE)

    async def _refuse(self, worker_call: str) -> bool:
        """A second line that shows something else than the first: the call does not run, and its record says so."""
        await self.end_call(worker_call, "denied", REUSED, None)
        return False

    async def _paths_of_patch(self, call: str) -> tuple[PathAccess, ...]:
        with anyio.move_on_after(self._item_timeout_s):
            while call not in self._patches:
                await self._patch_arrived.wait()
        return self._patches.get(call, ())

    # after a call

    def item_started(self, item: JsonObject) -> None:
        """Keep the paths of a patch for its approval."""
        if item.get("type") == "fileChange":
            self._patches[str(item.get("id", ""))] = _changed_paths(item)
            self._patch_arrived.set()
            self._patch_arrived = anyio.Event()

    async def item_completed(self, item: JsonObject) -> None:
        """Report how a command, a patch, an image or a spawn has ended. Other items are passed over."""
        call = str(item.get("id", ""))
        kind, status = item.get("type"), item.get("status")
        duration = item.get("durationMs")
        duration_ms = float(duration) if isinstance(duration, int | float) else None
        if kind == "commandExecution":
            ran = item.get("exitCode") is not None or status == "completed"
            outcome: Outcome = "denied" if status == "declined" else "ok" if ran else "failed"
            await self.end_call(call, outcome, _command_result(item), duration_ms)
        elif kind in ("fileChange", "collabAgentToolCall"):
            await self._end_with_paths(call, _OUTCOMES.get(str(status), "unknown"), _changes_result(item), duration_ms)
        elif kind in ("imageView", "subAgentActivity"):
            await self.end_call(call, "ok", "", duration_ms)

    async def _end_with_paths(self, call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        self._patches.pop(call, None)
        await self.end_call(f"{call}#paths", outcome, result, duration_ms)
        await self.end_call(call, outcome, result, duration_ms)

    async def end_call(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        """Report the end of an allowed call, once; unknown, refused and already ended calls are passed over."""
        call = self._calls.get(worker_call)
        if call is None or call.ended or not call.verdict.allowed:
            return
        call.ended = True
        self._emit(WorkerEvent("native.ended", {"tool": call.native.tool, "call": worker_call}))
        try:
            with anyio.fail_after(FINISH_TIMEOUT_S):
                async with self._finishing:
                    await self._mediation.finish(worker_call, outcome, result[:MAX_RESULT_CHARS], duration_ms)
        except Exception:  # the tool has run; what the bridge cannot record now it records as unknown
            logger.exception("the end of a native call could not be reported")
        self._call_ended.set()
        self._call_ended = anyio.Event()

    async def wait_until_ended(self) -> None:
        """Wait until every allowed call has reported its end. The caller bounds it."""
        while self._open_calls():
            await self._call_ended.wait()

    def _open_calls(self) -> frozenset[str]:
        """Ids of the allowed calls whose end nobody has reported."""
        return frozenset(name for name, call in self._calls.items() if call.verdict.allowed and not call.ended)

    async def end_open_calls(self, outcome: Outcome) -> None:
        """Close the record of every call whose end nobody reported: nothing of the prompt runs any more."""
        for worker_call in self._open_calls():
            await self.end_call(worker_call, outcome, "", None)


_OUTCOMES: Final[Mapping[str, Outcome]] = {"completed": "ok", "failed": "failed", "declined": "denied"}


def _is_verdict(answer: object) -> bool:
    """Whether the mediation kept to its type: only `True` itself lets a call run."""
    return isinstance(answer, NativeVerdict) and isinstance(answer.allowed, bool)


def _same(asked: NativeCall, again: NativeCall) -> bool:
    """Whether both are the same call; where it starts may be told by one line and not by the other."""
    return (asked.op, asked.tool, asked.payload, asked.paths, asked.command) == (
        (again.op, again.tool, again.payload, again.paths, again.command)
    )


def _changed_paths(item: JsonObject) -> tuple[PathAccess, ...]:
    """Every path of a `fileChange` item, absolute as the program resolved them; empty where one cannot be read."""
    changes, paths = item.get("changes"), []
    for change in changes if isinstance(changes, list) else [None]:
        kind = change.get("kind") if isinstance(change, dict) else None
        path = change.get("path") if isinstance(change, dict) else None
        if not isinstance(path, str) or not path or not isinstance(kind, dict):
            return ()
        paths.append(PathAccess(path, "write"))
        moved = kind.get("move_path")
        if moved is not None:
            paths.append(PathAccess(str(moved), "write"))
    return tuple(paths)


def _resolved(paths: tuple[PathAccess, ...], cwd: str | None) -> frozenset[str]:
    return frozenset(normpath(join(cwd or str(WORKSPACE), path.shown)) for path in paths if path.access == "write")


def _shown(paths: tuple[PathAccess, ...]) -> JsonObject:
    shown: list[JsonValue] = [path.shown for path in paths]
    return {"paths": shown}


def _command_result(item: JsonObject) -> str:
    output, code = str(item.get("aggregatedOutput") or ""), item.get("exitCode")
    return output if code in (0, None) else f"[exit code {code}]\n{output}"


def _changes_result(item: JsonObject) -> str:
    return "\n".join(path.shown for path in _changed_paths(item)) if item.get("type") == "fileChange" else ""
