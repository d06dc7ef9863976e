"""Do the arguments fit the op, does the result fit what the actor promised: compiled once per op, by jsonschema-rs.

Below: `contract.declarations`. Above: `mcp_bridge_actor`, which asks before and after the bus. It knows no caller and
no permission. A schema may come from a stranger: nothing is ever fetched for a `$ref`, and patterns run on an engine
with linear time, or with a backtracking limit where they need one. A schema that cannot be compiled refuses the call.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import jsonschema_rs

from bridge.contract.declarations import OpDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

_BACKTRACK_LIMIT: Final = 10_000
_SHOWN_PROBLEMS: Final = 5
_PROBLEM_CHARACTERS: Final = 200
_SHOWN_FIELDS: Final = 20


class OpValidator:
    """The two checks of one op. Raises `MX_AGENT_ACTOR_ERROR` where the op's own schema is malformed."""

    def __init__(self, op: OpDeclaration) -> None:
        self.op = op
        self._schema = op.argument_schema()
        result = op.result_schema()
        self._arguments = _compile(self._schema, op)
        # A result may hold what its reader must not see in an error, so its values are masked there.
        self._result = None if result is None else _compile(result, op, mask="the value")

    def arguments(self, payload: JsonObject) -> JsonObject:
        """`payload` with the declared defaults filled in, as a new object; raises `MX_AGENT_INVALID_ARGUMENTS`."""
        filled = _with_defaults(self._schema, payload)
        if self._arguments.is_valid(filled):
            return filled
        problems = [self._sentence(error) for error in islice(self._arguments.iter_errors(filled), _SHOWN_PROBLEMS)]
        fields = self._field_names()
        takes = ", ".join(repr(name) for name in fields[:_SHOWN_FIELDS]) or "no fields"
        raise MatrixError(
            "MX_AGENT_INVALID_ARGUMENTS",
            f"The arguments of {self.op.name!r} do not fit its schema: {'; '.join(problems)}. It takes {takes}. "
            "Correct the arguments and call again.",
            problems=problems,
        )

    def result(self, value: JsonValue) -> None:
        """Raises `MX_AGENT_INVALID_RESULT` where the actor's answer is not what it declared."""
        if self._result is None or self._result.is_valid(value):
            return
        problems = [_cut(error) for error in islice(self._result.iter_errors(value), _SHOWN_PROBLEMS)]
        raise MatrixError(
            "MX_AGENT_INVALID_RESULT",
            f"The answer to {self.op.name!r} does not fit what the actor declares: {'; '.join(problems)}. "
            "The op may have taken effect; its actor has to be mended.",
            problems=problems,
        )

    def _sentence(self, error: jsonschema_rs.ValidationError) -> str:
        unexpected = getattr(error.kind, "unexpected", None) or ()
        near = difflib.get_close_matches(str(unexpected[0]), self._field_names(), n=1) if unexpected else []
        return _cut(error) + (f" (did you mean {near[0]!r}?)" if near else "")

    def _field_names(self) -> list[str]:
        properties = self._schema.get("properties")
        return list(properties) if isinstance(properties, dict) else []


@dataclass
class ValidatorCache:
    """The validators of mounted ops, compiled on first use and again when a reload brings a new declaration."""

    _compiled: dict[tuple[str, str], OpValidator] = field(default_factory=dict)

    def of(self, mount: str, op: OpDeclaration) -> OpValidator:
        """The validator of `op` at `mount`. Raises `MX_AGENT_ACTOR_ERROR` where its schema is malformed."""
        cached = self._compiled.get((mount, op.name))
        if cached is None or cached.op is not op:
            cached = self._compiled[(mount, op.name)] = OpValidator(op)
        return cached

    def forget(self, mount: str) -> None:
        """Drop what was compiled for an actor that is gone."""
        for key in [key for key in self._compiled if key[0] == mount]:
            del self._compiled[key]


def _compile(schema: JsonObject, op: OpDeclaration, mask: str | None = None) -> jsonschema_rs.Validator:
    linear, bounded = jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT)
    try:
        return _validator(schema, linear, mask)
    except ValueError:
        pass
    try:
        return _validator(schema, bounded, mask)
    except ValueError as error:
        raise MatrixError(
            "MX_AGENT_ACTOR_ERROR",
            f"The declared schema of {op.name!r} is malformed, so the op cannot be called: "
            f"{str(error).splitlines()[0][:_PROBLEM_CHARACTERS]}. Its actor has to be mended.",
        ) from None


def _validator(
    schema: JsonObject, patterns: "jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions", mask: str | None
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        schema, offline=True, validate_formats=True, ignore_unknown_formats=True, pattern_options=patterns, mask=mask
    )


def _with_defaults(schema: JsonObject, value: JsonObject) -> JsonObject:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    return {**value, **dict(_filled(properties, value))}


def _filled(properties: JsonObject, value: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    for name, field_schema in properties.items():
        if not isinstance(field_schema, dict):
            continue
        given = value.get(name)
        if name not in value and "default" in field_schema:
            yield name, field_schema["default"]
        elif isinstance(given, dict):
            yield name, _with_defaults(field_schema, given)


def _cut(error: jsonschema_rs.ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    sentence = f"at {where!r}: {error.message}" if where else error.message
    return sentence if len(sentence) <= _PROBLEM_CHARACTERS else f"{sentence[:_PROBLEM_CHARACTERS]}…"
