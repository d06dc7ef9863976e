"""Puts a script's calls into Codex's own tools, on each of its surfaces. See `Voice`.

Plain: functions only, files are changed by shell commands. Patch: also the free-text tool `apply_patch`. Code: one
free-text tool `exec` that runs JavaScript; the other tools are called inside.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.model_request import DeclaredTool, ModelRequest
from sandboxes.gateway.script import openai_wire
from sandboxes.gateway.script.model_turn import ModelTurn, WireCall
from sandboxes.gateway.script.patch import add_patch, edit_command, edit_patch, write_command
from sandboxes.gateway.script.script_model import MATRIX_INVOKE, ScriptCall
from sandboxes.gateway.script.voice import unsupported

SHELL: Final = "exec_command"
PATCH: Final = "apply_patch"
CODE: Final = "exec"
SPAWN: Final = "spawn_agent"
DEFERRED_AGENTS: Final = "multi_agent_v1"
YIELD_MS: Final = 30_000
"""The longest that Codex waits for a command before it hands back a running one."""
OUTPUT_TOKENS: Final = 200_000
"""Enough that a read for an edit is not cut."""

_NESTED: Final = re.compile(r"declare const tools: \{ (\w+)\(")
_DEFERRED: Final = "Some deferred nested tools may be omitted"
_DEFERRED_SPAWN: Final = f"tools[ALL_TOOLS.find((tool) => tool.name.endsWith('{SPAWN}')).name]"
_OUTPUT: Final = re.compile(r"\A.*?^Output:\n", re.DOTALL | re.MULTILINE)


class CodexVoice:
    """`tool_names` maps canonical names to aliases."""

    def __init__(self, tool_names: Mapping[str, str]) -> None:
        self._tool_names = tool_names

    def preparation(self, call: ScriptCall, request: ModelRequest, read_paths: frozenset[str]) -> ScriptCall | None:  # noqa: ARG002 (Voice)
        """A patch needs the lines as they stand now, whatever was read before."""
        if call.tool != "edit" or PATCH not in _available(request):
            return None
        return ScriptCall("read", {"path": call.text("path")})

    def remedy(self, call: ScriptCall, result: str) -> ScriptCall | None:  # noqa: ARG002 (Voice)
        """Codex writes over whatever stands there."""
        return None

    def phrase(self, call: ScriptCall, request: ModelRequest, identifier: str, prepared: str | None) -> WireCall:
        """`call` as a function call or a custom tool call."""
        identifier = f"call_{identifier}"
        available = _available(request)
        if call.tool in ("edit", "write") and PATCH in available and (patch := _patch(call, prepared)):
            return WireCall(identifier, PATCH, patch, "custom")
        command = _command(call)
        if command is not None and SHELL in available:
            arguments: JsonObject = {"cmd": command, "yield_time_ms": YIELD_MS, "max_output_tokens": OUTPUT_TOKENS}
            return WireCall(identifier, SHELL, arguments)
        if call.tool == "spawn" and (spawn := _spawn_tool(available)):
            return WireCall(identifier, SPAWN, {"message": call.text("prompt")}, namespace=spawn.namespace)
        name = call.tool if call.tool == MATRIX_INVOKE else self._tool_names.get(call.tool, call.tool)
        if command is None and name in available:
            return WireCall(identifier, name, call.args, namespace=available[name].namespace)
        raise unsupported(call, request)

    def gather(self, calls: Sequence[WireCall], request: ModelRequest, identifier: str) -> Sequence[WireCall]:
        """In code mode all calls of one answer become one script."""
        code = request.tool(CODE)
        if code is None or code.kind != "custom" or not calls:
            return calls
        script = "\n".join(_awaited(call) for call in calls)
        return [WireCall(f"call_{identifier}", CODE, script, "custom", code.namespace)]

    def stream(self, turn: ModelTurn, model: str, identifier: str) -> Iterator[bytes]:
        """The answer as events."""
        return openai_wire.stream(turn, model, identifier)

    def whole(self, turn: ModelTurn, model: str, identifier: str) -> JsonObject:
        """The answer as one response."""
        return openai_wire.whole(turn, model, identifier)


def _available(request: ModelRequest) -> dict[str, DeclaredTool]:
    """The tools by name; those that code mode nests count too."""
    code = request.tool(CODE)
    nested: list[str] = []
    if code is not None and code.kind == "custom":
        nested = [*_NESTED.findall(code.description), *([SPAWN] if _DEFERRED in code.description else [])]
    return {name: DeclaredTool(name) for name in nested} | {tool.name: tool for tool in request.tools}


def _spawn_tool(available: Mapping[str, DeclaredTool]) -> DeclaredTool | None:
    """The tool that starts agents: on the surface, or deferred behind Codex's search for tools, where it is run too."""
    search = available.get("tool_search")
    if search is not None and "Multi-agent tools" in search.description:
        return DeclaredTool(SPAWN, namespace=DEFERRED_AGENTS)
    return available.get(SPAWN)


def _patch(call: ScriptCall, prepared: str | None) -> str | None:
    """The change as a patch; None where the format cannot say it (a file that does not end in a line end)."""
    path = call.text("path")
    if call.tool == "edit":
        return edit_patch(path, _OUTPUT.sub("", prepared or "", count=1), call.text("old"), call.text("new"))
    content = call.text("content")
    return add_patch(path, content) if content.endswith("\n") else None


def _command(call: ScriptCall) -> str | None:
    match call.tool:
        case "shell":
            return call.text("command")
        case "read":
            return f"cat -- {shlex.quote(call.text('path'))}"
        case "write":
            return write_command(call.text("path"), call.text("content"))
        case "edit":
            return edit_command(call.text("path"), call.text("old"), call.text("new"))
        case _:
            return None


def _awaited(call: WireCall) -> str:
    """One nested call whose output, or failure, becomes text of the script's result."""
    argument = json.dumps(call.arguments)
    shown = "r.output ?? r" if call.name == SHELL else "r"
    tool = f"tools.{call.name}" if call.name != SPAWN else _DEFERRED_SPAWN
    nested = f"const r = await {tool}({argument}); text({shown});"
    return f"try {{ {nested} }} catch (failure) {{ text(String(failure)); }}"
