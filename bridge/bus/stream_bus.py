"""Actors beyond a byte stream: the bridge's end of one actor host's stream (docs/wires.md).

The second implementation of `actor_bus.ActorBus`. Below: `json_rpc`. Above: `host_process`, which starts the host and
gives the stream. The host is not trusted: declarations are read by `from_introspect`, and whatever code it answers
with, it can only say that its own actor failed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

import anyio
from anyio.abc import ByteStream

from bridge.bus import host_wire
from bridge.bus.actor_bus import CallContext, Progress
from bridge.bus.actor_runtime import as_actors_own
from bridge.bus.local_bus import target_not_found
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue

RELOAD_TIMEOUT_MS: Final = 60_000
PING_TIMEOUT_MS: Final = 5_000
"""A host that does not answer for this long, after a call timed out, is taken for hung."""
MAX_ACTORS: Final = 1024

_CODES_OF_A_HOST: Final = frozenset(
    {
        "MX_AGENT_ACTOR_ERROR",
        "MX_AGENT_ACTOR_UNAVAILABLE",
        "MX_AGENT_CANCELLED",
        "MX_AGENT_INVALID_ARGUMENTS",
        "MX_AGENT_INVALID_RESULT",
        "MX_AGENT_OP_NOT_FOUND",
        "MX_AGENT_TARGET_NOT_FOUND",
        "MX_AGENT_TOO_LARGE",
        "MX_AGENT_TOOL_TIMEOUT",
    }
)


@dataclass(frozen=True)
class HostListing:
    """What a host says it holds, and what it could not load (`{"file", "line", "message"}` each)."""

    declarations: dict[str, ActorDeclaration] = field(default_factory=dict)
    problems: tuple[JsonObject, ...] = ()


OnListing = Callable[[HostListing], None]
OnNotice = Callable[[str, JsonObject], None]


class StreamBus:
    """The actors of one host. `run()` serves the stream until it ends; then every request is ACTOR_UNAVAILABLE."""

    def __init__(
        self, stream: ByteStream, on_listing: OnListing | None = None, on_notice: OnNotice | None = None
    ) -> None:
        self.ready: Final = anyio.Event()
        self.listing = HostListing()
        self._on_listing = on_listing
        self._on_notice = on_notice
        self._progress: dict[str, Progress] = {}
        self._peer = JsonRpcPeer(
            stream,
            self._refuse,
            self._hear,
            max_line_bytes=host_wire.HOST_LINE_BYTES,
            closed_code="MX_AGENT_ACTOR_UNAVAILABLE",
        )

    async def run(self) -> None:
        """Serve until the stream ends."""
        await self._peer.run()

    async def aclose(self) -> None:
        """Close the stream, which ends the host."""
        await self._peer.aclose()

    async def request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """`ActorBus.request`."""
        if target not in self.listing.declarations:
            raise target_not_found(target)
        if ctx.progress is not None:
            self._progress[ctx.call] = ctx.progress
        try:
            answer = await self._peer.request(host_wire.REQUEST, _request(ctx, target, op, payload))
        except MatrixError as error:
            raise error if error.code in _CODES_OF_A_HOST else as_actors_own(error, target, op) from None
        finally:
            self._progress.pop(ctx.call, None)
        return answer.get("value") if isinstance(answer, dict) else None

    def declarations(self) -> tuple[ActorDeclaration, ...]:
        """`ActorBus.declarations`."""
        return tuple(self.listing.declarations[target] for target in sorted(self.listing.declarations))

    def declaration(self, target: str) -> ActorDeclaration | None:
        """`ActorBus.declaration`."""
        return self.listing.declarations.get(target)

    async def reload(self) -> HostListing:
        """Have the host load what changed. Raises `MatrixError`: ACTOR_UNAVAILABLE, TOOL_TIMEOUT."""
        self._take_listing(cast("JsonObject", await self._peer.request(host_wire.RELOAD, {}, RELOAD_TIMEOUT_MS)))
        return self.listing

    async def guard(self) -> None:
        """Have the host watch its files no longer. Raises `MatrixError`: ACTOR_UNAVAILABLE, TOOL_TIMEOUT."""
        await self._peer.request(host_wire.GUARD, {}, PING_TIMEOUT_MS)

    async def is_alive(self) -> bool:
        """Whether the host's event loop answers."""
        try:
            await self._peer.request(host_wire.PING, {}, PING_TIMEOUT_MS)
        except MatrixError:
            return False
        return True

    async def _refuse(self, method: str, _params: JsonObject) -> JsonValue:
        raise method_not_found(method)

    async def _hear(self, method: str, params: JsonObject) -> None:
        if method in (host_wire.READY, host_wire.ACTORS_CHANGED):
            self._take_listing(params)
            self.ready.set()
        elif method == host_wire.PROGRESS:
            await self._hear_progress(params)
        elif method in (host_wire.STATE_CHANGED, host_wire.EVENT) and self._on_notice is not None:
            self._on_notice(method, params)

    async def _hear_progress(self, params: JsonObject) -> None:
        listener = self._progress.get(str(params.get("call")))
        done, total = params.get("done"), params.get("total")
        if listener is not None and isinstance(done, int | float):
            await listener(done, total if isinstance(total, int | float) else None, str(params.get("text", "")))

    def _take_listing(self, told: JsonObject) -> None:
        self.listing = read_listing(told, self.listing)
        if self._on_listing is not None:
            self._on_listing(self.listing)


def read_listing(told: JsonObject, before: HostListing) -> HostListing:
    """A host's listing. A malformed declaration becomes a problem; one that did not change stays the same object."""
    declarations: dict[str, ActorDeclaration] = {}
    problems = [problem for problem in _list(told.get("problems")) if isinstance(problem, dict)]
    for entry in _list(told.get("actors"))[:MAX_ACTORS]:
        try:
            declaration = ActorDeclaration.from_introspect(entry)
        except MatrixError as error:
            problems.append({"file": "", "line": 0, "message": error.message})
            continue
        known = before.declarations.get(declaration.mount)
        declarations[declaration.mount] = known if known == declaration else declaration
    return HostListing(declarations, tuple(problems))


def _request(ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonObject:
    return {
        "target": target,
        "op": op,
        "payload": payload,
        "caller": host_wire.caller_to_json(ctx.caller),
        "call": ctx.call,
        "timeoutMs": ctx.timeout_ms,
    }


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
