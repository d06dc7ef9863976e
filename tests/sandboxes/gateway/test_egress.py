"""Tunnels of the real gateway process: what is listed is reached, nothing else is (threats.md, N1, N2)."""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSListener, TLSStream

from sandboxes.gateway.client import GatewayError
from sandboxes.gateway.egress import TUNNELS, Egress
from sandboxes.gateway.event_feed import EventFeed
from sandboxes.gateway.http_wire import Answer, HttpRequest
from sandboxes.gateway.peer_socket import PeerSocket
from sandboxes.gateway.request_head import BadRequestError
from sandboxes.gateway.worker_opening import WorkerOpening
from sandboxes.gateway.worker_reports import WorkerReports
from tests.e2e.local_upstream import server_tls
from tests.sandboxes.gateway.conftest import STEP_S, WorkerSide, request, split

HELLO = "steps: [{say: hello}]"


@dataclass
class Host:
    """A listed host: echoes until the other side has ended its direction, says `bye`, and ends its own."""

    port: int
    connections: int = 0
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def pair(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, stream: SocketStream | TLSStream) -> None:
        self.connections += 1
        try:
            async with stream:
                async for piece in stream:
                    await stream.send(piece)
                await stream.send(b"bye")
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            pass  # the other side is gone altogether
        self.ended.set()


@asynccontextmanager
async def listed_host(tls: ssl.SSLContext | None = None) -> AsyncIterator[Host]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    host = Host(listener.extra(anyio.abc.SocketAttribute.local_port))
    serving = listener if tls is None else TLSListener(listener, tls, standard_compatible=False)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(serving.serve, host.serve)
        yield host
        group.cancel_scope.cancel()


@asynccontextmanager
async def tunnel(
    worker, target: str, version: str = "1.1", early: bytes = b""
) -> AsyncIterator[tuple[bytes, SocketStream]]:
    """Ask for a tunnel: the head of the answer, and the connection."""
    head = f"CONNECT {target} HTTP/{version}\r\n" + (f"Host: {target}\r\n" if version == "1.1" else "") + "\r\n"
    with anyio.fail_after(STEP_S):
        async with await anyio.connect_unix(str(worker.path)) as stream:
            await stream.send(head.encode() + early)
            yield await stream.receive(), stream


async def rest(stream) -> bytes:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_listed_host_is_reached_over_tls_and_the_tunnel_is_reported(
    client, events, open_worker, tmp_path, version: str
) -> None:
    context, ca_file = server_tls(tmp_path)
    async with listed_host(context) as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair, version) as (answer, stream):
            assert answer.startswith(b"HTTP/1.1 200 ")
            trusting = ssl.create_default_context(cafile=ca_file)
            inside = await TLSStream.wrap(stream, hostname="127.0.0.1", ssl_context=trusting, standard_compatible=False)
            await inside.send(b"hello")
            assert await inside.receive() == b"hello"
            await inside.aclose()

        event = await events.first("egress")
        assert (event["worker"], event["host"], event["port"]) == ("worker-a", "127.0.0.1", host.port)
        assert event["bytesIn"] > 5
        assert event["bytesOut"] > 5
        assert event["durationMs"] >= 0
        assert "error" not in event


async def test_bytes_sent_with_the_request_arrive_and_each_direction_ends_alone(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair, early=b"early ") as (answer, stream):
            assert answer.startswith(b"HTTP/1.1 200")
            await stream.send(b"late")
            await stream.send_eof()
            echoed = answer.partition(b"\r\n\r\n")[2] + await rest(stream)

        assert echoed == b"early latebye"
        event = await events.first("egress")
        assert (event["bytesOut"], event["bytesIn"]) == (10, 13)


async def test_a_megabyte_comes_through_unchanged(client, events, open_worker) -> None:
    content = bytes(range(256)) * 4096
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair) as (_, stream), anyio.create_task_group() as group:

            async def send() -> None:
                await stream.send(content)
                await stream.send_eof()

            group.start_soon(send)
            assert await rest(stream) == content + b"bye"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("127.0.0.1:{other}", 403),
        ("127.0.0.2:{port}", 403),
        ("localhost:{port}", 403),
        ("127.1:{port}", 403),
        ("2130706433:{port}", 403),
        ("[::ffff:127.0.0.1]:{port}", 403),
        ("127.0.0.1.:{port}", 403),
        ("user@127.0.0.1:{port}", 403),
        ("127.0.0.1:{port}/", 403),
        ("127.0.0.1", 403),
        ("http://127.0.0.1:{port}/", 403),
        ("*:{port}", 403),
    ],
)
async def test_what_is_not_listed_is_refused_and_reported(
    client, events, open_worker, target: str, status: int
) -> None:
    async with listed_host() as host, listed_host() as other:
        worker = await open_worker(script=HELLO, egress=[host.pair])
        target = target.format(port=host.port, other=other.port)

        async with tunnel(worker, target) as (answer, _):
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())

        refused = await events.first("refusedRequest")
        assert (refused["method"], refused["path"], refused["status"]) == ("CONNECT", target, status)
        assert not events.of("egress")
        assert (host.connections, other.connections) == (0, 0)


