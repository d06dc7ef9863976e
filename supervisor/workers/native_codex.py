"""The one table that maps Codex's own tools to native ops (contracts.md, section 3).

Pure and a leaf: knows neither the app-server's protocol nor any policy. Above: `codex_mediation` (what is this
call?), `codex_launch` (which tools can the role use at all?) and the supervisor (what did the gateway see?). A tool
that the table does not name, or arguments from which its paths or command cannot be read, is `other.<tool>`, which
nothing grants unless the permission file says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import join
from types import MappingProxyType
from typing import Final

from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import NativeCall, NativeOp, PathAccess
from supervisor.workers.codex_patch import patched_by_command, patched_paths

NAMESPACES: Final = ("multi_agent_v1", "collaboration", "functions")
"""Hooks put them right before a tool's name
(`collaborationspawn_agent`), code mode with `__`, the model's answers apart."""

GATEWAY_JUDGED_TOOLS: Final = frozenset(
    {"write_stdin", "view_image", "update_plan", "web_search", "request_permissions", "image_generation"}
    | {"spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent"}
    | {"send_message", "followup_task", "interrupt_agent", "list_agents"}
)
"""Tools that the gateway has judged before Codex sees the call: no hook runs for the first, and none is certain to run
for the others in every version. The second question, where a hook asks it, gets the first one's verdict."""

STDIN_LINE: Final = "write_stdin '"
"""Begins a line with a quote that never ends, so that only a role whose shell rules allow everything passes."""


@dataclass(frozen=True)
class _Touched:
    """What one call touches; `op` where the arguments make it another op than the row's."""

    paths: tuple[PathAccess, ...] = ()
    command: str | None = None
    op: NativeOp | None = None


class _UnreadableArgumentsError(Exception):
    """The arguments do not say what the tool would touch."""


@dataclass(frozen=True)
class _Mapping:
    """One row: the op, and how to read the arguments."""

    op: NativeOp
    read: Callable[[JsonObject], _Touched]


def _text(value: JsonValue) -> str:
    if not isinstance(value, str) or not value:
        raise _UnreadableArgumentsError
    return value


def _writes(paths: tuple[str, ...]) -> tuple[PathAccess, ...]:
    return tuple(PathAccess(path, "write") for path in paths)


def _command(arguments: JsonObject) -> _Touched:
    """`cmd` (exec_command), `command` as text (the hook's Bash) or as words (the older shell tools)."""
    given = arguments.get("cmd", arguments.get("command"))
    line = join(map(_text, given)) if isinstance(given, list) and given else _text(given)
    if paths := patched_by_command(line):
        return _Touched(_writes(paths), op="file.write")
    return _Touched(command=line)


def _patch(arguments: JsonObject) -> _Touched:
    """The raw patch: `command` in the hook, `input` in the model's answer, `patch` in older versions."""
    given = next((arguments[key] for key in ("command", "input", "patch") if key in arguments), None)
    paths = patched_paths(_text(given))
    if not paths:
        raise _UnreadableArgumentsError
    return _Touched(_writes(paths))


def _image(arguments: JsonObject) -> _Touched:
    return _Touched(paths=(PathAccess(_text(arguments.get("path")), "read"),))


def _stdin(arguments: JsonObject) -> _Touched:
    return _Touched(command=STDIN_LINE + _text(arguments.get("chars")).replace("'", ""))


def _nothing(_arguments: JsonObject) -> _Touched:
    return _Touched()


CODEX_TOOLS: Final[Mapping[str, _Mapping]] = MappingProxyType(
    {
        "Bash": _Mapping("shell.exec", _command),  # the name that hooks give to every tool that runs a command
        "exec_command": _Mapping("shell.exec", _command),
        "shell": _Mapping("shell.exec", _command),
        "shell_command": _Mapping("shell.exec", _command),
        "local_shell": _Mapping("shell.exec", _command),
        "write_stdin": _Mapping("shell.exec", _stdin),
        "apply_patch": _Mapping("file.write", _patch),
        "view_image": _Mapping("file.read", _image),
        "web_search": _Mapping("net.fetch", _nothing),
        "spawn_agent": _Mapping("agent.spawn", _nothing),
        "send_input": _Mapping("agent.spawn", _nothing),  # the rest steers what was spawned, under the same grant
        "send_message": _Mapping("agent.spawn", _nothing),
        "followup_task": _Mapping("agent.spawn", _nothing),
        "resume_agent": _Mapping("agent.spawn", _nothing),
        "wait_agent": _Mapping("agent.spawn", _nothing),
        "list_agents": _Mapping("agent.spawn", _nothing),
        "interrupt_agent": _Mapping("agent.spawn", _nothing),
        "close_agent": _Mapping("agent.spawn", _nothing),
    }
)


def native_call(tool: str, arguments: JsonObject, cwd: str | None = None) -> NativeCall:
    """What the call is, in the terms of the permission file. Total: never raises, whatever the worker sends."""
    name = plain_name(tool)
    mapping = CODEX_TOOLS.get(name)
    if mapping is None:
        return NativeCall(other_op(name), name, arguments, cwd=cwd)
    try:
        touched = mapping.read(arguments)
    except _UnreadableArgumentsError:
        return NativeCall(other_op(name), name, arguments, cwd=cwd)
    return NativeCall(touched.op or mapping.op, name, arguments, touched.paths, touched.command, cwd)


def judge_witnessed(tool: str, arguments: JsonObject) -> NativeCall | None:
    """What the gateway has to ask about a call that it saw in the model's answer, or None where there is nothing to
    ask: an empty `write_stdin` only reads what a command, judged when it began, has printed since."""
    if plain_name(tool) == "write_stdin" and arguments.get("chars", "") == "":
        return None
    return native_call(tool, arguments)


def plain_name(tool: str) -> str:
    """The tool's name without the namespace that Codex may have put before it."""
    for namespace in NAMESPACES:
        name = tool.removeprefix(namespace).lstrip("._")
        if name != tool and name in CODEX_TOOLS:
            return name
    return tool


def other_op(tool: str) -> NativeOp:
    """The op of a tool that no table names."""
    return f"other.{tool}"


def could_allow(op: NativeOp, allowed_ops: frozenset[NativeOp]) -> bool:
    """Whether a role with these ops (or `prefix.*`, or `*`) could ever allow `op`."""
    return bool(allowed_ops & {op, f"{op.split('.', 1)[0]}.*", "*"})
