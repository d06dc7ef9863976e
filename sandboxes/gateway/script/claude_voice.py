"""Puts a script's calls into Claude Code's own tools. See `Voice`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.script import anthropic_wire
from sandboxes.gateway.script.model_turn import ModelTurn, WireCall
from sandboxes.gateway.script.script_model import MATRIX_INVOKE, ScriptCall
from sandboxes.gateway.script.voice import unsupported
from sandboxes.sandbox_spec import WORKSPACE

_OWN: Final = {"shell": "Bash", "read": "Read", "write": "Write", "edit": "Edit", "fetch": "WebFetch", "spawn": "Agent"}
_MATRIX_PREFIX: Final = "mcp__matrix__"
_UNREAD: Final = re.compile(r"<tool_use_error>File has (?:not been read|been modified since)")


class ClaudeVoice:
    """`tool_names` maps canonical names to aliases."""

    def __init__(self, tool_names: Mapping[str, str]) -> None:
        self._tool_names = tool_names

    def preparation(self, call: ScriptCall, request: ModelRequest, read_paths: frozenset[str]) -> ScriptCall | None:
        """Claude Code refuses to edit a file that was not read in the same conversation."""
        if call.tool != "edit" or call.text("path") in read_paths or "Read" not in request.tool_names:
            return None
        return ScriptCall("read", {"path": call.text("path")})

    def remedy(self, call: ScriptCall, result: str) -> ScriptCall | None:
        """Nor does it write over a file that was not read, or changed since: whether there is one, only it knows."""
        if call.tool not in ("write", "edit") or not _UNREAD.search(result):
            return None
        return ScriptCall("read", {"path": call.text("path")})

    def phrase(self, call: ScriptCall, request: ModelRequest, identifier: str, prepared: str | None) -> WireCall:  # noqa: ARG002 (Voice)
        """`call` as a `tool_use`."""
        name = _OWN.get(call.tool) or self._matrix_name(call, request)
        if name is None or name not in request.tool_names:
            raise unsupported(call, request)
        arguments = _arguments(call, request) if call.tool in _OWN else call.args
        return WireCall(f"toolu_{identifier}", name, arguments)

    def gather(self, calls: Sequence[WireCall], request: ModelRequest, identifier: str) -> Sequence[WireCall]:  # noqa: ARG002 (Voice)
        """Claude Code takes several calls side by side."""
        return calls

    def stream(self, turn: ModelTurn, model: str, identifier: str) -> Iterator[bytes]:
        """The answer as events."""
        return anthropic_wire.stream(turn, model, identifier)

    def whole(self, turn: ModelTurn, model: str, identifier: str) -> JsonObject:
        """The answer as one message."""
        return anthropic_wire.whole(turn, model, identifier)

    def _matrix_name(self, call: ScriptCall, request: ModelRequest) -> str | None:
        alias = call.tool if call.tool == MATRIX_INVOKE else self._tool_names.get(call.tool, call.tool)
        return next((name for name in (_MATRIX_PREFIX + alias, alias) if name in request.tool_names), None)


def _arguments(call: ScriptCall, request: ModelRequest) -> JsonObject:
    match call.tool:
        case "shell":
            return {"command": call.text("command"), "description": "A step of the script"}
        case "read":
            return {"file_path": _absolute(call)}
        case "write":
            return {"file_path": _absolute(call), "content": call.text("content")}
        case "edit":
            return {"file_path": _absolute(call), "old_string": call.text("old"), "new_string": call.text("new")}
        case "fetch":
            return {"url": call.text("url"), "prompt": "What does it say?"}
        case _:
            return _spawn(call, request)


def _spawn(call: ScriptCall, request: ModelRequest) -> JsonObject:
    """An agent that is defined under this name is named; any other name is played by the general agent."""
    agent = call.text("agent")
    arguments: JsonObject = {"description": agent, "prompt": call.text("prompt")}
    if f"- {agent}: " in request.text:
        arguments["subagent_type"] = agent
    return arguments


def _absolute(call: ScriptCall) -> str:
    return str(WORKSPACE / PurePosixPath(call.text("path")))
