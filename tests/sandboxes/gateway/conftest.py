"""The real gateway process, a client of it, and a raw connection to a worker's socket."""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sandboxes.gateway.client import GatewayClient, GatewayError, gateway_argv
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.worker_opening import WorkerOpening

OpenWorker = Callable[..., Awaitable["WorkerSide"]]
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
    running = RunningGateway(process, folder, ours)
    deadline = time.monotonic() + START_S
    while not running.control.exists():
        assert time.monotonic() < deadline, "the gateway did not start"
        time.sleep(0.01)
    return running


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


@pytest.fixture(scope="module")
def running() -> Iterator[RunningGateway]:
    """One process for all tests of a file: starting it takes longer than most of them."""
    with tempfile.TemporaryDirectory(prefix="gw") as name:
        running = start_gateway(Path(name))
        yield running
        assert stop_gateway(running) == b"", "the gateway wrote to standard error"


@pytest.fixture
async def client(running: RunningGateway) -> AsyncIterator[GatewayClient]:
    async with GatewayClient(running.control) as client:
        yield client


@pytest.fixture
async def events(client: GatewayClient, folder: Path) -> AsyncIterator["Events"]:
    """What happens from now on; the gateway keeps what happened while nobody listened, so that is skipped."""
    async with anyio.create_task_group() as group:
        events = Events(client, folder)
        group.start_soon(events.listen)
        await events.begin()
        yield events
        group.cancel_scope.cancel()


class Events:
    """Everything the gateway has reported."""

    def __init__(self, client: GatewayClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self.seen: list[JsonObject] = []
        self._changed = anyio.Event()

    async def begin(self) -> None:
        """Make an event of our own, and forget it with all before it."""
        mark = WorkerOpening(worker="mark", kind="claude", socket=self._folder / "mark.sock", uid=os.geteuid())
        await self._client.open_worker(mark)
        await self._client.close_worker("mark")
        with anyio.fail_after(STEP_S):
            while not any((event["worker"], event["type"]) == ("mark", "closed") for event in self.seen):
                await self._changed.wait()
        self.seen.clear()

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
                return await read_answer(stream)

    async def post(self, path: str, body: JsonObject | bytes, **headers: str) -> tuple[int, bytes]:
        """One request; its status and its body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return split(await self.raw(request("POST", path, content, **headers)))


def opening(**fields: object) -> WorkerOpening:
    """What a supervisor sends; texts in lists and limits as they stand in JSON."""
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return WorkerOpening(**{"kind": "claude", "uid": os.geteuid(), **listed})  # type: ignore[arg-type]  # any fields, checked by the gateway


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


async def read_answer(stream: anyio.abc.SocketStream) -> bytes:
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
async def open_worker(client: GatewayClient, folder: Path) -> AsyncIterator[OpenWorker]:
    opened: list[str] = []

    async def open_(worker: str = "worker-a", **fields: object) -> WorkerSide:
        path = folder / f"{worker}.sock"
        await client.open_worker(opening(worker=worker, socket=path, **fields))
        opened.append(worker)
        return WorkerSide(path)

    yield open_
    for worker in opened:
        with suppress(GatewayError):
            await client.close_worker(worker)
