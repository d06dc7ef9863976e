"""Puts `NativeMediation` before and after every tool of Claude Code: SDK hooks first, `can_use_tool` second.

The order in the program is hook, its own rules, `can_use_tool`, tool. Sub-agents pass here too. Matrix tools pass
without a question, since the bridge judges them in their handler. Decides nothing: an answer that does not come in
time, is no verdict, or was given for other arguments, is a refusal. Above: `claude_code`; below: the mediation.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import anyio
from claude_agent_sdk import (
    HookContext,
    HookInput,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
)
from claude_agent_sdk.types import HookEvent, HookJSONOutput

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import Outcome
from supervisor.workers.native_claude import native_call, result_text
from supervisor.workers.worker import NativeMediation, NativeVerdict, WorkerEvent

DECISION_TIMEOUT_S: Final = 600.0
"""A person may be asked, so as long as a whole prompt may take; the approval's own deadline is shorter."""
HOOK_MARGIN_S: Final = 10.0
"""The worker's clock for a hook runs longer than ours, so that the refusal says why."""
FINISH_TIMEOUT_S: Final = 10.0
MAX_RESULT_CHARS: Final = 65_536
"""The bridge cuts results to 4 KiB with their digest; nothing larger than this is carried there."""
MAX_CALLS: Final = 100_000
UNAVAILABLE: Final = (
    "MX_AGENT_BRIDGE_UNAVAILABLE: the call was not decided, so it was refused. "
    "Nothing was executed; asking again later may help."
)
REUSED: Final = (
    "MX_AGENT_INVALID_ARGUMENTS: this call's id was used before with other arguments, so the call was refused. "
    "Make the call again under a new id."
)

logger = logging.getLogger(__name__)


@dataclass
class _Call:
    """One native call of the worker: what was decided for exactly these arguments, and whether its end was reported."""

    tool: str
    digest: str
    decided: anyio.Event = field(default_factory=anyio.Event)
    verdict: NativeVerdict = field(default_factory=lambda: NativeVerdict("", False, UNAVAILABLE))
    ended: bool = False


