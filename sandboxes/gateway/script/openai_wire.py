"""Writes a scripted answer as OpenAI's Responses protocol does, streamed or whole. Pure."""

import json
from collections.abc import Iterator

from sandboxes.gateway.json_types import JsonObject, JsonValue, as_list, as_object, as_text
from sandboxes.gateway.script.model_turn import INPUT_TOKENS, OUTPUT_TOKENS, ModelTurn, WireCall
from sandboxes.gateway.sse import encode


def whole(turn: ModelTurn, model: str, identifier: str) -> JsonObject:
    """The answer as one response object."""
    output: list[JsonValue] = [_message(turn.say, identifier)] if turn.say or not turn.calls else []
    output.extend(_item(call) for call in turn.calls)
    return {
        "id": f"resp_{identifier}",
        "object": "response",
        "status": "completed",
        "error": None,
        "model": model,
        "output": output,
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        },
    }


def stream(turn: ModelTurn, model: str, identifier: str) -> Iterator[bytes]:
    """The answer as events with their sequence numbers, one piece an event."""
    for number, event in enumerate(_events(whole(turn, model, identifier))):
        yield encode(as_text(event["type"]), {**event, "sequence_number": number})


def _events(response: JsonObject) -> Iterator[JsonObject]:
    begun: JsonObject = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(as_list(response["output"])):
        yield from _item_events(index, as_object(item))
    yield {"type": "response.completed", "response": response}


def _item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    place: JsonObject = {"item_id": item["id"], "output_index": index}
    begun: JsonObject = {**item, "status": "in_progress"}
    if item["type"] == "message":
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "content": []}}
        yield from _text_events(place, as_object(as_list(item["content"])[0]))
    elif item["type"] == "function_call":
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "arguments": ""}}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
    elif item["type"] == "custom_tool_call":
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "input": ""}}
        yield {"type": "response.custom_tool_call_input.delta", **place, "delta": item["input"]}
        yield {"type": "response.custom_tool_call_input.done", **place, "input": item["input"]}
    else:
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _text_events(place: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    at: JsonObject = {**place, "content_index": 0}
    text = as_text(part["text"])
    middle = len(text) // 2
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in (text[:middle], text[middle:]):
        yield {"type": "response.output_text.delta", **at, "delta": piece}
    yield {"type": "response.output_text.done", **at, "text": text}
    yield {"type": "response.content_part.done", **at, "part": part}


def _message(text: str, identifier: str) -> JsonObject:
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{identifier}",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def _item(call: WireCall) -> JsonObject:
    item: JsonObject = {"id": f"item_{call.id}", "call_id": call.id, "status": "completed"}
    if call.kind == "tool_search":
        return {**item, "type": "tool_search_call", "execution": "client", "arguments": call.arguments}
    item["name"] = call.name
    if call.namespace is not None:
        item["namespace"] = call.namespace
    if call.kind == "custom":
        return {**item, "type": "custom_tool_call", "input": call.arguments}
    return {**item, "type": "function_call", "arguments": json.dumps(call.arguments, ensure_ascii=False)}
