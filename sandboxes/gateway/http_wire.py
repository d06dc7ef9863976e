"""Speaks HTTP/1.1 on one connection: reads whole requests, writes answers, notices that the other end left.

Below: a byte stream. Above: `peer_socket`. h11 parses, after `request_head` has refused what it is lenient about:
such a request is answered 400 and the connection closed. What it refuses to know: what is asked.
"""

import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from sandboxes.gateway.request_head import BadRequestError, check_head
from sandboxes.gateway.request_policy import Headers

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""The providers' own limit on a request."""
HEAD_S: Final = 10.0
"""From the first byte of a request to the end of its head."""
BODY_S: Final = 60.0
"""From the head to the end of the body, over a local socket."""
KEEP_ALIVE_S: Final = 300.0
"""An idle connection is closed after this."""
WRITE_S: Final = 60.0
"""A worker that does not read its answer for this long has left."""

_READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class HttpRequest:
    """One whole request. Header names are lower-case."""

    method: str
    target: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key == name), None)


class PeerLeftError(Exception):
    """The connection ended before a request began."""


class Answer:
    """What a handler answers through: once as a whole, or `start`, then `send` as often as wanted, then `finish`."""

    def __init__(self, connection: h11.Connection, stream: ByteStream, inbox: "_Inbox") -> None:
        self._connection = connection
        self._stream = stream
        self._inbox = inbox
        self.watch = anyio.CancelScope()
        self.started = False

    async def whole(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Answer at once. Status 204 has neither a body nor its length."""
        length = [] if status == 204 else [("content-length", str(len(body)))]
        await self.start(status, [*headers, *length])
        await self.send(body)
        await self.finish()

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head."""
        self.started = True
        await self._write(h11.Response(status_code=status, headers=list(headers), reason=b""))

    async def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        if data:
            await self._write(h11.Data(data=data))

    async def finish(self) -> None:
        """End the body."""
        await self._write(h11.EndOfMessage())

    async def switch(self) -> "Switched":
        """Accept a CONNECT: from here on the connection carries bytes, and its end no longer cancels the handler."""
        self.watch.cancel()
        early = self._connection.trailing_data[0]
        await self.start(200, ())
        return Switched(early, self._inbox, self._stream)

    async def _write(self, event: h11.Event) -> None:
        data = self._connection.send(event)
        if data:
            with anyio.fail_after(WRITE_S):
                await self._stream.send(data)


Handler = Callable[[HttpRequest, Answer], Awaitable[None]]
OnBadRequest = Callable[[BadRequestError, Answer], Awaitable[None]]


async def serve_connection(stream: ByteStream, handle: Handler, on_bad_request: OnBadRequest) -> None:
    """Serve requests one after the other until either side ends the connection. The handler is cancelled when the
    worker leaves in the middle of its answer."""
    inbox = _Inbox(stream)
    async with anyio.create_task_group() as group:
        group.start_soon(inbox.pump)
        try:
            await _serve_requests(_RequestReader(stream, inbox), stream, handle, on_bad_request)
        finally:
            inbox.stop()


async def _serve_requests(
    reader: "_RequestReader", stream: ByteStream, handle: Handler, on_bad_request: OnBadRequest
) -> None:
    while True:
        answer = Answer(reader.connection, stream, reader.inbox)
        try:
            request = await reader.next_request()
        except PeerLeftError:
            return
        except BadRequestError as error:
            await on_bad_request(error, answer)
            return
        async with anyio.create_task_group() as group:
            group.start_soon(reader.inbox.cancel_when_ended, group.cancel_scope, answer.watch)
            await handle(request, answer)
            group.cancel_scope.cancel()
        if not reader.may_go_on():
            return


class _Inbox:
    """Reads the connection all the time, so that its end is noticed while an answer is written; holds one piece."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ended = anyio.Event()
        self._put, self._pieces = anyio.create_memory_object_stream[bytes](1)

    async def pump(self) -> None:
        """Read until the connection ends."""
        with self._put:
            try:
                while True:
                    await self._put.send(await self._stream.receive(_READ_BYTES))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._ended.set()

    async def receive(self) -> bytes:
        """The next piece; empty at the end."""
        try:
            return await self._pieces.receive()
        except anyio.EndOfStream:
            return b""

    def stop(self) -> None:
        """End the pump by ending what it reads: cancelling a read that is just done makes the event loop complain."""
        self._pieces.close()
        with suppress(OSError):
            self._stream.extra(SocketAttribute.raw_socket).shutdown(socket.SHUT_RD)  # noqa: S610 (no Django here)

    async def cancel_when_ended(self, scope: anyio.CancelScope, watch: anyio.CancelScope) -> None:
        """Cancel `scope` when the worker leaves, for as long as `watch` lasts."""
        with watch:
            await self._ended.wait()
            scope.cancel()


class Switched:
    """The worker's end of a connection that is no longer HTTP. `send` and `receive` as a stream's; b"" is the end."""

    def __init__(self, early: bytes, inbox: _Inbox, stream: ByteStream) -> None:
        self._early = early
        self._inbox = inbox
        self.send = stream.send
        self.send_eof = stream.send_eof

    async def receive(self) -> bytes:
        """The next bytes of the worker, those first that came with its request."""
        early, self._early = self._early, b""
        return early or await self._inbox.receive()


class _RequestReader:
    """Reads one request at a time; holds h11's state of the connection."""

    def __init__(self, stream: ByteStream, inbox: _Inbox) -> None:
        self._stream = stream
        self.inbox = inbox
        self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    def may_go_on(self) -> bool:
        """Whether another request may follow on this connection."""
        if self.connection.our_state is not h11.DONE or self.connection.their_state is not h11.DONE:
            return False
        if self.connection.trailing_data[0]:
            return False
        self.connection.start_next_cycle()
        return True

    async def next_request(self) -> HttpRequest:
        """The next request. Raises `BadRequestError`, `PeerLeftError`."""
        head, rest = await self._head()
        check_head(head)
        try:
            self.connection.receive_data(head + rest)
            event = self.connection.next_event()
            if not isinstance(event, h11.Request):
                raise BadRequestError(400, "The request's head cannot be read.")
            headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers)
            body = await self._body(headers)
        except h11.RemoteProtocolError as error:
            raise BadRequestError(400, f"The request is not valid HTTP/1.1: {error}.") from None
        return HttpRequest(event.method.decode("ascii"), event.target.decode("latin-1"), headers, body)

    async def _head(self) -> tuple[bytes, bytes]:
        data = b""
        with anyio.move_on_after(KEEP_ALIVE_S):
            data = await self.inbox.receive()
        if not data:
            raise PeerLeftError
        try:
            with anyio.fail_after(HEAD_S):
                while b"\r\n\r\n" not in data:
                    if len(data) > MAX_HEAD_BYTES:
                        raise BadRequestError(431, f"The request's head is over {MAX_HEAD_BYTES} bytes.")
                    more = await self.inbox.receive()
                    if not more:
                        raise BadRequestError(400, "The request's head is not complete.")
                    data += more
        except TimeoutError:
            raise BadRequestError(408, f"The request's head was not complete within {HEAD_S:g} s.") from None
        end = data.index(b"\r\n\r\n") + 4
        return data[:end], data[end:]

    async def _body(self, headers: Headers) -> bytes:
        announced = next((int(value) for name, value in headers if name == "content-length"), 0)
        if announced > MAX_BODY_BYTES:
            raise BadRequestError(413, f"The body is over {MAX_BODY_BYTES} bytes.")
        try:
            with anyio.fail_after(BODY_S):
                return await self._collect()
        except TimeoutError:
            raise BadRequestError(408, f"The body was not complete within {BODY_S:g} s.") from None

    async def _collect(self) -> bytes:
        body = bytearray()
        while True:
            event = self.connection.next_event()
            if event is h11.NEED_DATA:
                if self.connection.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                    await self._stream.send(self.connection.send(go_on) or b"")
                self.connection.receive_data(await self.inbox.receive())
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise BadRequestError(413, f"The body is over {MAX_BODY_BYTES} bytes.")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            else:
                raise BadRequestError(400, "The connection ended inside the body.")
