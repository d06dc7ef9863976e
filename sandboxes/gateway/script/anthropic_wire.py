"""Writes a scripted answer as Anthropic's Messages protocol does, streamed or whole. Pure."""

import json
from collections.abc import Iterator

from sandboxes.gateway.json_types import JsonObject, JsonValue, as_list, as_object, as_text
from sandboxes.gateway.script.model_turn import INPUT_TOKENS, OUTPUT_TOKENS, ModelTurn
from sandboxes.gateway.sse import encode


def whole(turn: ModelTurn, model: str, identifier: str) -> JsonObject:
    """The answer as one message object."""
    content: list[JsonValue] = [{"type": "text", "text": turn.say}] if turn.say or not turn.calls else []
    content.extend(
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in turn.calls
    )
    return {
        "id": f"msg_{identifier}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": _usage(OUTPUT_TOKENS),
    }


def stream(turn: ModelTurn, model: str, identifier: str) -> Iterator[bytes]:
    """The answer as events, one piece an event."""
    message = whole(turn, model, identifier)
    head: JsonObject = {**message, "content": [], "stop_reason": None, "usage": _usage(1)}
    yield encode("message_start", {"type": "message_start", "message": head})
    yield encode("ping", {"type": "ping"})
    for index, block in enumerate(as_list(message["content"])):
        yield from _block(index, as_object(block))
    ended: JsonObject = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    spent: JsonObject = {"output_tokens": OUTPUT_TOKENS}
    yield encode("message_delta", {"type": "message_delta", "delta": ended, "usage": spent})
    yield encode("message_stop", {"type": "message_stop"})


def _block(index: int, block: JsonObject) -> Iterator[bytes]:
    is_text = block["type"] == "text"
    empty: JsonObject = {"type": "text", "text": ""} if is_text else {**block, "input": {}}
    yield encode("content_block_start", {"type": "content_block_start", "index": index, "content_block": empty})
    for piece in _pieces(as_text(block["text"]) if is_text else json.dumps(block["input"], ensure_ascii=False)):
        delta: JsonObject = (
            {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta", "partial_json": piece}
        )
        yield encode("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
    yield encode("content_block_stop", {"type": "content_block_stop", "index": index})


def _pieces(text: str) -> Iterator[str]:
    """The text in two deltas, since a worker has to put pieces together with a real model too."""
    middle = len(text) // 2
    yield from (piece for piece in (text[:middle], text[middle:]) if piece)


def _usage(output: int) -> JsonObject:
    return {
        "input_tokens": INPUT_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
    }
