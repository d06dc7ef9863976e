"""What an actor says about itself: the answer to `$introspect` (contracts.md, section 4), as frozen values.

Above: every bus hands these out, `matrix_tool_projection` turns an op into a tool, the catalog searches them. It knows
no bus and no permission. A declaration comes from an actor's host, so `from_introspect` trusts nothing of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.contract.declaration_problems import declaration_problems
from bridge.contract.errors import MatrixError
from bridge.contract.field_descriptor import fields_to_schema, has_description, missing_descriptions
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import parse_op, parse_target

_SHOWN_PROBLEMS: Final = 5


@dataclass(frozen=True)
class OpDeclaration:
    """One op an actor accepts. `schema` and `returns` are FIELDS; `input_schema` and `output_schema` stand in for them
    where a mounted server brought JSON Schema of its own, which is carried verbatim."""

    name: str
    description: str
    schema: JsonObject = field(default_factory=dict)
    returns: JsonObject | None = None
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None

    def argument_schema(self) -> JsonObject:
        """The JSON Schema of the payload."""
        return fields_to_schema(self.schema) if self.input_schema is None else self.input_schema

    def result_schema(self) -> JsonObject | None:
        """The JSON Schema of the result, or None where the op declares none."""
        if self.output_schema is not None:
            return self.output_schema
        return None if self.returns is None else fields_to_schema(self.returns)

    def to_json(self) -> JsonObject:
        """The op's entry under `accepts`."""
        entry: JsonObject = {"description": self.description}
        if self.input_schema is None:
            entry["schema"] = self.schema
        else:
            entry["inputSchema"] = self.input_schema
        if self.output_schema is not None:
            entry["outputSchema"] = self.output_schema
        elif self.returns is not None:
            entry["returns"] = self.returns
        return entry

    @classmethod
    def from_json(cls, name: str, entry: JsonObject) -> "OpDeclaration":
        """The inverse of `to_json` for an entry that `from_introspect` has checked."""
        return cls(
            name=name,
            description=str(entry.get("description", "")),
            schema=_object(entry.get("schema")),
            returns=_object_or_none(entry.get("returns")),
            input_schema=_object_or_none(entry.get("inputSchema")),
            output_schema=_object_or_none(entry.get("outputSchema")),
        )


RESERVED_OPS: Final[Mapping[str, OpDeclaration]] = {
    op.name: op
    for op in (
        OpDeclaration("$introspect", "Describes this actor: its ops, state, blackboard and events."),
        OpDeclaration(
            "$getState",
            "Reads one value of this actor's state.",
            {"key": {"type": "string", "description": "The name of the state value, as $introspect lists it"}},
        ),
        OpDeclaration(
            "$readBlackboard",
            "Reads one fact from this actor's blackboard.",
            {"fact": {"type": "string", "description": "The name of the fact, as $introspect lists it"}},
        ),
    )
}
"""The ops that every actor answers without declaring them."""


@dataclass(frozen=True)
class ActorDeclaration:
    """One actor. `state`, `blackboard` are FIELDS; `emits`, `streams` map a name to `{description, schema}`."""

    mount: str
    type: str
    description: str
    version: str = ""
    accepts: Mapping[str, OpDeclaration] = field(default_factory=dict)
    state: JsonObject = field(default_factory=dict)
    blackboard: JsonObject = field(default_factory=dict)
    emits: JsonObject = field(default_factory=dict)
    streams: JsonObject = field(default_factory=dict)
    subscribes: tuple[str, ...] = ()
    skills: tuple[JsonObject, ...] = ()

    def op(self, name: str) -> OpDeclaration | None:
        """The declaration of an op, reserved ones included, or None."""
        return RESERVED_OPS.get(name) or self.accepts.get(name)

    def op_names(self) -> tuple[str, ...]:
        """Every op this actor answers: those it accepts, then the reserved ones."""
        return (*self.accepts, *RESERVED_OPS)

    def to_introspect(self, root: str) -> JsonObject:
        """The answer to `$introspect` under the authority root `root`."""
        return {
            "root": root,
            "mount": self.mount,
            "type": self.type,
            "description": self.description,
            "version": self.version,
            "accepts": {name: op.to_json() for name, op in self.accepts.items()},
            "state": self.state,
            "blackboard": self.blackboard,
            "emits": self.emits,
            "streams": self.streams,
            "subscribes": list(self.subscribes),
            "skills": list(self.skills),
        }

    @classmethod
    def from_introspect(cls, answer: JsonValue) -> "ActorDeclaration":
        """Read an `$introspect` answer.

        Raises `MX_AGENT_MALFORMED_NAME` for the mount or an op, `MX_AGENT_ACTOR_ERROR` listing what else is malformed.
        """
        if not isinstance(answer, dict):
            raise MatrixError("MX_AGENT_ACTOR_ERROR", "The declaration is not a JSON object.")
        mount = parse_target(answer.get("mount"))
        problems = tuple(declaration_problems(answer))
        if problems:
            raise MatrixError(
                "MX_AGENT_ACTOR_ERROR",
                f"The declaration of {mount!r} is malformed: {'; '.join(problems[:_SHOWN_PROBLEMS])}.",
                problems=list(problems),
            )
        accepts = _object(answer.get("accepts"))
        return cls(
            mount=mount,
            type=str(answer.get("type", "")),
            description=str(answer.get("description", "")),
            version=str(answer.get("version", "")),
            accepts={name: OpDeclaration.from_json(parse_op(name), _object(entry)) for name, entry in accepts.items()},
            state=_object(answer.get("state")),
            blackboard=_object(answer.get("blackboard")),
            emits=_object(answer.get("emits")),
            streams=_object(answer.get("streams")),
            subscribes=tuple(str(name) for name in _list(answer.get("subscribes"))),
            skills=tuple(_object(skill) for skill in _list(answer.get("skills"))),
        )

    def missing_descriptions(self) -> tuple[str, ...]:
        """Where a description is missing, such as `accepts.inventory.check.schema.sku`. Empty = the rule is kept."""
        return tuple(self._missing())

    def _missing(self) -> Iterator[str]:
        if not self.description.strip():
            yield "description"
        for name, op in self.accepts.items():
            if not op.description.strip():
                yield f"accepts.{name}"
            yield from missing_descriptions(op.schema, f"accepts.{name}.schema")
            yield from missing_descriptions(op.returns or {}, f"accepts.{name}.returns")
        yield from missing_descriptions(self.state, "state")
        yield from missing_descriptions(self.blackboard, "blackboard")
        for group, events in (("emits", self.emits), ("streams", self.streams)):
            for name, event in events.items():
                yield from _missing_in_event(_object(event), f"{group}.{name}")
        for index, skill in enumerate(self.skills):
            if not has_description(skill):
                yield f"skills[{index}]"


def _missing_in_event(event: JsonObject, where: str) -> Iterator[str]:
    if not has_description(event):
        yield where
    yield from missing_descriptions(_object(event.get("schema")), f"{where}.schema")


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _object_or_none(value: JsonValue) -> JsonObject | None:
    return value if isinstance(value, dict) else None


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
