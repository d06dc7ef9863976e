"""The one verb of the bus, and the directory beside it.

Implemented by `local_bus` (in the bridge's process) and `stream_bus` (actor hosts over a byte stream); later by NATS
and by mounted MCP servers. All pass one contract suite. Above: `request_reply`. Knows no permission and no log.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from bridge.contract.declarations import ActorDeclaration
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Caller

Progress = Callable[[float, float | None, str], Awaitable[None]]


@dataclass(frozen=True)
class CallContext:
    """Travels with a request to the actor: the true caller, the call's id, and how long there is left."""

    caller: Caller
    call: str
    timeout_ms: int
    progress: Progress | None = None


class ActorBus(Protocol):
    """Requests an op of an actor."""

    async def request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """The op's result. Raises `MatrixError`: TARGET_NOT_FOUND, OP_NOT_FOUND, ACTOR_ERROR, ACTOR_UNAVAILABLE, …"""

    def declarations(self) -> tuple[ActorDeclaration, ...]:
        """What is mounted now, ordered by mount."""

    def declaration(self, target: str) -> ActorDeclaration | None:
        """The declaration of the actor mounted at `target`, or None."""
