"""What a request body may ask of a provider: its model, and nothing that acts or fetches on the provider's side. Pure.

An allow-list of top-level fields, of tool types and of content sources per protocol. A worker without a network must
not get one through its provider: no provider-side search, fetch, code, computer or MCP tools, no remote files or URLs.
"""

from collections.abc import Iterator
from typing import Final

from sandboxes.gateway.json_types import JsonObject, JsonValue, as_list, as_object, as_text
from sandboxes.gateway.refusal import Refusal, WorkerKind

_FIELDS: Final[dict[WorkerKind, frozenset[str]]] = {
    "claude": frozenset(
        [
            "model",
            "messages",
            "system",
            "tools",
            "tool_choice",
            "metadata",
            "max_tokens",
            "thinking",
            "context_management",
            "output_config",
            "output_format",
            "stream",
            "temperature",
            "top_p",
            "top_k",
            "stop_sequences",
            "service_tier",
            "speed",
            "cache_control",
            "betas",
            "anthropic_version",
            "inference_geo",
        ]
    ),
    "codex": frozenset(
        [
            "model",
            "input",
            "instructions",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "reasoning",
            "store",
            "stream",
            "stream_options",
            "include",
            "prompt_cache_key",
            "prompt_cache_retention",
            "client_metadata",
            "metadata",
            "text",
            "service_tier",
            "temperature",
            "top_p",
            "max_output_tokens",
            "max_tool_calls",
            "truncation",
            "user",
            "safety_identifier",
            "top_logprobs",
            "context_management",
        ]
    ),
}
_ANTHROPIC_TOOLS: Final = ("bash_", "text_editor_", "memory_")
_ANTHROPIC_BLOCKS: Final = frozenset(
    [
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "search_result",
        "tool_reference",
        "tool_change",
        "mid_conv_system",
        "fallback",
        "compaction",
    ]
)
_ANTHROPIC_SOURCES: Final = frozenset({"base64", "text", "content"})
_OPENAI_TOOLS: Final = frozenset({"function", "custom", "namespace", "local_shell", "shell", "apply_patch"})
_REMOTE_FIELDS: Final = ("file_url", "file_id")


def judge_body(kind: WorkerKind, body: JsonObject) -> Refusal | None:
    """None if the body may go on, else the refusal with what was asked and why it is refused."""
    for field in body:
        if field not in _FIELDS[kind]:
            return _refuse(f"The field {field!r}", "it is not on the list of what a worker may send to its provider")
    return _judge_anthropic(body) if kind == "claude" else _judge_openai(body)


def _refuse(what: str, why: str) -> Refusal:
    return Refusal(400, f"{what} is refused by the gateway: {why}. Use the worker's own or its Matrix tools instead.")


def _judge_anthropic(body: JsonObject) -> Refusal | None:
    for tool in as_list(body.get("tools")):
        declared = as_object(tool)
        kind = declared.get("type", "custom")
        if kind is not None and kind != "custom" and not as_text(kind).startswith(_ANTHROPIC_TOOLS):
            return _refuse(f"The tool {_shown(declared)}", "it runs on the provider's side, outside the worker's walls")
    for block in _anthropic_blocks(body):
        refusal = _judge_block(block)
        if refusal:
            return refusal
    return None


def _anthropic_blocks(body: JsonObject) -> Iterator[JsonObject]:
    """Every content block the provider would read; not the arguments of tool calls, which are the model's own text."""
    for block in as_list(body.get("system")):
        yield as_object(block)
    pending = [as_object(message).get("content") for message in as_list(body.get("messages"))]
    while pending:
        for entry in as_list(pending.pop()):
            block = as_object(entry)
            yield block
            if block.get("type") == "tool_result":
                pending.append(block.get("content"))
            elif block.get("type") == "document":
                pending.append(as_object(block.get("source")).get("content"))


def _judge_block(block: JsonObject) -> Refusal | None:
    kind = as_text(block.get("type"))
    if kind not in _ANTHROPIC_BLOCKS:
        return _refuse(f"The content block {kind!r}", "it is not on the list of what a worker may send")
    source = block.get("source")
    if kind in ("image", "document") and as_object(source).get("type") not in _ANTHROPIC_SOURCES:
        return _refuse(f"The remote source of a block {kind!r}", "the provider would fetch it; send the content itself")
    return None


def _judge_openai(body: JsonObject) -> Refusal | None:
    for tool in openai_tools(body):
        remote_search = tool.get("type") == "tool_search" and tool.get("execution") != "client"
        if remote_search or tool.get("type") not in _OPENAI_TOOLS | {"tool_search"}:
            return _refuse(f"The tool {_shown(tool)}", "it runs on the provider's side, outside the worker's walls")
    for part in _openai_parts(body):
        image = part.get("image_url")
        address = as_text(as_object(image).get("url")) if isinstance(image, dict) else image
        if any(part.get(field) for field in _REMOTE_FIELDS) or (address and not as_text(address).startswith("data:")):
            return _refuse("A remote file or image", "the provider would fetch it; send the content itself")
    if any(as_object(item).get("type") == "item_reference" for item in as_list(body.get("input"))):
        return _refuse("An item by reference", "what the provider keeps cannot be judged here; send the item itself")
    return None


def openai_tools(body: JsonObject) -> Iterator[JsonObject]:
    """Every tool a Responses request declares: in `tools`, in items that add tools, inside namespaces."""
    pending: list[JsonValue] = list(as_list(body.get("tools")))
    for item in as_list(body.get("input")):
        if as_object(item).get("type") in ("additional_tools", "tool_search_output"):
            pending.extend(as_list(as_object(item).get("tools")))
    while pending:
        tool = as_object(pending.pop(0))
        yield tool
        pending[:0] = as_list(tool.get("tools"))


def _openai_parts(body: JsonObject) -> Iterator[JsonObject]:
    for entry in as_list(body.get("input")):
        item = as_object(entry)
        yield item
        for field in ("content", "output"):
            for part in as_list(item.get(field)):
                yield as_object(part)


def _shown(tool: JsonObject) -> str:
    return repr(as_text(tool.get("type")) or as_text(tool.get("name")))[:80]
