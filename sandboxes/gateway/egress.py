"""The tunnels of one worker: `CONNECT host:port` on its own socket, for exactly the pairs of its allow-list.

The gateway looks the name up, judges the address, connects and carries bytes; the container has no network to do any
of it. Bounded in number, in time to connect and in idle time; gone with the worker. What it refuses to know: what the
bytes say. Below: `egress_list`, `egress_address`. Above: `worker_gate`.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import SocketStream

from sandboxes.gateway.egress_address import NameLookups, NotPublicError
from sandboxes.gateway.egress_list import Destination, EgressEntryError, parse_destination, parse_egress
from sandboxes.gateway.http_wire import Answer, HttpRequest, Switched
from sandboxes.gateway.refusal import Refusal
from sandboxes.gateway.worker_opening import Failure
from sandboxes.gateway.worker_reports import WorkerReports

CONNECT_S: Final = 10.0
"""Name and connection together; slower means unreachable."""
IDLE_S: Final = 300.0
"""A tunnel through which nothing goes in either direction for this long is closed."""
TUNNELS: Final = 16
"""Of one worker at a time: a package manager opens fewer than ten."""

_PIECE_BYTES: Final = 64 * 1024
_UNREACHABLE: Final = "MX_AGENT_TARGET_NOT_FOUND"
_LEFT: Final = Failure(code="MX_AGENT_CANCELLED", message="The worker left, or was closed.")


@dataclass
class _Traffic:
    """Bytes carried so far: `inward` to the worker, `outward` to the host."""

    inward: int = 0
    outward: int = 0


class Egress:
    """The allow-list of one worker and its open tunnels."""

    def __init__(self, listed: Sequence[str], reports: WorkerReports, idle_s: float = IDLE_S) -> None:
        """Raises `EgressEntryError`."""
        self._listed = parse_egress(listed)
        self._reports = reports
        self._idle_s = idle_s
        self._lookups = NameLookups()
        self._open = 0

    @property
    def offered(self) -> bool:
        """Whether anything is listed at all."""
        return bool(self._listed)

    async def serve(self, request: HttpRequest, answer: Answer) -> Refusal | None:
        """Open the tunnel that is asked for and carry its bytes to the end; or say why not, unanswered."""
        destination = self._admit(request)
        if isinstance(destination, Refusal):
            return destination
        self._open += 1
        try:
            return await self._tunnel(destination, answer)
        finally:
            self._open -= 1

    def _admit(self, request: HttpRequest) -> Destination | Refusal:
        try:
            asked = parse_destination(request.target)
        except EgressEntryError as error:
            return Refusal(403, str(error))
        if asked not in self._listed:
            listed = ", ".join(sorted(map(str, self._listed)))
            return Refusal(403, f"{str(asked)!r} is not on this run's --egress list: {listed}.")
        if request.body:
            return Refusal(400, "A CONNECT has no body.")
        if self._open >= TUNNELS:
            return Refusal(429, f"{TUNNELS} tunnels are open already; close one first.", "MX_AGENT_LIMIT")
        return asked

    async def _tunnel(self, destination: Destination, answer: Answer) -> Refusal | None:
        started, traffic = time.monotonic(), _Traffic()
        error: Failure | None = _LEFT
        try:
            host = await _connect(destination, self._lookups)
            if isinstance(host, Refusal):
                error = Failure(code=host.code, message=host.why)
                return host
            async with host:
                error = await _carry_both(await answer.switch(), host, traffic, self._idle_s)
            return None
        finally:
            duration_ms = round((time.monotonic() - started) * 1000)
            self._reports.egress(destination, traffic.inward, traffic.outward, duration_ms, error)


async def _connect(destination: Destination, lookups: NameLookups) -> SocketStream | Refusal:
    """A connection to one of the judged addresses, the first that answers."""
    try:
        with anyio.fail_after(CONNECT_S):
            return await _first_of(await lookups.addresses_of(destination), destination.port)
    except NotPublicError:
        why = f"The name {destination.host!r} leads to an address that is not public, so it is not connected to."
        return Refusal(403, f"{why} List that address itself if it is meant.")
    except TimeoutError:
        return Refusal(504, f"{str(destination)!r} did not answer within {CONNECT_S:g} s.", _UNREACHABLE)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Refusal(502, f"{str(destination)!r} cannot be reached: {reason}.", _UNREACHABLE)


async def _first_of(addresses: Sequence[str], port: int) -> SocketStream:
    for address in addresses[:-1]:
        try:
            return await anyio.connect_tcp(address, port)
        except OSError:
            continue
    return await anyio.connect_tcp(addresses[-1], port)


async def _carry_both(worker: Switched, host: SocketStream, traffic: _Traffic, idle_s: float) -> Failure | None:
    """Carry bytes both ways until both have ended; the end of one direction is passed on alone."""
    failure: Failure | None = None
    with anyio.CancelScope(deadline=anyio.current_time() + idle_s) as scope:

        def inward(count: int) -> None:
            traffic.inward += count
            scope.deadline = anyio.current_time() + idle_s

        def outward(count: int) -> None:
            traffic.outward += count
            scope.deadline = anyio.current_time() + idle_s

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_carry, worker.receive, host.send, host.send_eof, outward)
                group.start_soon(_carry, _receiver(host), worker.send, worker.send_eof, inward)
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            failure = Failure(code=_UNREACHABLE, message="One end broke the connection off.")
    if scope.cancelled_caught:
        return Failure(code="MX_AGENT_LIMIT", message=f"Nothing went through for {idle_s:g} s, so it was closed.")
    return failure


async def _carry(
    receive: Callable[[], Awaitable[bytes]],
    send: Callable[[bytes], Awaitable[None]],
    send_eof: Callable[[], Awaitable[None]],
    count: Callable[[int], None],
) -> None:
    while piece := await receive():
        await send(piece)
        count(len(piece))
    await send_eof()


def _receiver(stream: SocketStream) -> Callable[[], Awaitable[bytes]]:
    """Reads from `stream`; its end is b"", as on the worker's side."""

    async def receive() -> bytes:
        try:
            return await stream.receive(_PIECE_BYTES)
        except anyio.EndOfStream:
            return b""

    return receive
