"""Answers pass unchanged when every call is allowed, however cut; a refused call never reaches the worker."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxes.gateway.answer_judge import AnswerIdleError, pass_stream, pass_whole
from sandboxes.gateway.anthropic_answer import AnthropicAnswer
from sandboxes.gateway.openai_answer import OpenAiAnswer
from sandboxes.gateway.script import anthropic_wire, openai_wire
from sandboxes.gateway.script.model_turn import ModelTurn, WireCall
from sandboxes.gateway.sse import SseSplitter
from sandboxes.gateway.tool_call import AnswerReader, ToolCall, Verdict

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
calls = st.builds(
    lambda number, name, arguments: WireCall(f"call_{number}", name, arguments),
    st.integers(0, 10**6),
    st.sampled_from(["Bash", "Read", "mcp__matrix__matrix_invoke"]),
    st.dictionaries(text, text, max_size=3),
)
turns = st.builds(ModelTurn, text, st.lists(calls, max_size=3, unique_by=lambda call: call.id).map(tuple))
cuts = st.lists(st.integers(1, 400), max_size=8)

WIRES = [(AnthropicAnswer, anthropic_wire.stream), (OpenAiAnswer, openai_wire.stream)]


def passed(data: bytes, sizes: list[int], reader: AnswerReader, refuse: frozenset[str]) -> tuple[bytes, list[ToolCall]]:
    """What the worker sees of an answer that comes in pieces of these sizes, and the calls that were reported."""
    seen: list[ToolCall] = []
    sent = bytearray()

    async def source() -> AsyncIterator[bytes]:
        rest = data
        for size in sizes:
            piece, rest = rest[:size], rest[size:]
            yield piece
        yield rest

    async def on_call(call: ToolCall) -> Verdict:
        assert f'"{call.id}"'.encode() not in sent, "the worker saw a call before it was reported"
        seen.append(call)
        return Verdict(call.id not in refuse, f"no {call.id[:0]}way")

    async def send(piece: bytes) -> None:
        sent.extend(piece)

    async def run() -> None:
        await pass_stream(source(), reader, on_call, send, bytes, 5)

    anyio.run(run)
    return bytes(sent), seen


@pytest.mark.parametrize(("reader", "stream"), WIRES)
@settings(max_examples=50)
@given(turn=turns, sizes=cuts)
def test_an_allowed_answer_is_byte_identical_however_it_is_cut(
    reader, stream, turn: ModelTurn, sizes: list[int]
) -> None:
    data = b"".join(stream(turn, "m", "1"))

    sent, seen = passed(data, sizes, reader(), frozenset())

    assert sent == data
    assert [(call.id, call.tool) for call in seen] == [(call.id, call.name) for call in turn.calls]
    assert [json.loads(call.arguments) for call in seen] == [call.arguments for call in turn.calls]


@pytest.mark.parametrize(("reader", "stream"), WIRES)
@settings(max_examples=50)
@given(turn=turns, sizes=cuts, data=st.data())
def test_a_refused_call_is_replaced_and_the_rest_stays(reader, stream, turn: ModelTurn, sizes: list[int], data) -> None:
    refuse = (
        frozenset(data.draw(st.sets(st.sampled_from([call.id for call in turn.calls])))) if turn.calls else frozenset()
    )

    sent, _ = passed(b"".join(stream(turn, "m", "1")), sizes, reader(), refuse)

    events = [event.data for event in SseSplitter().feed(sent)]
    assert all(event is not None for event in events)
    assert called(events) == [call.id for call in turn.calls if call.id not in refuse]
    assert sent.decode().count("no way") >= len(refuse)
    for refused in refuse:
        assert f'"{refused}"' not in sent.decode()


def called(events: list[Any]) -> list[str]:
    """The ids of the calls that a worker would run."""
    starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
    items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    ids = [block["id"] for block in starts if block["type"] == "tool_use"]
    return ids + [item["call_id"] for item in items if item["type"] != "message"]


CALL = ModelTurn("First.", (WireCall("call_1", "Bash", {"command": "ls"}),))


def test_claude_does_not_wait_for_a_call_that_was_refused() -> None:
    sent, _ = passed(b"".join(anthropic_wire.stream(CALL, "m", "1")), [], AnthropicAnswer(), frozenset({"call_1"}))

    assert b'"stop_reason":"end_turn"' in sent
    assert b"tool_use" not in sent


def test_claude_runs_the_calls_that_are_left() -> None:
    both = ModelTurn("", (*CALL.calls, WireCall("call_2", "Read", {})))

    sent, _ = passed(b"".join(anthropic_wire.stream(both, "m", "1")), [], AnthropicAnswer(), frozenset({"call_1"}))

    assert b'"stop_reason":"tool_use"' in sent


def test_codex_sees_numbers_without_a_gap_and_a_mended_last_event() -> None:
    sent, _ = passed(b"".join(openai_wire.stream(CALL, "m", "1")), [], OpenAiAnswer(), frozenset({"call_1"}))

    events: list[Any] = [event.data for event in SseSplitter().feed(sent)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "message"]


@pytest.mark.parametrize(("reader", "stream"), WIRES)
@settings(max_examples=50)
@given(turn=turns.filter(lambda turn: turn.calls), keep=st.floats(0, 1))
def test_half_a_call_never_reaches_the_worker(reader, stream, turn: ModelTurn, keep: float) -> None:
    data = b"".join(stream(turn, "m", "1"))

    sent, seen = passed(data[: int(len(data) * keep)], [], reader(), frozenset())

    reported = {call.id for call in seen}
    assert {call.id for call in turn.calls if f'"{call.id}"'.encode() in sent} <= reported


def test_calls_that_interleave_are_each_reported() -> None:
    def item(index: int, kind: str) -> bytes:
        call = {"type": "function_call", "id": f"i{index}", "call_id": f"call_{index}", "name": "t", "arguments": "{}"}
        event = {"type": f"response.output_item.{kind}", "output_index": index, "item": call}
        return f"event: x\ndata: {json.dumps(event)}\n\n".encode()

    data = item(0, "added") + item(1, "added") + item(1, "done") + item(0, "done")

    sent, seen = passed(data, [], OpenAiAnswer(), frozenset({"call_1"}))

    assert {call.id for call in seen} == {"call_0", "call_1"}
    assert b"call_1" not in sent


def test_an_unknown_kind_of_block_counts_as_a_call() -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "teleport", "id": "x"}}
    stop = {"type": "content_block_stop", "index": 0}
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in (start, stop))

    sent, seen = passed(data, [], AnthropicAnswer(), frozenset({"x"}))

    assert seen[0].tool == "teleport"
    assert b"teleport" not in sent


@pytest.mark.parametrize(("reader", "stream"), WIRES)
def test_tokens_and_model_are_learned(reader, stream) -> None:
    answer = reader()

    passed(b"".join(stream(CALL, "the-model", "1")), [], answer, frozenset())

    assert (answer.facts.usage.input, answer.facts.usage.output) == (10, 5)
    assert answer.facts.model == "the-model"
    assert answer.facts.finished


@pytest.mark.parametrize(
    ("reader", "whole"), [(AnthropicAnswer, anthropic_wire.whole), (OpenAiAnswer, openai_wire.whole)]
)
async def test_an_answer_in_one_piece_is_judged_too(reader, whole) -> None:
    async def refuse(call: ToolCall) -> Verdict:
        return Verdict(False, f"no {call.tool}")

    async def allow(_: ToolCall) -> Verdict:
        return Verdict(True)

    mended = await pass_whole(whole(CALL, "m", "1"), reader(), refuse)

    assert "call_1" not in json.dumps(mended)
    assert "no Bash" in json.dumps(mended)
    assert await pass_whole(whole(CALL, "m", "1"), reader(), allow) is None


async def test_a_silent_stream_is_given_up() -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"data: {}\n"
        await anyio.sleep_forever()

    async def never(_: ToolCall) -> Verdict:
        raise AssertionError

    async def send(_: bytes) -> None:
        return

    with pytest.raises(AnswerIdleError):
        await pass_stream(source(), AnthropicAnswer(), never, send, bytes, 0.05)
