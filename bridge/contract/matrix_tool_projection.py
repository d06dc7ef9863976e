"""MatrixToolProjection (spec): one op of one actor as a tool that a worker's surface or an MCP client can show.

Below: `declarations`, `tool_names`. Above: the tool delegate, the MCP server, the bridge's `caller.open`. A projection
grants nothing; which ops to project is asked of the policy, and every call is decided again on target and op.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import canonical_name, parse_op, parse_target
from bridge.contract.tool_names import alias_of


@dataclass(frozen=True)
class MatrixToolProjection:
    """A tool: `name` is the alias on the surface, `canonical` the name in catalog and log, schemas are JSON Schema."""

    name: str
    canonical: str
    target: str
    op: str
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """The wire form (docs/wires.md)."""
        return {
            "name": self.name,
            "canonical": self.canonical,
            "target": self.target,
            "op": self.op,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
        }

    @classmethod
    def from_json(cls, wire: JsonValue) -> "MatrixToolProjection":
        """The inverse of `to_json`. Raises `MX_AGENT_MALFORMED_NAME`, `MX_AGENT_INVALID_RESULT`."""
        if not isinstance(wire, dict) or not isinstance(wire.get("inputSchema"), dict):
            raise MatrixError("MX_AGENT_INVALID_RESULT", "A projection is not an object with an 'inputSchema'.")
        input_schema, output_schema = wire["inputSchema"], wire.get("outputSchema")
        assert isinstance(input_schema, dict)
        return cls(
            name=str(wire.get("name", "")),
            canonical=str(wire.get("canonical", "")),
            target=parse_target(wire.get("target")),
            op=parse_op(wire.get("op")),
            description=str(wire.get("description", "")),
            input_schema=input_schema,
            output_schema=output_schema if isinstance(output_schema, dict) else None,
        )


def project(root: str, declaration: ActorDeclaration, op: str) -> MatrixToolProjection:
    """The projection of `op`, a reserved one too. Raises `MX_AGENT_OP_NOT_FOUND`, `MX_AGENT_MALFORMED_NAME`."""
    declared = declaration.op(op)
    if declared is None:
        raise MatrixError("MX_AGENT_OP_NOT_FOUND", f"The actor {declaration.mount!r} does not accept the op {op!r}.")
    return MatrixToolProjection(
        name=alias_of(declaration.mount, op),
        canonical=canonical_name(root, declaration.mount, op),
        target=declaration.mount,
        op=op,
        description=declared.description,
        input_schema=declared.argument_schema(),
        output_schema=declared.result_schema(),
    )


def by_alias(projections: Iterable[MatrixToolProjection]) -> dict[str, MatrixToolProjection]:
    """The projections by alias. Raises `MX_AGENT_MALFORMED_NAME` where two ops share one: none may shadow another."""
    table: dict[str, MatrixToolProjection] = {}
    for projection in projections:
        other = table.setdefault(projection.name, projection)
        if other.canonical != projection.canonical:
            raise MatrixError(
                "MX_AGENT_MALFORMED_NAME",
                f"{other.canonical!r} and {projection.canonical!r} have the same alias {projection.name!r}. "
                "Rename one of the mounts.",
            )
    return table
