"""Reads a script from YAML; a fault in it is a `ScriptFileError` with its line and the mend. Pure.

Unknown keys, keys that stand twice, aliases (a small file could grow without bound) and values that JSON does not have
are refused. What it refuses to know: workers and wires.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

import yaml

from sandboxes.gateway.json_types import JsonObject, JsonValue
from sandboxes.gateway.script.script_model import (
    MATRIX_INVOKE,
    NEUTRAL_TOOLS,
    CodexSurface,
    Script,
    ScriptCall,
    Step,
    WireFault,
)

MAX_SCRIPT_CHARACTERS: Final = 256 * 1024
MAX_DEPTH: Final = 64
MAX_DELAY_MS: Final = 10 * 60 * 1000
_OPENING: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_SCALARS: Final = (str, int, float, bool, type(None))
_SURFACES: Final = ("plain", "patch", "code")
T = TypeVar("T")
_Fields = dict[str, yaml.Node]


class ScriptFileError(ValueError):
    """The script is refused. `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


def parse_script(text: str) -> Script:
    """The script in `text`. Raises `ScriptFileError`."""
    if len(text) > MAX_SCRIPT_CHARACTERS:
        raise ScriptFileError(1, f"The script is over {MAX_SCRIPT_CHARACTERS} characters; make it smaller.")
    try:
        _check_tokens(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ScriptFileError(mark.line + 1 if mark else 1, f"This is not YAML: {error.problem}.") from None
    except yaml.YAMLError:
        raise ScriptFileError(1, "The script holds characters that YAML does not allow; remove them.") from None
    if root is None:
        raise ScriptFileError(1, "The script is empty; give it 'steps:', a list.")
    return _script(root)


def _script(root: yaml.Node) -> Script:
    fields = _mapping(root, "the script", {"steps", "agents", "codexSurface"})
    agents = (
        {name: _agent(node) for name, node in _entries(fields["agents"], "agents").items()}
        if "agents" in fields
        else {}
    )
    steps = _steps(fields, root, agents)
    return Script(steps, agents, _optional(fields, "codexSurface", _surface, "patch"))


def _agent(node: yaml.Node) -> tuple[Step, ...]:
    return _steps(_mapping(node, "an agent", {"steps"}), node, None)


def _steps(fields: _Fields, owner: yaml.Node, agents: Mapping[str, object] | None) -> tuple[Step, ...]:
    if "steps" not in fields:
        raise _fault(owner, "'steps' is missing; give a list of steps")
    return tuple(_step(node, agents) for node in _sequence(fields["steps"], "steps"))


def _step(node: yaml.Node, agents: Mapping[str, object] | None) -> Step:
    fields = _mapping(node, "a step", {"say", "call", "calls", "expect", "delayMs", "error", "raw"})
    turn = {"say", "call", "calls"} & fields.keys()
    faults = {"error", "raw"} & fields.keys()
    if len(faults) + bool(turn) != 1:
        raise _fault(node, "a step has either 'say' and 'call' or 'calls', or one of 'error' and 'raw'")
    if {"call", "calls"} <= fields.keys():
        raise _fault(fields["calls"], "a step has 'call' or 'calls', not both; put all into 'calls'")
    calls = _calls(fields, agents)
    if "expect" in fields and not calls:
        raise _fault(fields["expect"], "'expect' looks at the results of this step's calls, and it has none")
    return Step(
        say=_optional(fields, "say", _text, ""),
        calls=calls,
        expect=_optional(fields, "expect", _pattern, None),
        delay_ms=_optional(fields, "delayMs", _delay, 0),
        fault=_optional(fields, "error", _error, None) or _optional(fields, "raw", _raw, None),
    )


def _calls(fields: _Fields, agents: Mapping[str, object] | None) -> tuple[ScriptCall, ...]:
    nodes = [fields["call"]] if "call" in fields else []
    if "calls" in fields:
        nodes = _sequence(fields["calls"], "calls")
    return tuple(_call(node, agents) for node in nodes)


def _call(node: yaml.Node, agents: Mapping[str, object] | None) -> ScriptCall:
    fields = _mapping(node, "a call", {"tool", "args"})
    if "tool" not in fields:
        raise _fault(node, "'tool' is missing")
    tool = _text(fields["tool"])  # which tools there are is the worker's business: see the voices
    args = _json_object(fields["args"], "args") if "args" in fields else {}
    if tool in NEUTRAL_TOOLS:
        _check_neutral(node, tool, args, agents)
    elif tool == MATRIX_INVOKE:
        _check_matrix_invoke(node, args)
    return ScriptCall(tool, args)


def _check_neutral(node: yaml.Node, tool: str, args: JsonObject, agents: Mapping[str, object] | None) -> None:
    wanted = NEUTRAL_TOOLS[tool]
    if args.keys() != wanted or not all(isinstance(value, str) for value in args.values()):
        raise _fault(node, f"{tool!r} takes exactly these texts: {', '.join(sorted(wanted))}")
    if tool == "spawn" and args["agent"] not in (agents or {}):
        raise _fault(node, f"'agents' has no script for {args['agent']!r}; only the main script may start agents")


def _check_matrix_invoke(node: yaml.Node, args: JsonObject) -> None:
    texts = all(isinstance(args.get(name), str) for name in ("target", "op"))
    if not texts or not args.keys() <= {"target", "op", "payload"}:
        raise _fault(node, "'matrix_invoke' takes the texts target and op, and payload")


def _error(node: yaml.Node) -> WireFault:
    fields = _mapping(node, "an error", {"status", "message", "headers"})
    if "status" not in fields:
        raise _fault(node, "'status' is missing, e.g. error: {status: 529}")
    headers = _json_object(fields["headers"], "headers") if "headers" in fields else {}
    return WireFault(
        _status(fields["status"], 400),
        _optional(fields, "message", _text, "The script says so."),
        tuple((name.lower(), str(value)) for name, value in headers.items()),
    )


def _raw(node: yaml.Node) -> WireFault:
    if isinstance(node, yaml.ScalarNode):
        return WireFault(200, raw=_text(node), headers=(("content-type", "text/event-stream"),))
    fields = _mapping(node, "raw", {"status", "headers", "body"})
    headers = _json_object(fields["headers"], "headers") if "headers" in fields else {}
    return WireFault(
        _status(fields["status"], 200) if "status" in fields else 200,
        raw=_optional(fields, "body", _text, ""),
        headers=tuple((name.lower(), str(value)) for name, value in headers.items()),
    )


def _status(node: yaml.Node, least: int) -> int:
    value = _json(node)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 599:
        raise _fault(node, f"'status' is an HTTP status between {least} and 599")
    return value


def _delay(node: yaml.Node) -> int:
    value = _json(node)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_DELAY_MS:
        raise _fault(node, f"'delayMs' is a whole number from 0 to {MAX_DELAY_MS}")
    return value


def _pattern(node: yaml.Node) -> str:
    text = _text(node)
    try:
        re.compile(text)
    except re.error as error:
        raise _fault(node, f"'expect' is no regular expression: {error}") from None
    return text


def _surface(node: yaml.Node) -> CodexSurface:
    text = _text(node)
    if text not in _SURFACES:
        raise _fault(node, f"'codexSurface' is one of {', '.join(_SURFACES)}")
    return cast("CodexSurface", text)


def _optional(fields: _Fields, name: str, read: Callable[[yaml.Node], T], default: T) -> T:
    return read(fields[name]) if name in fields else default


def _mapping(node: yaml.Node, what: str, known: set[str]) -> _Fields:
    fields = _entries(node, what)
    for name, value in fields.items():
        if name not in known:
            raise _fault(value, f"{what} has no key {name!r}; known are {', '.join(sorted(known))}")
    return fields


def _entries(node: yaml.Node, what: str) -> _Fields:
    if not isinstance(node, yaml.MappingNode):
        raise _fault(node, f"{what} must be a mapping of keys to values")
    fields: _Fields = {}
    for key, value in node.value:
        name = _text(key)
        if name in fields:
            raise _fault(key, f"the key {name!r} stands twice")
        fields[name] = value
    return fields


def _sequence(node: yaml.Node, what: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _fault(node, f"{what!r} must be a list with at least one entry")
    return list(node.value)


def _text(node: yaml.Node) -> str:
    value = _json(node)
    if not isinstance(value, str):
        raise _fault(node, "this must be a text; put it in quotes")
    return value


def _json_object(node: yaml.Node, what: str) -> JsonObject:
    value = _json(node)
    if not isinstance(value, dict):
        raise _fault(node, f"{what!r} must be a mapping of keys to values")
    return value


def _json(node: yaml.Node) -> JsonValue:
    """The node as JSON."""
    if isinstance(node, yaml.MappingNode):
        return {name: _json(value) for name, value in _entries(node, "this").items()}
    if isinstance(node, yaml.SequenceNode):
        return [_json(value) for value in node.value]
    try:
        value: object = yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError):
        raise _fault(node, "this value cannot be read; put it in quotes") from None
    if not isinstance(value, _SCALARS) or value != value or value in (float("inf"), float("-inf")):
        raise _fault(node, "JSON has no such value; put it in quotes")
    return cast("JsonValue", value)


def _check_tokens(text: str) -> None:
    """Refuse aliases, and depth before the recursive reader meets it."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        line = token.start_mark.line + 1
        if isinstance(token, yaml.AliasToken):
            raise ScriptFileError(line, "Aliases ('*name') are not understood; repeat the value.")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > MAX_DEPTH:
            raise ScriptFileError(line, f"The script is nested deeper than {MAX_DEPTH} levels; flatten it.")


def _fault(node: yaml.Node, message: str) -> ScriptFileError:
    sentence = message[0].upper() + message[1:] if message[0].isalpha() else message
    return ScriptFileError(node.start_mark.line + 1, f"{sentence}.")