@dataclass
class ClaudeMediation:
    """The hooks and the permission callback of one worker. `matrix` are the surface names of its Matrix tools."""

    mediation: NativeMediation
    matrix: frozenset[str]
    decision_timeout_s: float = DECISION_TIMEOUT_S
    emit: Callable[[WorkerEvent], None] = lambda _event: None  # set by the session that shows events
    _calls: dict[str, _Call] = field(default_factory=dict)

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """What the SDK registers. Only `on_failure="block"` makes a hook that fails, or does not answer, a refusal."""
        before = HookMatcher(
            hooks=[self.before_tool], timeout=self.decision_timeout_s + HOOK_MARGIN_S, on_failure="block"
        )
        after = HookMatcher(hooks=[self.after_tool], timeout=FINISH_TIMEOUT_S + HOOK_MARGIN_S)
        return {"PreToolUse": [before], "PostToolUse": [after], "PostToolUseFailure": [after]}

    async def before_tool(self, data: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        """The first line: every tool of the main thread and of every sub-agent arrives here before it runs."""
        call: Mapping[str, Any] = data
        if call["tool_name"] in self.matrix:
            return _allow()
        verdict = await self._decide(
            call["tool_name"], call["tool_input"], call["tool_use_id"], call.get("agent_id"), call.get("cwd")
        )
        return _allow() if verdict.allowed else _deny(verdict.message)

    async def can_use_tool(
        self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        """The second line, with the first one's verdict; it decides alone where the hook did not run."""
        if tool in self.matrix:
            return PermissionResultAllow()
        verdict = await self._decide(tool, arguments, context.tool_use_id or "", context.agent_id, None)
        return PermissionResultAllow() if verdict.allowed else PermissionResultDeny(message=verdict.message)

    async def after_tool(self, data: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        """Reports how a call has ended, with its result as text."""
        call: Mapping[str, Any] = data
        failed = call["hook_event_name"] == "PostToolUseFailure"
        result = call.get("error") if failed else call.get("tool_response")
        await self.end_call(call["tool_use_id"], _outcome(call, failed), result, call.get("duration_ms"))
        return {}

    async def end_call(self, worker_call: str, outcome: Outcome, result: object, duration_ms: float | None) -> None:
        """Report the end of an allowed call, once; unknown, refused and already ended calls are passed over."""
        call = self._calls.get(worker_call)
        if call is None or call.ended or not call.verdict.allowed:
            return
        call.ended = True
        self.emit(WorkerEvent("native.ended", {"tool": call.tool, "call": worker_call}))
        try:
            with anyio.fail_after(FINISH_TIMEOUT_S):
                text = result_text(result)[:MAX_RESULT_CHARS]
                await self.mediation.finish(worker_call, outcome, text, duration_ms)
        except Exception:  # the tool has run; what the bridge cannot record now it records as unknown
            logger.exception("the end of a native call could not be reported")

    async def settle(self, use: ToolUseBlock, result: ToolResultBlock, outcome: Outcome) -> None:
        """Take a result that the model gets as the end of its call, where no hook has reported one.

        A call that the program refused by itself, before any hook, is judged here so that it has its record too.
        """
        if use.name in self.matrix:
            return
        if use.id not in self._calls:
            await self._decide(use.name, use.input, use.id, None, None)
        await self.end_call(use.id, outcome, result.content, None)

    async def end_open_calls(self, outcome: Outcome) -> None:
        """Close the record of every call whose end nobody reported: the turn was interrupted or the worker died."""
        for worker_call in list(self._calls):
            await self.end_call(worker_call, outcome, "", None)

    async def _decide(
        self, tool: str, arguments: JsonObject, worker_call: str, agent: str | None, cwd: str | None
    ) -> NativeVerdict:
        """One question for each id; both lines get its answer, and other arguments under the same id get none."""
        digest = sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()
        known = self._calls.get(worker_call)
        if known is not None:
            return await _verdict_again(known, digest)
        if len(self._calls) >= MAX_CALLS:
            return NativeVerdict("", False, UNAVAILABLE)
        call = self._calls[worker_call] = _Call(tool, digest)
        try:
            call.verdict = await self._ask(tool, arguments, worker_call, agent, cwd)
        finally:
            call.decided.set()
        if call.verdict.allowed:
            self.emit(WorkerEvent("native.started", {"tool": tool, "call": worker_call}))
        return call.verdict

    async def _ask(
        self, tool: str, arguments: JsonObject, worker_call: str, agent: str | None, cwd: str | None
    ) -> NativeVerdict:
        """Every fault of the mediation, also an answer that is no verdict, becomes a refusal here."""
        try:
            with anyio.fail_after(self.decision_timeout_s):
                answer: object = await self.mediation.decide(native_call(tool, arguments, cwd), worker_call, agent)
            if isinstance(answer, NativeVerdict):
                return NativeVerdict(answer.call, answer.allowed is True, answer.message)
            logger.error("the mediation answered with something that is no verdict")
        except Exception:  # fail closed; the text of a foreign exception goes to the log alone
            logger.exception("a native call could not be decided")
        return NativeVerdict("", False, UNAVAILABLE)


def _outcome(call: Mapping[str, Any], failed: bool) -> Outcome:
    """A command that ran and said no is a call that did what it was asked; the same on every kind of worker."""
    if failed and call.get("is_interrupt"):
        return "cancelled"
    ran = call.get("tool_name") == "Bash" and str(call.get("error", "")).startswith("Exit code ")
    return "failed" if failed and not ran else "ok"


async def _verdict_again(call: _Call, digest: str) -> NativeVerdict:
    """The verdict of a call that was asked about before. The wait ends, since the question before it is bounded."""
    if call.digest != digest or call.ended:
        return NativeVerdict(call.verdict.call, False, REUSED)
    await call.decided.wait()
    return call.verdict


def _allow() -> HookJSONOutput:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}


def _deny(message: str) -> HookJSONOutput:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": message or UNAVAILABLE,
        }
    }
