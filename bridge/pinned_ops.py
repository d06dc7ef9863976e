"""What a caller was shown of each op, so that a tool cannot become another one behind its name (threats.md, P16).

Above: `callers`, one for each session; `mcp_bridge_actor`, which asks before a call. An op that turns up later is kept
as it is first called. Knows no permission: an op that is pinned may be denied all the same.
"""

from collections.abc import Iterable

from bridge.contract.declarations import ActorDeclaration, OpDeclaration
from bridge.contract.errors import MatrixError


class PinnedOps:
    """The definitions of ops, by target and op, as they were when the caller was opened."""

    def __init__(self, declarations: Iterable[ActorDeclaration] = ()) -> None:
        self._pinned: dict[tuple[str, str], OpDeclaration] = {
            (declaration.mount, op.name): op for declaration in declarations for op in declaration.accepts.values()
        }

    def refusal(self, target: str, op: OpDeclaration) -> MatrixError | None:
        """Why `op` may not be called at `target`: its description or a schema is another than the caller knows."""
        if self._pinned.setdefault((target, op.name), op) == op:
            return None
        return MatrixError(
            "MX_AGENT_COMMAND_NOT_ALLOWED",
            f"{op.name!r} on {target!r} was refused: its definition changed after this caller was opened. "
            "A new run sees the new one; trying again in this one does not help.",
            reason="COMMAND_NOT_ALLOWED",
        )
