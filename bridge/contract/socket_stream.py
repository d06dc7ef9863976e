"""A connected socket as a byte stream for many small messages, each of which the kernel mostly takes at once.

What anyio's own stream does, without its turn through the scheduler before every send and every receive, which costs
more than the message itself. Knows no line and no protocol. Above: `json_rpc`, which asks `send_now` first.
"""

import socket
from typing import Final

import anyio
from anyio.abc import ByteStream

RECEIVE_BYTES: Final = 65_536


class SocketStream(ByteStream):
    """Owns `connected`. One task may receive, another send."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._closed = False

    def send_now(self, item: bytes) -> bytes:
        """Send what the kernel takes at once; returns the rest. Raises as `send` does."""
        return item[self._send_some(item) :]

    async def send(self, item: bytes) -> None:
        """`ByteStream.send`. Raises `anyio.ClosedResourceError`, `anyio.BrokenResourceError`."""
        rest = memoryview(item)[self._send_some(item) :]
        while rest:
            await anyio.wait_writable(self._socket)
            rest = rest[self._send_some(rest) :]

    async def receive(self, max_bytes: int = RECEIVE_BYTES) -> bytes:
        """`ByteStream.receive`. Raises `anyio.EndOfStream`, `ClosedResourceError`, `BrokenResourceError`."""
        while True:
            self._refuse_closed()
            # Before the first try, too: other tasks get their turn however fast the other end sends.
            await anyio.wait_readable(self._socket)
            try:
                received = self._socket.recv(max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                self._refuse_closed()
                raise anyio.BrokenResourceError from error
            if not received:
                raise anyio.EndOfStream
            return received

    async def send_eof(self) -> None:
        """`ByteStream.send_eof`."""
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the socket; whoever waits on it gets `ClosedResourceError`. Idempotent."""
        if not self._closed:
            self._closed = True
            anyio.notify_closing(self._socket)
            self._socket.close()

    def _send_some(self, item: bytes | memoryview) -> int:
        self._refuse_closed()
        try:
            return self._socket.send(item)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise anyio.BrokenResourceError from error

    def _refuse_closed(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
