"""When a prompt is over and how it ended, from the messages alone (as the real program sends them)."""

from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage, ResultMessage, StreamEvent, SystemMessage, TextBlock, ToolUseBlock

from supervisor.workers.claude_code_turn import LARGEST_USE, LONGEST_LINE, MAX_OPEN_USES, Turn
from supervisor.workers.worker import WorkerEvent


def _see(turn: Turn, subtype: str, **data: Any) -> list[WorkerEvent]:
    return list(turn.observe(SystemMessage(subtype, data)))


def _result(turn: Turn, text: str = "Done.", **more: Any) -> None:
    shape: dict[str, Any] = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False}
    list(turn.observe(ResultMessage(**{**shape, "num_turns": 1, "session_id": "s", "result": text, **more})))


def _over(turn: Turn) -> bool:
    return turn.over


def _tasks(turn: Turn, **tasks: str) -> list[WorkerEvent]:
    return _see(
        turn, "background_tasks_changed", tasks=[{"task_id": name, "task_type": kind} for name, kind in tasks.items()]
    )


def test_a_result_is_the_end_only_when_the_session_is_idle() -> None:
    turn = Turn()
    _see(turn, "session_state_changed", state="running")
    _result(turn)
    assert not _over(turn)
    _see(turn, "session_state_changed", state="idle")
    assert _over(turn)
    assert turn.outcome().ok


def test_a_sub_agent_or_a_command_in_the_background_keeps_the_prompt_open() -> None:
    for kind in ("local_agent", "local_bash"):
        turn = Turn()
        _tasks(turn, t1=kind)
        _result(turn)
        _see(turn, "session_state_changed", state="idle")
        assert not _over(turn)
        assert turn.only_commands_left is (kind == "local_bash")


def test_the_end_of_a_background_task_owes_one_more_turn() -> None:
    turn = Turn()
    _tasks(turn, t1="local_bash")
    _result(turn, "Started.")
    _see(turn, "session_state_changed", state="idle")
    _tasks(turn)
    assert not _over(turn)
    _see(turn, "session_state_changed", state="running")
    _result(turn, "Seen.")
    assert not _over(turn)
    _see(turn, "session_state_changed", state="idle")
    assert _over(turn)
    assert turn.outcome().text == "Seen."


def test_an_interrupted_prompt_owes_nothing_and_is_cancelled() -> None:
    turn = Turn(interrupted=True)
    _tasks(turn, t1="local_agent")
    _result(turn, is_error=True, subtype="error_during_execution")
    _see(turn, "session_state_changed", state="idle")
    assert not _over(turn)
    assert _tasks(turn) == [WorkerEvent("agent.ended", {"agent": "t1"})]
    assert _over(turn)
    assert turn.outcome().error == "MX_AGENT_CANCELLED"


@pytest.mark.parametrize(("status", "hopeless"), [(401, True), (403, True), (429, False), (529, False), (None, False)])
def test_only_a_refused_key_is_hopeless(status: int | None, *, hopeless: bool) -> None:
    turn = Turn()
    (event,) = _see(turn, "api_retry", attempt=1, error="some_reason", error_status=status)
    assert (event.type, event.data["attempt"]) == ("retry", 1)
    assert bool(turn.refused) is hopeless


def test_whose_failure_it_was_is_told_apart() -> None:
    provider, worker = Turn(), Turn()
    _result(provider, "API Error: overloaded", is_error=True, api_error_status=529)
    _result(worker, "", is_error=True, subtype="error_max_turns", errors=["Reached the maximum."])
    assert (provider.outcome().error, provider.outcome().message) == (
        "MX_AGENT_INFERENCE_FAILED",
        "API Error: overloaded",
    )
    assert (worker.outcome().error, worker.outcome().message) == ("MX_AGENT_WORKER_EXITED", "Reached the maximum.")


def test_an_answer_after_a_failure_clears_it() -> None:
    turn = Turn()
    list(turn.observe(AssistantMessage([TextBlock("API Error")], "<synthetic>", error="server_error")))
    list(turn.observe(AssistantMessage([TextBlock("Fine.")], "model")))
    _result(turn, "", is_error=True, subtype="error_during_execution", errors=["odd"])
    assert turn.outcome().error == "MX_AGENT_WORKER_EXITED"


def test_text_is_shown_in_whole_lines_and_that_of_a_sub_agent_is_not() -> None:
    turn = Turn()

    def delta(text: str, parent: str | None = None) -> list[WorkerEvent]:
        event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
        return list(turn.observe(StreamEvent("u", "s", event, parent)))

    assert delta("One") == []
    assert delta(" line.\nAnd") == [WorkerEvent("text", {"text": "One line.\n"})]
    assert delta("secret\n", parent="toolu_1") == []
    assert list(turn.observe(StreamEvent("u", "s", {"type": "content_block_stop"}))) == [
        WorkerEvent("text", {"text": "And"})
    ]


def test_a_line_without_end_is_shown_in_pieces_and_not_gathered() -> None:
    turn = Turn()
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * LONGEST_LINE}}
    shown = [list(turn.observe(StreamEvent("u", "s", event))) for _ in range(4)]
    assert [len(events) for events in shown] == [0, 1, 0, 1]


def test_of_a_flood_of_calls_without_results_the_last_ones_are_kept() -> None:
    turn = Turn()
    for number in range(MAX_OPEN_USES + 3):
        list(turn.observe(AssistantMessage([ToolUseBlock(f"t{number}", "Bash", {})], "model")))
    list(turn.observe(AssistantMessage([ToolUseBlock("huge", "Bash", {"command": "x" * LARGEST_USE})], "model")))
    assert len(turn.uses) == MAX_OPEN_USES
    assert "t2" not in turn.uses
    assert "huge" not in turn.uses


def test_the_surface_names_tools_as_the_model_sees_them() -> None:
    (event,) = _see(Turn(), "init", session_id="s", tools=["Task", "Bash", "mcp__matrix__a__b", "mcp__evil__x"])
    assert event.data == {"matrix": ["mcp__matrix__a__b"], "native": ["Agent", "Bash", "mcp__evil__x"]}
