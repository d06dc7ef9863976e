"""The process that actors live in: `python -P -m bridge.bus.actor_host --fd N --root ROOT PATH`.

Holds a local bus of the actors at PATH and serves it over the inherited socket `N`; the other end is `stream_bus` in
the bridge. It knows no permission and keeps no secret: whatever runs here may have been written by an agent. It ends
when the stream ends, whatever its actors are doing, and takes the processes that they started with it.
"""

import argparse
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from watchfiles import PythonFilter, awatch

from bridge.bus import host_wire
from bridge.bus.actor import ObservedKind
from bridge.bus.actor_bus import CallContext, Progress
from bridge.bus.actor_loading import ActorFolder, LoadProblem
from bridge.bus.local_bus import LocalBus
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream

MAX_QUEUED_NOTICES: Final = 4096
"""State changes and events on their way to the bridge; over it the oldest watcher is behind and notices are dropped."""
WATCH_DEBOUNCE_MS: Final = 100
EXIT_GRACE_MS: Final = 1000
"""Between the end of the stream and the end of the process, for the actors' own `stop`."""

_Notice = tuple[str, JsonObject]


class ActorHost:
    """One host: the folder, the bus, the peer."""

    def __init__(self, stream: SocketStream, path: Path, root: str, *, guarded: bool) -> None:
        self._queue, self._queued = anyio.create_memory_object_stream[_Notice](MAX_QUEUED_NOTICES)
        self._bus = LocalBus(root, on_changed=self._state_changed, on_event=self._event)
        self._folder = ActorFolder(path, self._bus)
        self._path = path
        self._guarded = guarded
        self._loading = anyio.Lock()
        self._watching = anyio.CancelScope()
        self._peer = JsonRpcPeer(
            stream,
            self._serve,
            max_line_bytes=host_wire.HOST_LINE_BYTES,
            closed_code="MX_AGENT_ACTOR_UNAVAILABLE",
        )

    async def run(self) -> None:
        """Load, tell, serve; ends the process when the stream ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_notices)
            tasks.start_soon(self._load_and_tell, host_wire.READY)
            if not self._guarded:
                tasks.start_soon(self._watch)
            await self._peer.run()
            with anyio.move_on_after(EXIT_GRACE_MS / 1000):
                await self._bus.aclose()
            _end_process_group()  # at once: threads and tasks of actors have no say in it

    async def _serve(self, method: str, params: JsonObject) -> JsonValue:
        match method:
            case host_wire.REQUEST:
                return {"value": await self._request(params)}
            case host_wire.RELOAD:
                return await self._load_and_tell(host_wire.ACTORS_CHANGED)
            case host_wire.GUARD:
                self._watching.cancel()
                return {}
            case host_wire.PING:
                return {}
        raise method_not_found(method)

    async def _request(self, params: JsonObject) -> JsonValue:
        payload, timeout_ms = params["payload"], params["timeoutMs"]
        assert isinstance(payload, dict)
        assert isinstance(timeout_ms, int | float)
        call = str(params["call"])
        ctx = CallContext(host_wire.caller_from_json(params["caller"]), call, int(timeout_ms), self._progress_of(call))
        return await self._bus.request(ctx, str(params["target"]), str(params["op"]), payload)

    def _progress_of(self, call: str) -> Progress:
        async def progress(done: float, total: float | None, text: str) -> None:
            await self._notify(host_wire.PROGRESS, {"call": call, "done": done, "total": total, "text": text})

        return progress

    async def _load_and_tell(self, method: str) -> JsonObject:
        async with self._loading:
            problems = await self._folder.load()
        told = self._listing(problems)
        await self._notify(method, told)
        return told

    def _listing(self, problems: list[LoadProblem]) -> JsonObject:
        return {
            "actors": [declaration.to_introspect("") for declaration in self._bus.declarations()],
            "problems": [problem.to_json() for problem in problems],
        }

    async def _watch(self) -> None:
        if not self._path.exists():
            return
        with self._watching:
            async for _ in awatch(
                self._path, watch_filter=PythonFilter(), debounce=WATCH_DEBOUNCE_MS, raise_interrupt=False
            ):
                await self._load_and_tell(host_wire.ACTORS_CHANGED)

    def _state_changed(self, mount: str, kind: ObservedKind, key: str, value: JsonValue) -> None:
        self._enqueue(host_wire.STATE_CHANGED, {"mount": mount, "kind": kind, "key": key, "value": value})

    def _event(self, mount: str, name: str, payload: JsonObject) -> None:
        self._enqueue(host_wire.EVENT, {"mount": mount, "name": name, "payload": payload})

    def _enqueue(self, method: str, params: JsonObject) -> None:
        try:
            self._queue.send_nowait((method, params))
        except anyio.WouldBlock:
            print(f"too many changes at once; a notice {method!r} was dropped", file=sys.stderr)  # noqa: T201 - the host's log

    async def _send_notices(self) -> None:
        with self._queue, self._queued:
            async for method, params in self._queued:
                await self._notify(method, params)

    async def _notify(self, method: str, params: JsonObject) -> None:
        try:
            await self._peer.notify(method, params)
        except MatrixError as error:
            print(f"the notice {method!r} cannot be sent: {error.message}", file=sys.stderr)  # noqa: T201 - the host's log


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the host; never returns."""
    parser = argparse.ArgumentParser(description="Hosts the actors of a folder or file for the bridge.")
    parser.add_argument("--fd", type=int, required=True, help="the inherited socket to the bridge")
    parser.add_argument("--root", default="local", help="the authority root, for $introspect")
    parser.add_argument("--guarded", action="store_true", help="load changes only when the bridge asks for it")
    parser.add_argument("path", type=Path)
    options = parser.parse_args(arguments)
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with_stream, args=(options.fd,), daemon=True).start()
    try:
        anyio.run(_host, options.fd, options.path, options.root, options.guarded)
    finally:
        _end_process_group()


async def _host(descriptor: int, path: Path, root: str, guarded: bool) -> None:
    async with SocketStream(socket.socket(fileno=descriptor)) as stream:
        await ActorHost(stream, path, root, guarded=guarded).run()


def _end_with_stream(descriptor: int) -> None:
    """End the process even while an actor blocks its event loop."""
    poller = select.poll()
    poller.register(descriptor, select.POLLHUP)
    poller.poll()
    time.sleep(EXIT_GRACE_MS / 1000)
    _end_process_group()


def _end_process_group() -> None:
    sys.stderr.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # the bridge made this process the leader of a group of its own
    os._exit(0)


if __name__ == "__main__":
    main()
