"""The socket that callers reach the bridge by: one connection a caller, bound to a capability (docs/wires.md).

Above: `client` on the other side. Below: `callers`, `mcp_bridge_actor`. The peer's uid and the capability are all the
identity there is; what a message claims is not looked at.
"""

import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketListener

from bridge.callers import Callers, CallerSession
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream
from bridge.mcp_bridge_actor import InvokeOptions, McpBridgeActor

MAX_LINE_BYTES: Final = 4 * 1024 * 1024 + 64 * 1024
MAX_CALLS_AT_ONCE: Final = 64
"""Calls of one connection that run side by side; more wait in the socket, so a flood slows its sender alone."""
HELLO_TIMEOUT_MS: Final = 10_000
"""A connection that has not bound a capability by then is closed."""
MAX_WORKER_CALL_CHARACTERS: Final = 256
_PEER_CREDENTIALS: Final = struct.Struct("3i")

_log = logging.getLogger(__name__)


class WorkerChannel:
    """Serves the socket."""

    def __init__(self, callers: Callers, actor: McpBridgeActor) -> None:
        self._callers = callers
        self._actor = actor

    async def serve(self, listener: SocketListener) -> None:
        """Accept connections until cancelled."""
        await listener.serve(self._serve_connection)

    async def _serve_connection(self, stream: ByteStream) -> None:
        async with stream:
            connection = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - a socket's attribute, not a database
            if _peer_uid(connection) == os.getuid():
                await _Connection(SocketStream(connection), self._callers, self._actor).run()
            else:
                _log.warning("a connection of another user was refused")


class _Connection:
    """One connection: unbound until `hello`, then its session's, until either ends."""

    def __init__(self, stream: ByteStream, callers: Callers, actor: McpBridgeActor) -> None:
        self._callers = callers
        self._actor = actor
        self._session: CallerSession | None = None
        self._bound = anyio.Event()
        self._peer = JsonRpcPeer(
            stream,
            self._serve,
            max_line_bytes=MAX_LINE_BYTES,
            on_malformed=self._record_malformed,
            max_handlers=MAX_CALLS_AT_ONCE,
        )

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._close_with_session)
            await self._peer.run()
            tasks.cancel_scope.cancel()

    async def _close_with_session(self) -> None:
        with anyio.move_on_after(HELLO_TIMEOUT_MS / 1000):
            await self._bound.wait()
        if self._session is not None:
            await self._session.closed.wait()
        await self._peer.aclose()

    async def _serve(self, method: str, params: JsonObject) -> JsonValue:
        if method == "hello":
            return self._hello(params)
        if self._session is None:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", "Say 'hello' with a capability first.")
        if method != "tool.invoke":
            raise method_not_found(method)
        options = InvokeOptions(worker_call=_worker_call(params))
        with self._session.open_call():
            answer = await self._actor.invoke(self._session, params, options)
        return {"call": answer.call, "result": answer.result}

    def _hello(self, params: JsonObject) -> JsonValue:
        if self._session is not None:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", "This connection is bound already.")
        self._session = self._callers.bind(params.get("capability"))
        self._bound.set()
        return {"worker": self._session.caller.worker, "role": self._session.caller.role}

    async def _record_malformed(self, error: MatrixError, message: JsonObject | None) -> None:
        """A line that is no call is refused by the peer; a bound caller's has a record of its refusal as well."""
        params = message.get("params") if message is not None else None
        if self._session is None or (message is not None and message.get("method") != "tool.invoke"):
            return
        asked = params if isinstance(params, dict) else {}
        told: JsonObject = {"code": error.code, "message": error.message}
        try:
            await self._actor.invoke(
                self._session, {"target": asked.get("target"), "op": asked.get("op"), "payloadError": told}
            )
        except MatrixError as refusal:
            _log.info("a malformed line was refused with %s", refusal.code)


@asynccontextmanager
async def listen(path: Path) -> AsyncIterator[SocketListener]:
    """The socket at `path` (0600, its folder 0700), removed again at the end. Raises `OSError`."""
    _make_room(path)
    listener = await anyio.create_unix_listener(path, mode=0o600)
    try:
        async with listener:
            yield listener
    finally:
        await anyio.Path(path).unlink(missing_ok=True)


def _make_room(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if path.exists() and not stat.S_ISSOCK(path.lstat().st_mode):
        raise FileExistsError(f"{path} is in the way and is no socket")


def _peer_uid(connection: socket.socket) -> int:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(told)
    return int(uid)


def _worker_call(params: JsonObject) -> str | None:
    told = params.get("workerCall")
    return told[:MAX_WORKER_CALL_CHARACTERS] if isinstance(told, str) else None