async def test_without_a_list_nothing_is_offered(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO)

        async with tunnel(worker, host.pair) as (answer, _):
            assert answer.startswith(b"HTTP/1.1 405")

        assert (await events.first("refusedRequest"))["status"] == 405
        assert host.connections == 0


async def test_a_name_that_leads_to_a_private_address_is_refused_though_it_is_listed(
    client, events, open_worker
) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[f"localhost:{host.port}"])

        async with tunnel(worker, f"LOCALHOST:{host.port}") as (answer, _):
            assert answer.startswith(b"HTTP/1.1 403")

        assert "not public" in str((await events.first("refusedRequest"))["why"])
        assert (await events.first("egress"))["error"]["code"] == "MX_AGENT_COMMAND_NOT_ALLOWED"
        assert host.connections == 0


async def test_a_host_that_is_not_there_is_a_typed_failure(client, events, open_worker) -> None:
    worker = await open_worker(script=HELLO, egress=["127.0.0.1:1", "no-such-host.invalid:443"])

    for target in ("127.0.0.1:1", "no-such-host.invalid:443"):
        async with tunnel(worker, target) as (answer, _):
            assert answer.startswith(b"HTTP/1.1 502")

    failed = await events.count("egress", 2)
    assert {event["error"]["code"] for event in failed} == {"MX_AGENT_TARGET_NOT_FOUND"}


async def test_a_request_with_an_absolute_uri_is_told_to_use_a_tunnel(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        status, body = split(await worker.raw(request("GET", f"http://{host.pair}/", Content_Length="0")))

        assert status == 400
        assert b"Plain HTTP is not forwarded" in body
        assert host.connections == 0


async def test_a_tunnel_request_with_a_body_is_refused(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        status, _ = split(await worker.raw(request("CONNECT", host.pair, b"hello")))

        assert status == 400
        assert host.connections == 0


async def test_tunnels_end_with_their_worker(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair) as (_, stream):
            await client.close_worker("worker-a")
            assert await rest(stream) == b""
            await host.ended.wait()

        assert (await events.first("egress"))["error"]["code"] == "MX_AGENT_CANCELLED"


async def test_a_worker_that_leaves_ends_the_connection_to_the_host(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair):
            pass

        with anyio.fail_after(STEP_S):
            await host.ended.wait()
        await events.first("egress")


async def test_the_number_of_tunnels_is_bounded_and_a_closed_one_makes_room(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])
        streams = []
        for _ in range(TUNNELS):
            stream = await anyio.connect_unix(str(worker.path))
            await stream.send(f"CONNECT {host.pair} HTTP/1.1\r\nHost: {host.pair}\r\n\r\n".encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            streams.append(stream)

        async with tunnel(worker, host.pair) as (answer, _):
            assert answer.startswith(b"HTTP/1.1 429")

        await streams.pop().aclose()
        await events.first("egress")
        async with tunnel(worker, host.pair) as (answer, _):
            assert answer.startswith(b"HTTP/1.1 200")
        for stream in streams:
            await stream.aclose()
        await events.count("egress", TUNNELS + 1)


async def test_a_tunnel_that_nothing_goes_through_is_closed(folder) -> None:
    opening = WorkerOpening(worker="w", kind="claude", socket=folder / "w.sock", uid=os.geteuid())
    feed = EventFeed()
    async with listed_host() as host, anyio.create_task_group() as group:
        egress = Egress([host.pair], WorkerReports(opening, feed), idle_s=0.05)

        async def handle(asked: HttpRequest, answer: Answer) -> None:
            assert await egress.serve(asked, answer) is None

        async def reject(error: BadRequestError, _: Answer) -> None:
            raise error

        group.start_soon(PeerSocket(opening.socket, opening.uid, handle, reject).serve)
        async with tunnel(WorkerSide(opening.socket), host.pair) as (answer, stream):
            assert answer.startswith(b"HTTP/1.1 200")
            assert await rest(stream) == b""

        async with feed.listen() as told:
            assert "MX_AGENT_LIMIT" in str((await told.receive())["error"])
        group.cancel_scope.cancel()


async def test_a_tunnel_leaves_the_workers_model_as_it_was(client, events, open_worker) -> None:
    async with listed_host() as host:
        worker = await open_worker(script=HELLO, egress=[host.pair])

        async with tunnel(worker, host.pair):
            status, _ = split(await worker.raw(request("GET", "/v1/models", Content_Length="0")))

        assert status == 200


async def test_a_malformed_list_is_refused_when_the_worker_is_opened(client, open_worker) -> None:
    with pytest.raises(GatewayError, match="Write HOST:PORT") as refused:
        await open_worker(script=HELLO, egress=["*.example.com:443"])

    assert refused.value.code == "MX_AGENT_INVALID_ARGUMENTS"
