"""What a caller outside the bridge holds: one connection, one method, `invoke`.

Crosses the process boundary under a capability (docs/wires.md, worker channel). Below: `contract.json_rpc`. Above: the
supervisor's tool delegate and the command line. It knows no policy and no actor; without a bridge every call is
refused.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import SocketAttribute

from bridge.contract import strict_json
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream

CONNECT_TIMEOUT_MS: Final = 5_000
HELLO_TIMEOUT_MS: Final = 5_000
INVOKE_TIMEOUT_MS: Final = 180_000
"""The bound of one call for a bridge that hangs: approval (120 s), tool (15 s) and the log, with room."""
MAX_LINE_BYTES: Final = 4 * 1024 * 1024 + 64 * 1024
"""A result of 4 MiB with its envelope."""
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
MAX_PAYLOAD_DEPTH: Final = 64


class BridgeClient:
    """A bound channel to the bridge, made by `connect`. Calls may run side by side."""

    def __init__(self, peer: JsonRpcPeer, worker: str | None, role: str) -> None:
        self._peer = peer
        self.worker = worker
        self.role = role

    async def invoke(
        self,
        target: str,
        op: str,
        payload: JsonObject,
        worker_call: str | None = None,
        timeout_ms: float = INVOKE_TIMEOUT_MS,
    ) -> tuple[str, JsonValue]:
        """(the call's id in the log, its result). Raises `MatrixError`; `data["call"]` is the id where there is one.

        BRIDGE_UNAVAILABLE: nothing was executed. BRIDGE_RESTARTED: the bridge died during the call, whose outcome is
        unknown. Cancelling it cancels the call in the actor.
        """
        return await self._request(_asked(target, op, payload, worker_call), op, target, timeout_ms)

    async def invoke_text(
        self, target: str, op: str, text: str, timeout_ms: float = INVOKE_TIMEOUT_MS
    ) -> tuple[str, JsonValue]:
        """`invoke` with a payload that somebody typed: text that is no JSON object is refused and recorded, too."""
        try:
            payload = strict_json.loads(text, max_bytes=MAX_PAYLOAD_BYTES, max_depth=MAX_PAYLOAD_DEPTH)
            if not isinstance(payload, dict):
                raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", "The payload must be a JSON object.")
        except MatrixError as error:
            return await self._request(_unsendable(target, op, error), op, target, timeout_ms)
        return await self.invoke(target, op, payload, timeout_ms=timeout_ms)

    async def _request(self, asked: JsonObject, op: str, target: str, timeout_ms: float) -> tuple[str, JsonValue]:
        was_open = not self._peer.closed
        try:
            answer = await self._peer.request("tool.invoke", asked, timeout_ms)
        except MatrixError as error:
            if error.code == "MX_AGENT_BRIDGE_UNAVAILABLE" and was_open and self._peer.closed:
                raise MatrixError(
                    "MX_AGENT_BRIDGE_RESTARTED",
                    f"The bridge went away while {op!r} at {target!r} was running. Check whether it took effect.",
                ) from None
            raise
        if not isinstance(answer, dict) or not isinstance(answer.get("call"), str):
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", "The bridge answered with something else than a result.")
        return str(answer["call"]), answer.get("result")


@asynccontextmanager
async def connect(socket: Path, capability: str) -> AsyncIterator[BridgeClient]:
    """Connect to the bridge's socket and bind `capability`, which can be done once.

    Raises `MatrixError` `MX_AGENT_BRIDGE_UNAVAILABLE`: no bridge there, or the capability is not (or no longer) good.
    """
    stream = await _open(socket)
    peer = JsonRpcPeer(stream, _refuse, max_line_bytes=MAX_LINE_BYTES)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.run)
            try:
                yield await _hello(peer, capability)
            finally:
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise _only(group) from None


async def _open(socket: Path) -> SocketStream:
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_MS / 1000):
            connected = await anyio.connect_unix(socket)
    except (OSError, TimeoutError) as error:
        raise MatrixError(
            "MX_AGENT_BRIDGE_UNAVAILABLE",
            f"No bridge answers at {str(socket)!r} ({type(error).__name__}). 'mxs up' starts it.",
        ) from None
    return SocketStream(connected.extra(SocketAttribute.raw_socket))  # noqa: S610 - a socket's attribute, no database


async def _hello(peer: JsonRpcPeer, capability: str) -> BridgeClient:
    answer = await peer.request(
        "hello", {"capability": capability}, HELLO_TIMEOUT_MS, timeout_code="MX_AGENT_BRIDGE_UNAVAILABLE"
    )
    told = answer if isinstance(answer, dict) else {}
    worker = told.get("worker")
    return BridgeClient(peer, worker if isinstance(worker, str) else None, str(told.get("role", "")))


def _asked(target: str, op: str, payload: JsonObject, worker_call: str | None) -> JsonObject:
    asked: JsonObject = {"target": _storable(target), "op": _storable(op)}
    if worker_call is not None:
        asked["workerCall"] = _storable(worker_call)
    try:
        strict_json.dumps(payload, max_bytes=MAX_PAYLOAD_BYTES, max_depth=MAX_PAYLOAD_DEPTH)
    except MatrixError as error:
        return {**asked, **_unsendable(target, op, error)}
    return {**asked, "payload": payload}


def _unsendable(target: str, op: str, error: MatrixError) -> JsonObject:
    """A call whose payload cannot be sent, and has to be recorded and refused all the same."""
    told: JsonObject = {"code": error.code, "message": error.message}
    return {"target": _storable(target), "op": _storable(op), "payloadError": told}


def _storable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


async def _refuse(method: str, _params: JsonObject) -> JsonValue:
    raise method_not_found(method)


def _only(group: ExceptionGroup[Exception]) -> Exception:
    """The one exception that the caller's own block raised."""
    error: Exception = group
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
