"""RequestReply.execute (spec): carries a decided call out on the bus, within its deadline, and every failure as a code.

Below: an `ActorBus`. Above: `mcp_bridge_actor`, the only caller; whoever gets here has been judged and recorded. It
decides nothing and records nothing.
"""

import logging
from collections.abc import Callable
from typing import Final

import anyio

from bridge.bus.actor_bus import ActorBus, CallContext
from bridge.bus.actor_runtime import op_not_found
from bridge.bus.local_bus import MAX_RESULT_BYTES, MAX_RESULT_DEPTH, target_not_found, unfit_result
from bridge.contract import strict_json
from bridge.contract.declarations import ActorDeclaration, OpDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

TOOL_TIMEOUT_MS: Final = 15_000
INTROSPECT_TIMEOUT_MS: Final = 5_000

_log = logging.getLogger(__name__)


class RequestReply:
    """One request, one reply or one typed error, never both: what comes after the deadline is dropped."""

    def __init__(self, bus: ActorBus, on_timeout: Callable[[str], object] | None = None) -> None:
        """`on_timeout` is told the target of each call that was given up."""
        self._bus = bus
        self._on_timeout = on_timeout

    def actor(self, target: str) -> ActorDeclaration:
        """The declaration of the actor at `target`. Raises `MX_AGENT_TARGET_NOT_FOUND`."""
        declaration = self._bus.declaration(target)
        if declaration is None:
            raise target_not_found(target)
        return declaration

    def op(self, target: str, op: str) -> OpDeclaration:
        """The declaration of the op. Raises `MatrixError`: TARGET_NOT_FOUND, OP_NOT_FOUND."""
        declaration = self.actor(target)
        declared = declaration.op(op)
        if declared is None:
            raise op_not_found(declaration, op)
        return declared

    async def execute(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """The op's result, at most 4 MiB and 64 levels of JSON.

        Raises `MatrixError`: TARGET_NOT_FOUND, OP_NOT_FOUND, TOOL_TIMEOUT (INTROSPECT_TIMEOUT), TOO_LARGE,
        INVALID_RESULT, ACTOR_ERROR, ACTOR_UNAVAILABLE. Cancelling it reaches the actor.
        """
        self.op(target, op)
        with anyio.move_on_after(ctx.timeout_ms / 1000):
            return _checked(await self._request(ctx, target, op, payload), target, op)
        if self._on_timeout is not None:
            self._on_timeout(target)
        raise MatrixError(
            "MX_AGENT_INTROSPECT_TIMEOUT" if op == "$introspect" else "MX_AGENT_TOOL_TIMEOUT",
            f"{op!r} at {target!r} did not answer within {ctx.timeout_ms} ms. It may still have taken effect.",
        )

    async def _request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        try:
            return await self._bus.request(ctx, target, op, payload)
        except MatrixError:
            raise
        except Exception as error:  # noqa: BLE001 - the wall: a bus's own failure is told by its code, never by its text
            _log.error("the bus failed with %s on %r at %r", type(error).__name__, op, target)
            raise MatrixError("MX_AGENT_ACTOR_ERROR", f"{op!r} at {target!r} failed.") from None


def _checked(value: JsonValue, target: str, op: str) -> JsonValue:
    try:
        strict_json.dumps(value, max_bytes=MAX_RESULT_BYTES, max_depth=MAX_RESULT_DEPTH)
    except MatrixError as error:
        raise unfit_result(error, target, op) from None
    return value
