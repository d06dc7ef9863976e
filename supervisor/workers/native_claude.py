"""The one table that maps Claude Code's own tools to native ops (contracts.md, section 3).

Pure and a leaf: knows neither the agent SDK nor any policy. Above: `claude_code_mediation` (what is this call?) and
`claude_code_launch` (which tools can the role use at all?). A tool that the table does not name, or arguments from
which its paths or command cannot be read, is `other.<tool>`, which nothing grants unless the permission file says so.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import Access, NativeCall, NativeOp, PathAccess

GLOB_MAGIC: Final = frozenset("*?[{")


@dataclass(frozen=True)
class _Touched:
    """What one call touches: paths for the file ops, a command line for the shell."""

    paths: tuple[PathAccess, ...] = ()
    command: str | None = None


class _UnreadableArgumentsError(Exception):
    """The arguments do not say what the tool would touch."""


_Reader = Callable[[JsonObject], _Touched]


@dataclass(frozen=True)
class _Mapping:
    """One row: the op, how to read the arguments, and whether the tool is put on the surface with its op."""

    op: NativeOp
    read: _Reader
    offered: bool = True


def _text(arguments: JsonObject, key: str) -> str:
    value = arguments.get(key)
    if not isinstance(value, str) or not value:
        raise _UnreadableArgumentsError(key)
    return value


def _one_path(key: str, access: Access) -> _Reader:
    return lambda arguments: _Touched(paths=(PathAccess(_text(arguments, key), access),))


def _search_root(arguments: JsonObject) -> PurePosixPath:
    """Grep and Glob start where `path` says, or in the working directory."""
    return PurePosixPath(_text(arguments, "path") if arguments.get("path") is not None else ".")


def _literal_prefix(pattern: str) -> PurePosixPath:
    """The folder that a glob pattern is bound to: its leading segments without any magic."""
    parts: list[str] = []
    for part in PurePosixPath(pattern).parts:
        if GLOB_MAGIC & set(part):
            break
        parts.append(part)
    return PurePosixPath(*parts)


def _search(pattern_key: str) -> _Reader:
    """A search reads its root and, since a pattern may be absolute or climb with `..`, the folder the pattern names."""

    def read(arguments: JsonObject) -> _Touched:
        root = _search_root(arguments)
        shown = {str(root): None}
        if arguments.get(pattern_key) is not None:
            shown[str(root / _literal_prefix(_text(arguments, pattern_key)))] = None
        return _Touched(paths=tuple(PathAccess(path, "read") for path in shown))

    return read


def _command(arguments: JsonObject) -> _Touched:
    return _Touched(command=_text(arguments, "command"))


def _nothing(_arguments: JsonObject) -> _Touched:
    return _Touched()


CLAUDE_TOOLS: Final[Mapping[str, _Mapping]] = MappingProxyType(
    {
        "Bash": _Mapping("shell.exec", _command),
        "Monitor": _Mapping("shell.exec", _command, offered=False),
        "Read": _Mapping("file.read", _one_path("file_path", "read")),
        "Grep": _Mapping("file.read", _search("glob")),
        "Glob": _Mapping("file.read", _search("pattern")),
        "NotebookRead": _Mapping("file.read", _one_path("notebook_path", "read"), offered=False),
        "Edit": _Mapping("file.write", _one_path("file_path", "write")),
        "Write": _Mapping("file.write", _one_path("file_path", "write")),
        "MultiEdit": _Mapping("file.write", _one_path("file_path", "write"), offered=False),
        "NotebookEdit": _Mapping("file.write", _one_path("notebook_path", "write"), offered=False),
        "WebFetch": _Mapping("net.fetch", _nothing),
        "WebSearch": _Mapping("net.fetch", _nothing, offered=False),  # runs at the provider, which the gateway refuses
        "Agent": _Mapping("agent.spawn", _nothing),
        "Task": _Mapping("agent.spawn", _nothing, offered=False),  # the older name of Agent
    }
)


def native_call(tool: str, arguments: JsonObject, cwd: str | None = None) -> NativeCall:
    """What the call is, in the terms of the permission file. Total: never raises, whatever the worker sends."""
    mapping = CLAUDE_TOOLS.get(tool)
    if mapping is None:
        return NativeCall(op=other_op(tool), tool=tool, payload=arguments, cwd=cwd)
    try:
        touched = mapping.read(arguments)
    except _UnreadableArgumentsError:
        return NativeCall(op=other_op(tool), tool=tool, payload=arguments, cwd=cwd)
    return NativeCall(mapping.op, tool, arguments, touched.paths, touched.command, cwd)


def other_op(tool: str) -> NativeOp:
    """The op of a tool that no table names."""
    return f"other.{tool}"


def offered_tools(allowed_ops: frozenset[NativeOp]) -> tuple[str, ...]:
    """The tools to leave on the surface for a role that could ever allow `allowed_ops` (ops or `prefix.*`, `*`).

    A tool outside the table is offered only where its `other.<tool>` is named exactly.
    """
    known = [tool for tool, row in CLAUDE_TOOLS.items() if row.offered and _could_allow(row.op, allowed_ops)]
    others = [
        op.removeprefix("other.") for op in sorted(allowed_ops) if op.startswith("other.") and not op.endswith("*")
    ]
    return tuple(dict.fromkeys([*known, *others]))


def _could_allow(op: NativeOp, allowed_ops: frozenset[NativeOp]) -> bool:
    head = op.split(".", 1)[0]
    return bool(allowed_ops & {op, f"{head}.*", "*"})


def result_text(response: object) -> str:
    """What a tool answered, as the text a person would want of it; the shape is Claude Code's own and may be any."""
    if isinstance(response, str):
        return response
    if isinstance(response, dict):
        file = response.get("file")
        if isinstance(response.get("stdout"), str):
            return "\n".join(part for part in (response["stdout"], str(response.get("stderr") or "")) if part)
        if isinstance(file, dict) and isinstance(file.get("content"), str):
            return str(file["content"])
        if isinstance(response.get("filePath"), str):
            return str(response["filePath"])
    return json.dumps(response)
