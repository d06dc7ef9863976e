"""The real gateway process, a client of it, and a raw connection to a worker's socket."""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sandboxes.gateway.client import GatewayClient, GatewayError, gateway_argv
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.worker_opening import WorkerOpening

REPOSITORY = Path(__file__).parents[3]
START_S = 20
STEP_S = 10


@dataclass
class RunningGateway:
    """The process, its folder, and the test's end of the descriptor that keeps it alive."""

    process: subprocess.Popen[bytes]
    folder: Path
    parent_end: socket.socket

    @property
    def control(self) -> Path:
        return self.folder / "control.sock"


def start_gateway(folder: Path, **environment: str) -> RunningGateway:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            gateway_argv(folder / "control.sock", theirs.fileno()),
            pass_fds=[theirs.fileno()],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
        )
    return RunningGateway(process, folder, ours)


def stop_gateway(running: RunningGateway) -> bytes:
    """End it as its parent's end does; what it wrote to standard error."""
    running.parent_end.close()
    _, written = running.process.communicate(timeout=START_S)
    return written


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a unix socket has 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        yield Path(name)


@pytest.fixture
def environment() -> dict[str, str]:
    """Variables for the gateway's process; tests override it."""
    return {}


@pytest.fixture
async def running(folder: Path, environment: dict[str, str]) -> AsyncIterator[RunningGateway]:
    running = start_gateway(folder, **environment)
    with anyio.fail_after(START_S):
        while not running.control.exists():
            await anyio.sleep(0.01)
    yield running
    assert stop_gateway(running) == b"", "the gateway wrote to standard error"


@pytest.fixture
async def client(running: RunningGateway) -> AsyncIterator[GatewayClient]:
    async with GatewayClient(running.control) as client:
        yield client


@pytest.fixture
async def events(client: GatewayClient) -> AsyncIterator["Events"]:
    async with anyio.create_task_group() as group:
        events = Events(client)
        group.start_soon(events.listen)
        yield events
        group.cancel_scope.cancel()


class Events:
    """Everything the gateway has reported."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client
        self.seen: list[JsonObject] = []
        self._changed = anyio.Event()

    async def listen(self) -> None:
        async for event in self._client.events():
            self.seen.append(event)
            self._changed.set()
            self._changed = anyio.Event()

    def of(self, kind: str) -> list[JsonObject]:
        return [event for event in self.seen if event["type"] == kind]

    async def first(self, kind: str) -> JsonObject:
        """The first event of a kind, once it is there."""
        return (await self.count(kind, 1))[0]

    async def count(self, kind: str, wanted: int) -> list[JsonObject]:
        with anyio.fail_after(STEP_S):
            while len(self.of(kind)) < wanted:
                await self._changed.wait()
        return self.of(kind)


@dataclass
class WorkerSide:
    """What a worker sees of its socket."""

    path: Path

    async def raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own; everything that comes back until it is closed or answered."""
        async with await anyio.connect_unix(str(self.path)) as stream:
            with anyio.fail_after(STEP_S):
                await stream.send(data)
                return await _answer(stream)

    async def post(self, path: str, body: JsonObject | bytes, **headers: str) -> tuple[int, bytes]:
        """One request; its status and its body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return split(await self.raw(request("POST", path, content, **headers)))


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = {"Host": "127.0.0.1:8080", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def split(answer: bytes) -> tuple[int, bytes]:
    """Status and body, the body's chunks put together."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        whole, rest = b"", body
        while rest and not rest.startswith(b"0\r\n"):
            size, _, rest = rest.partition(b"\r\n")
            whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        body = whole
    return (int(head.split(b" ")[1]) if head else 0), body


async def _answer(stream: anyio.abc.SocketStream) -> bytes:
    data = b""
    try:
        while not _complete(data):
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    return data


def _complete(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
    return length is not None and len(body) >= int(length.split(b":")[1])


@pytest.fixture
def open_worker(client: GatewayClient, folder: Path):  # type: ignore[no-untyped-def]  # a function of keywords
    async def open_(worker: str = "worker-a", **fields: object) -> WorkerSide:
        path = folder / f"{worker}.sock"
        values = {"worker": worker, "kind": "claude", "socket": path, "uid": os.geteuid(), **fields}
        await client.open_worker(WorkerOpening.model_validate(values))
        return WorkerSide(path)

    return open_


__all__ = ["Events", "GatewayError", "RunningGateway", "WorkerSide", "request", "split", "start_gateway", "stop_gateway"]
