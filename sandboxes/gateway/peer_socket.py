"""A unix socket for the processes of one user: who may connect, how many connections, and how it goes away.

Each worker reaches the gateway by one, the supervisor by another. A listener and one small task per connection, so that
a further worker costs kilobytes. Below: `http_wire`. Above: `worker_gate` and `control`, which handle the requests.
"""

import logging
import os
import socket
import struct
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream

from sandboxes.gateway.http_wire import Handler, OnBadRequest, serve_connection

CONNECTIONS: Final = 64
"""Of one worker at a time. Both kinds use fewer than ten, tunnels have a bound of their own; more is a flood."""
BACKLOG: Final = 64

_log: Final = logging.getLogger(__name__)
_PEER: Final = struct.Struct("3i")


class PeerSocket:
    """Listens on `path` for processes of `uid`."""

    def __init__(
        self, path: Path, uid: int, handle: Handler, on_bad_request: OnBadRequest, connections: int = CONNECTIONS
    ) -> None:
        self._path = path
        self._uid = uid
        self._handle = handle
        self._on_bad_request = on_bad_request
        self._connections = connections
        self._open = 0
        self._socket = _bound(path, uid)

    async def serve(self) -> None:
        """Serve until cancelled; then the connections and the socket file are gone."""
        try:
            listener = await SocketListener.from_socket(self._socket)
            await listener.serve(self._connected)
        finally:
            self._socket.close()
            self._path.unlink(missing_ok=True)

    async def _connected(self, stream: SocketStream) -> None:
        async with stream:
            if self._open >= self._connections or _peer_uid(stream) != self._uid:
                return
            self._open += 1
            try:
                await serve_connection(stream, self._handle, self._on_bad_request)
            except* (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
                pass  # the peer left, or does not read: there is nobody to tell
            except* Exception as faults:  # noqa: BLE001 (a fault in one connection must not end the other workers')
                _log.error("A connection failed: %s", ", ".join(type(fault).__name__ for fault in faults.exceptions))
            finally:
                self._open -= 1


def _peer_uid(stream: SocketStream) -> int:
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 (no Django here)
    credentials = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(credentials)[1])


def _bound(path: Path, uid: int) -> socket.socket:
    """A listening socket that `uid` alone may open, where this process may give files away; peers are checked too."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)  # at once: whoever sees the file may connect to it
        if uid == os.geteuid():
            path.chmod(0o600)
        elif os.geteuid() == 0:
            os.chown(path, uid, -1)
            path.chmod(0o600)
        else:
            path.chmod(0o666)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
