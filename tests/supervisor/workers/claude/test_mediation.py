"""The two lines in front of a native tool, without a worker: one question an id, a refusal for every fault."""

from typing import Any

import anyio
import pytest
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from bridge.contract.tool_invocation import NativeCall
from supervisor.workers.claude_code_mediation import ClaudeMediation
from supervisor.workers.worker import NativeVerdict
from tests.supervisor.workers.claude.started_worker import STOCK_ON_SURFACE
from tests.supervisor.workers.driven import REFUSAL, RecordingMediation

pytestmark = pytest.mark.anyio


def _gate(mediation: RecordingMediation) -> ClaudeMediation:
    return ClaudeMediation(mediation, frozenset({STOCK_ON_SURFACE}), decision_timeout_s=0.05)


async def _hook(gate: ClaudeMediation, tool: str, arguments: dict[str, Any], call: str = "t1") -> tuple[str, str]:
    data: Any = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments, "tool_use_id": call}
    answer: Any = await gate.before_tool(data, call, {"signal": None})
    output = answer["hookSpecificOutput"]
    return output["permissionDecision"], output.get("permissionDecisionReason", "")


async def _second_line(gate: ClaudeMediation, tool: str, arguments: dict[str, Any], call: str = "t1") -> bool:
    answer = await gate.can_use_tool(tool, arguments, ToolPermissionContext(tool_use_id=call))
    assert isinstance(answer, PermissionResultAllow | PermissionResultDeny)
    return isinstance(answer, PermissionResultAllow)


async def test_both_lines_have_one_verdict_from_one_question() -> None:
    for allowed in (True, False):
        mediation = RecordingMediation(allows=lambda _call, allowed=allowed: allowed)  # type: ignore[misc]  # bound early
        gate = _gate(mediation)
        decision, reason = await _hook(gate, "Bash", {"command": "ls"})
        assert decision == ("allow" if allowed else "deny")
        assert reason == ("" if allowed else REFUSAL)
        assert await _second_line(gate, "Bash", {"command": "ls"}) is allowed
        assert len(mediation.asked) == 1


async def test_other_arguments_under_a_known_id_are_refused_by_both_lines() -> None:
    gate = _gate(RecordingMediation())
    await _hook(gate, "Bash", {"command": "ls"})
    assert not await _second_line(gate, "Bash", {"command": "rm -r ."})
    assert (await _hook(gate, "Bash", {"command": "rm -r ."}))[0] == "deny"
    assert (await _hook(gate, "Write", {"file_path": "a"}))[0] == "deny"


async def test_a_call_that_has_ended_is_not_allowed_again() -> None:
    gate = _gate(RecordingMediation())
    await _hook(gate, "Bash", {"command": "ls"})
    await gate.end_call("t1", "ok", "", 1.0)
    assert (await _hook(gate, "Bash", {"command": "ls"}))[0] == "deny"


async def test_two_calls_at_once_under_one_id_get_one_answer_and_no_second_way_through() -> None:
    class Slow(RecordingMediation):
        async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
            await anyio.lowlevel.checkpoint()
            return await super().decide(native, worker_call, agent)

    mediation = Slow()
    gate = _gate(mediation)
    decisions: dict[str, str] = {}

    async def ask(name: str, command: str) -> None:
        decisions[name] = (await _hook(gate, "Bash", {"command": command}))[0]

    async with anyio.create_task_group() as tasks:
        for name, command in (("first", "ls"), ("same", "ls"), ("other", "rm -r .")):
            tasks.start_soon(ask, name, command)
    assert decisions == {"first": "allow", "same": "allow", "other": "deny"}
    assert len(mediation.asked) == 1


async def test_a_matrix_tool_passes_and_a_tool_that_only_looks_like_one_is_judged() -> None:
    mediation = RecordingMediation(allows=lambda _call: False)
    gate = _gate(mediation)
    assert (await _hook(gate, STOCK_ON_SURFACE, {}))[0] == "allow"
    assert (await _hook(gate, "mcp__matrix__unknown", {}, "t2"))[0] == "deny"
    assert (await _hook(gate, "mcp__other__tool", {}, "t3"))[0] == "deny"
    assert mediation.ops() == ["other.mcp__matrix__unknown", "other.mcp__other__tool"]


async def test_only_an_allowed_call_has_an_end_and_only_one() -> None:
    mediation = RecordingMediation(allows=lambda call: call.command == "ls")
    gate = _gate(mediation)
    await _hook(gate, "Bash", {"command": "ls"}, "t1")
    await _hook(gate, "Bash", {"command": "rm"}, "t2")
    for call in ("t1", "t1", "t2", "never-seen"):
        await gate.end_call(call, "ok", {"stdout": "x"}, 5.0)
    await gate.end_open_calls("unknown")
    assert mediation.ended == {"t1": ("ok", "x")}


def test_the_hook_that_decides_blocks_when_it_fails() -> None:
    hooks = _gate(RecordingMediation()).hooks()
    (before,) = hooks["PreToolUse"]
    assert (before.matcher, before.on_failure) == (None, "block")
    assert before.timeout is not None
    assert set(hooks) == {"PreToolUse", "PostToolUse", "PostToolUseFailure"}
