"""Reads an answer in OpenAI's Responses protocol: usage, tool calls, and the refusal in a call's place. Pure.

An output item that is no message and no reasoning counts as a call, so that a new kind of item cannot pass unseen.
After a refusal the sequence numbers behind it and the items in the final event are mended, so that the stream stays one
that a strict client accepts.
"""

from typing import Final

from sandboxes.gateway.json_types import JsonObject, JsonValue, as_count, as_list, as_object, as_text
from sandboxes.gateway.sse import SseEvent, encode
from sandboxes.gateway.tool_call import AnswerFacts, Step, ToolCall, Verdict, shown_arguments

_HARMLESS: Final = frozenset({"message", "reasoning", "compaction", "context_compaction", "compaction_summary"})
_FINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ARGUMENTS: Final = ("arguments", "input", "action", "operation", "query", "code")


class OpenAiAnswer:
    """One answer. See `AnswerReader`."""

    def __init__(self) -> None:
        self.facts = AnswerFacts()
        self._held: list[SseEvent] = []
        self._behind: list[SseEvent] = []
        self._index: JsonValue = None
        self._refused: dict[str, JsonObject] = {}  # id of the item -> the message in its place
        self._shift = 0
        self._call_id = ""

    def step(self, event: SseEvent) -> Step:
        """Take the next event of the stream."""
        data = event.data
        kind = as_text(data.get("type")) if data is not None else ""
        if data is None or not kind:
            return self._pass(event)
        self._learn(kind, data)
        if kind in _FINAL or kind == "error":  # an item that never ended is dropped: nobody may act on half a call
            self._held.clear()
            self._behind.clear()
            return Step(self._mended(event, data))
        if kind == "response.output_item.done" and not self._held and _is_call(data):
            self._hold_from(event, data)
            return self._complete(data)
        if kind == "response.output_item.added" and not self._held and _is_call(data):
            self._hold_from(event, data)
            return Step()
        if not self._held:
            return Step(self._mended(event, data))
        if "output_index" in data and data["output_index"] != self._index:
            self._behind.append(event)
            return Step()
        self._held.append(event)
        return self._complete(data) if kind == "response.output_item.done" else Step()

    def settle(self, verdict: Verdict) -> bytes:
        """Release the held item, or write the refusal as a message item at the same place."""
        held, self._held = self._held, []
        if verdict.allow:
            return b"".join(self._mended(event, event.data or {}) for event in held)
        numbers = [number for event in held if (number := (event.data or {}).get("sequence_number")) is not None]
        message = _message(f"msg_refused_{len(self._refused)}", verdict.message)
        self._refused[self._call_id] = message
        first = numbers[0] if numbers and isinstance(numbers[0], int) else None
        events = _message_events(message, self._index)
        written = [
            event if first is None else {**event, "sequence_number": first + self._shift + place}
            for place, event in enumerate(events)
        ]
        self._shift += len(events) - len(numbers) if numbers else 0
        return b"".join(encode(as_text(event["type"]), event) for event in written)

    def waiting(self) -> list[SseEvent]:
        """Take what stood behind the settled call and belongs to another item."""
        behind, self._behind = self._behind, []
        return behind

    def read_whole(self, answer: JsonObject) -> list[tuple[int, ToolCall]]:
        """The calls of an answer that is not streamed."""
        self._learn_response(answer)
        items = [as_object(item) for item in as_list(answer.get("output"))]
        return [(place, _call(item)) for place, item in enumerate(items) if item.get("type") not in _HARMLESS]

    def replace_whole(self, answer: JsonObject, refusals: dict[int, str]) -> JsonObject:
        """The answer with refusals as message items."""
        output: list[JsonValue] = [
            _message(f"msg_refused_{place}", refusals[place]) if place in refusals else item
            for place, item in enumerate(as_list(answer.get("output")))
        ]
        return {**answer, "output": output}

    def failure(self, message: str, status: int) -> bytes:
        """The protocol's `response.failed` event."""
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        response: JsonObject = {"id": "resp_failed", "object": "response", "status": "failed", "output": []}
        response["error"] = {"code": code, "message": message}
        return encode("response.failed", {"type": "response.failed", "response": response})

    def keep_alive(self) -> bytes:
        """A comment: this protocol has no event without meaning."""
        return b": waiting for a verdict\n\n"

    def _pass(self, event: SseEvent) -> Step:
        if self._held:
            self._held.append(event)
            return Step()
        return Step(event.raw)

    def _hold_from(self, event: SseEvent, data: JsonObject) -> None:
        self._held, self._index = [event], data.get("output_index")

    def _complete(self, data: JsonObject) -> Step:
        call = _call(as_object(data.get("item")))
        self._call_id = as_text(as_object(data.get("item")).get("id")) or call.id
        return Step(call=call)

    def _mended(self, event: SseEvent, data: JsonObject) -> bytes:
        """The event as it is, but for what a refusal before it has moved."""
        if not self._refused:
            return event.raw
        mended = dict(data)
        number = data.get("sequence_number")
        if isinstance(number, int):
            mended["sequence_number"] = number + self._shift
        response = data.get("response")
        if isinstance(response, dict) and "output" in response:
            output = [self._refused.get(_item_id(as_object(item)), item) for item in as_list(response["output"])]
            mended["response"] = {**response, "output": output}
        return encode(as_text(data.get("type")), mended) if mended != data else event.raw

    def _learn(self, kind: str, data: JsonObject) -> None:
        if kind == "error":
            self.facts.error = as_text(data.get("message")) or "error"
        if kind == "response.created" or kind in _FINAL:
            self._learn_response(as_object(data.get("response")))
        self.facts.finished |= kind in _FINAL

    def _learn_response(self, response: JsonObject) -> None:
        self.facts.model = as_text(response.get("model")) or self.facts.model
        usage = as_object(response.get("usage"))
        self.facts.usage.input = max(self.facts.usage.input, as_count(usage.get("input_tokens")))
        self.facts.usage.output = max(self.facts.usage.output, as_count(usage.get("output_tokens")))
        if response.get("error"):
            self.facts.error = as_text(as_object(response["error"]).get("message")) or "error"


def _is_call(data: JsonObject) -> bool:
    return as_object(data.get("item")).get("type") not in _HARMLESS


def _item_id(item: JsonObject) -> str:
    return as_text(item.get("id")) or as_text(item.get("call_id"))


def _call(item: JsonObject) -> ToolCall:
    tool = as_text(item.get("name")) or as_text(item.get("type")) or "unknown"
    given = next((item[field] for field in _ARGUMENTS if item.get(field)), "")
    return ToolCall(as_text(item.get("call_id")) or as_text(item.get("id")), tool, shown_arguments(given))


def _message(identifier: str, text: str) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": identifier, "status": "completed", "role": "assistant", "content": [part]}


def _message_events(message: JsonObject, index: JsonValue) -> list[JsonObject]:
    identifier, part = message["id"], as_object(as_list(message["content"])[0])
    place: JsonObject = {"item_id": identifier, "output_index": index, "content_index": 0}
    started: JsonObject = {**message, "status": "in_progress", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": started},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": part["text"]},
        {"type": "response.output_text.done", **place, "text": part["text"]},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": index, "item": message},
    ]
