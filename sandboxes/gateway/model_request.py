"""What the gateway needs to know of a request to a model: its tools, who in the worker asks, and whether it is a turn.

Pure, one reader per protocol. The names of fields and headers were seen with the real workers. Above: `surface`,
`inference` and the scripted model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sandboxes.gateway.body_policy import openai_tools
from sandboxes.gateway.json_types import JsonObject, JsonValue, as_list, as_object, as_text
from sandboxes.gateway.refusal import WorkerKind
from sandboxes.gateway.request_policy import Headers

MAIN_AGENT: Final = "/root"
"""What Codex calls the agent that the person talks to."""

_COMPACTION: Final = (
    "Your task is to create a detailed summary of",  # Claude Code
    "You are performing a CONTEXT CHECKPOINT COMPACTION",  # Codex
    "Please write a 5-10 word title",
    "Generate a concise, sentence-case title",
)


@dataclass(frozen=True)
class DeclaredTool:
    """One tool of a request. `kind` is `function` or `custom` (free text), `description` what the model reads."""

    name: str
    kind: str = "function"
    description: str = ""
    namespace: str | None = None


@dataclass(frozen=True)
class ModelRequest:
    """One request in terms that do not depend on the provider."""

    model: str
    stream: bool
    agent: str | None  # the sub-agent that asks; None is the main agent
    tools: tuple[DeclaredTool, ...]
    auxiliary: bool
    results: Mapping[str, str] = field(default_factory=dict)  # id of a call -> its result as text
    opening: str = ""  # what the worker was told first
    text: str = ""  # everything the model reads, where it matters: the instructions about agents

    @property
    def tool_names(self) -> frozenset[str]:
        """The tool surface."""
        return frozenset(tool.name for tool in self.tools)

    def tool(self, name: str) -> DeclaredTool | None:
        """The declared tool with this name."""
        return next((tool for tool in self.tools if tool.name == name), None)


def read_request(kind: WorkerKind, headers: Headers, body: JsonObject) -> ModelRequest:
    """Read a judged body."""
    return _read_anthropic(dict(headers), body) if kind == "claude" else _read_openai(dict(headers), body)


def _read_anthropic(headers: Mapping[str, str], body: JsonObject) -> ModelRequest:
    declared = [as_object(tool) for tool in as_list(body.get("tools"))]
    tools = tuple(
        DeclaredTool(as_text(tool.get("name")), description=as_text(tool.get("description"))) for tool in declared
    )
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    turns = [text for message in messages if message.get("role") == "user" for text in _texts(message.get("content"))]
    system = _texts(body.get("system"))
    systems = [text for message in messages if message.get("role") == "system" for text in _texts(message["content"])]
    probe = body.get("max_tokens") == 1
    return ModelRequest(
        model=as_text(body.get("model")),
        stream=body.get("stream") is True,
        agent=headers.get("x-claude-code-agent-id"),
        tools=tools,
        auxiliary=probe or not tools or _is_compaction([*turns[-1:], *system]),
        results=_anthropic_results(messages),
        opening="\n".join(turns[:4]),
        text="\n".join([*system, *systems, *turns[:4]]),
    )


def _anthropic_results(messages: list[JsonObject]) -> dict[str, str]:
    results: dict[str, str] = {}
    for message in messages:
        for block in map(as_object, as_list(message.get("content"))):
            if block.get("type") == "tool_result":
                results[as_text(block.get("tool_use_id"))] = _joined(_texts(block.get("content")))
    return results


def _read_openai(headers: Mapping[str, str], body: JsonObject) -> ModelRequest:
    items = [as_object(item) for item in as_list(body.get("input"))]
    messages = [item for item in items if item.get("type", "message") == "message"]
    users = [text for item in messages if item.get("role") == "user" for text in _texts(item.get("content"))]
    metadata = _turn_metadata(headers)
    agent = as_text(metadata.get("agent_name"))
    thread, session = headers.get("thread-id"), headers.get("session-id")
    is_sub_agent = (agent not in ("", MAIN_AGENT)) or (thread is not None and session is not None and thread != session)
    tools = tuple(_openai_surface(body))
    return ModelRequest(
        model=as_text(body.get("model")),
        stream=body.get("stream") is True,
        agent=(thread or agent) if is_sub_agent else None,
        tools=tools,
        auxiliary=not tools or metadata.get("request_kind", "turn") != "turn" or _is_compaction(users[-1:]),
        results=_openai_results(items),
        opening="\n".join(users),
        text=as_text(body.get("instructions")),
    )


def _openai_surface(body: JsonObject) -> list[DeclaredTool]:
    surface: list[DeclaredTool] = []
    for tool in openai_tools(body):
        kind, name = as_text(tool.get("type")), as_text(tool.get("name"))
        if kind == "namespace":
            surface += [_declared(as_object(inner), name) for inner in as_list(tool.get("tools"))]
        elif not any(known.name == (name or kind) for known in surface):
            surface.append(_declared(tool, None))
    return surface


def _declared(tool: JsonObject, namespace: str | None) -> DeclaredTool:
    kind = as_text(tool.get("type"))
    return DeclaredTool(as_text(tool.get("name")) or kind, kind, as_text(tool.get("description")), namespace)


def _openai_results(items: list[JsonObject]) -> dict[str, str]:
    results: dict[str, str] = {}
    for item in items:
        if as_text(item.get("type")).endswith("_call_output"):
            identifier = as_text(item.get("call_id"))
            earlier = [results[identifier]] if identifier in results else []
            results[identifier] = _joined([*earlier, *_texts(item.get("output"))])
    return results


def _turn_metadata(headers: Mapping[str, str]) -> JsonObject:
    try:
        value: JsonValue = json.loads(headers.get("x-codex-turn-metadata", "{}"))
    except (ValueError, RecursionError):
        return {}
    return as_object(value)


def _is_compaction(texts: list[str]) -> bool:
    return any(phrase in text for text in texts for phrase in _COMPACTION)


def _texts(content: JsonValue) -> list[str]:
    """The text in a content that is a string, a block or a list of blocks."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        return [as_text(content.get("text")) or as_text(content.get("content"))]
    return [text for part in as_list(content) if (text := as_text(as_object(part).get("text")))]


def _joined(texts: list[str]) -> str:
    """Texts on lines of their own."""
    return "".join(text if text.endswith("\n") or text is texts[-1] else f"{text}\n" for text in texts)
