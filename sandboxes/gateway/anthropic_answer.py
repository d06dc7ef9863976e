"""Reads an answer in Anthropic's Messages protocol: usage, tool calls, and the refusal in a call's place. Pure.

A block that is no text and no thinking counts as a call, so that a new kind of block cannot pass unseen. Tried with
the worker's own client: an answer whose only call was replaced ends its turn.
"""

import json
from typing import Final

from sandboxes.gateway.json_types import JsonObject, JsonValue, as_count, as_list, as_object, as_text
from sandboxes.gateway.refusal import error_type
from sandboxes.gateway.sse import SseEvent, encode
from sandboxes.gateway.tool_call import AnswerFacts, Step, ToolCall, Verdict, shown_arguments

_HARMLESS: Final = frozenset({"text", "thinking", "redacted_thinking"})
_INPUTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicAnswer:
    """One answer. See `AnswerReader`."""

    def __init__(self) -> None:
        self.facts = AnswerFacts()
        self._held: list[bytes] = []
        self._behind: list[SseEvent] = []
        self._block: JsonObject = {}
        self._index: JsonValue = None
        self._partial: list[str] = []
        self._kept_calls = 0
        self._refused_calls = 0

    def step(self, event: SseEvent) -> Step:
        """Take the next event of the stream."""
        data = event.data
        kind = as_text(data.get("type")) if data is not None else ""
        if data is None or not kind:
            return self._pass(event)
        self._learn(kind, data)
        if kind == "content_block_start" and not self._held:
            return self._start(event, data)
        if kind == "error":
            self._drop_held()
            return Step(event.raw)
        if not self._held:
            return Step(self._mended(event, kind, data))
        return self._hold(event, kind, data)

    def settle(self, verdict: Verdict) -> bytes:
        """Release the held block, or write the refusal as a text block with the same index."""
        held, self._held = b"".join(self._held), []
        if verdict.allow:
            self._kept_calls += 1
            return held
        self._refused_calls += 1
        index = self._index
        return (
            encode("content_block_start", _on(index, "content_block_start", content_block={"type": "text", "text": ""}))
            + encode(
                "content_block_delta",
                _on(index, "content_block_delta", delta={"type": "text_delta", "text": verdict.message}),
            )
            + encode("content_block_stop", _on(index, "content_block_stop"))
        )

    def waiting(self) -> list[SseEvent]:
        """Take what stood behind the settled call and belongs to another block."""
        behind, self._behind = self._behind, []
        return behind

    def read_whole(self, answer: JsonObject) -> list[tuple[int, ToolCall]]:
        """The calls of an answer that is not streamed."""
        self.facts.model = as_text(answer.get("model")) or None
        self._learn_usage(as_object(answer.get("usage")))
        blocks = [as_object(block) for block in as_list(answer.get("content"))]
        return [(place, _call(block)) for place, block in enumerate(blocks) if block.get("type") not in _HARMLESS]

    def replace_whole(self, answer: JsonObject, refusals: dict[int, str]) -> JsonObject:
        """The answer with refusals as text blocks; it ends the turn if no call is left."""
        content: list[JsonValue] = [
            {"type": "text", "text": refusals[place]} if place in refusals else block
            for place, block in enumerate(as_list(answer.get("content")))
        ]
        left = any(as_object(block).get("type") not in _HARMLESS for block in content)
        return {**answer, "content": content, "stop_reason": answer.get("stop_reason") if left else "end_turn"}

    def failure(self, message: str, status: int) -> bytes:
        """The protocol's `error` event."""
        error: JsonObject = {"type": error_type("claude", status), "message": message}
        return encode("error", {"type": "error", "error": error})

    def keep_alive(self) -> bytes:
        """The protocol's `ping` event."""
        return encode("ping", {"type": "ping"})

    def _pass(self, event: SseEvent) -> Step:
        if self._held:
            self._held.append(event.raw)
            return Step()
        return Step(event.raw)

    def _drop_held(self) -> None:
        self._refused_calls += bool(self._held)
        self._held.clear()
        self._behind.clear()

    def _start(self, event: SseEvent, data: JsonObject) -> Step:
        block = as_object(data.get("content_block"))
        if block.get("type") in _HARMLESS:
            return Step(event.raw)
        self._held, self._block, self._index, self._partial = [event.raw], block, data.get("index"), []
        return Step()

    def _hold(self, event: SseEvent, kind: str, data: JsonObject) -> Step:
        if kind in ("message_delta", "message_stop"):  # the block never ended: nobody may act on half a call
            self._drop_held()
            return Step(self._mended(event, kind, data))
        if "index" in data and data["index"] != self._index:
            self._behind.append(event)
            return Step()
        self._held.append(event.raw)
        if kind == "content_block_delta":
            self._partial.append(as_text(as_object(data.get("delta")).get("partial_json")))
        if kind != "content_block_stop":
            return Step()
        return Step(call=_call(self._block, "".join(self._partial)))

    def _mended(self, event: SseEvent, kind: str, data: JsonObject) -> bytes:
        """The event as it is, but for the stop reason of an answer that lost its only calls."""
        delta = as_object(data.get("delta"))
        lost_all = self._refused_calls and not self._kept_calls
        if kind == "message_delta" and lost_all and delta.get("stop_reason") == "tool_use":
            return encode(kind, {**data, "delta": {**delta, "stop_reason": "end_turn"}})
        return event.raw

    def _learn(self, kind: str, data: JsonObject) -> None:
        if kind == "message_start":
            message = as_object(data.get("message"))
            self.facts.model = as_text(message.get("model")) or None
            self._learn_usage(as_object(message.get("usage")))
        elif kind == "message_delta":
            self._learn_usage(as_object(data.get("usage")))
        elif kind == "message_stop":
            self.facts.finished = True
        elif kind == "error":
            self.facts.error = as_text(as_object(data.get("error")).get("message")) or "error"

    def _learn_usage(self, usage: JsonObject) -> None:
        """Counts are cumulative in this protocol: a later one replaces an earlier one."""
        if any(name in usage for name in _INPUTS):
            self.facts.usage.input = max(self.facts.usage.input, sum(as_count(usage.get(name)) for name in _INPUTS))
        self.facts.usage.output = max(self.facts.usage.output, as_count(usage.get("output_tokens")))


def _on(index: JsonValue, kind: str, **fields: JsonValue) -> JsonObject:
    return {"type": kind, "index": index, **fields}


def _call(block: JsonObject, streamed: str = "") -> ToolCall:
    tool = as_text(block.get("name")) or as_text(block.get("type")) or "unknown"
    given = block.get("input")
    return ToolCall(as_text(block.get("id")), tool, shown_arguments(streamed or (given or json.dumps({}))))
