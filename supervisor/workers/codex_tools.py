"""Matrix tools on Codex's native surface: dynamic tools, and the request by which the program calls one.

Knows neither bridge nor policy: a handler is one call, judged and run behind it. Every call is answered within a bound.
Above: `codex`.
"""

import json
from collections.abc import Sequence
from typing import Final

import anyio

from bridge.contract.json_types import JsonObject, JsonValue
from supervisor.workers.worker import NativeToolDef, ToolAnswer

CALL_TIMEOUT_S: Final = 3600.0
"""The handler has its own, shorter limits (a tool's time, an approval's deadline); this one is for its fault."""


def dynamic_tools(tools: Sequence[NativeToolDef]) -> list[JsonValue]:
    """`thread/start`'s `dynamicTools`: never deferred, so that the model sees them with its first request."""
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in tools
    ]


class CodexTools:
    """Answers `item/tool/call` for the tools of one worker."""

    def __init__(self, tools: Sequence[NativeToolDef], timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._timeout_s = timeout_s
        self._running: set[anyio.CancelScope] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    async def call(self, params: JsonObject) -> JsonObject:
        """Run one call: `{"contentItems": [{"type": "inputText", "text"}], "success"}`. Raises only for
        cancellation."""
        answer = _failed("MX_AGENT_CANCELLED", "The call was cancelled before it had a result.")
        with anyio.move_on_after(self._timeout_s) as scope:
            self._running.add(scope)
            try:
                answer = await self._answer(params)
            finally:
                self._running.discard(scope)
        return {"contentItems": [{"type": "inputText", "text": _text(answer)}], "success": not answer.is_error}

    def cancel_all(self) -> None:
        """Cancel every call that runs; each is answered as cancelled."""
        for scope in tuple(self._running):
            scope.cancel()

    async def _answer(self, params: JsonObject) -> ToolAnswer:
        name, arguments, call = params.get("tool"), params.get("arguments"), params.get("callId")
        tool = self._tools.get(name) if isinstance(name, str) and params.get("namespace") is None else None
        if tool is None:
            return _failed(
                "MX_AGENT_TOOL_NOT_FOUND", f"There is no Matrix tool {name!r}. Use one of {sorted(self._tools)}."
            )
        if not isinstance(arguments, dict):
            return _failed("MX_AGENT_INVALID_ARGUMENTS", f"The arguments of {name!r} must be one JSON object.")
        return await tool.handler(arguments, call if isinstance(call, str) else None)


def _failed(code: str, message: str) -> ToolAnswer:
    return ToolAnswer(f"{code}: {message}", {"error": {"code": code, "message": message}}, is_error=True)


def _text(answer: ToolAnswer) -> str:
    """On an error the code and message as JSON, as on the other worker; on success the JSON of the result."""
    return json.dumps(answer.content, ensure_ascii=False) if answer.is_error else answer.text
