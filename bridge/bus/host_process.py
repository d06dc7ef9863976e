"""Keeps one actor host running: starts the process, gives its stream to `stream_bus`, starts it again when it dies.

A child is data (`RestartLimit`), restarts are bounded by intensity and period and then given up. Above: `assembly`. The
declarations of a host that is being restarted stay known, so its tools do not flicker; its calls are ACTOR_UNAVAILABLE.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process, TaskStatus

from bridge.bus.actor_bus import CallContext
from bridge.bus.local_bus import target_not_found
from bridge.bus.stream_bus import HostListing, OnListing, OnNotice, StreamBus
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream

READY_TIMEOUT_MS: Final = 20_000
"""From the start of the process to its first listing: interpreter, imports, the author's modules."""
STOP_TIMEOUT_MS: Final = 2_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestartLimit:
    """At most `intensity` restarts within `period_ms`; one more, and the host stays down."""

    intensity: int = 5
    period_ms: int = 60_000


@dataclass(frozen=True)
class HostSpec:
    """What to start. `guarded`: changes are loaded only on request (architecture.md, decision 9)."""

    path: Path
    root: str
    guarded: bool = False
    restart: RestartLimit = RestartLimit()


class HostProcess:
    """An `ActorBus` whose actors live in a process of their own. `run()` keeps it alive until it is cancelled."""

    def __init__(self, spec: HostSpec, on_listing: OnListing | None = None, on_notice: OnNotice | None = None) -> None:
        self.spec = spec
        self._on_listing = on_listing
        self._on_notice = on_notice
        self._bus: StreamBus | None = None
        self._process: Process | None = None
        self._listing = HostListing()
        self._up = anyio.Event()
        self._revived: anyio.Event | None = None

    @property
    def listing(self) -> HostListing:
        """What the host holds, as it last said."""
        return self._listing

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the host, again after each death, within the limit. `started` after its first listing.

        Raises `MatrixError` `MX_AGENT_ACTOR_UNAVAILABLE` where the first start brings no listing.
        """
        deaths: deque[float] = deque()
        if not await self._run_once(task_status):
            raise self._unavailable()
        while True:
            deaths.append(anyio.current_time())
            while deaths[-1] - deaths[0] > self.spec.restart.period_ms / 1000:
                deaths.popleft()
            if len(deaths) > self.spec.restart.intensity:
                await self._stay_down()
                deaths.clear()
            await self._run_once(anyio.TASK_STATUS_IGNORED)

    async def _stay_down(self) -> None:
        _log.error("the host of %s died too often and stays down", self.spec.path)
        self._revived = anyio.Event()
        try:
            await self._revived.wait()
        finally:
            self._revived = None

    async def request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """`ActorBus.request`."""
        if self._bus is None:
            raise self._unavailable() if target in self._listing.declarations else target_not_found(target)
        return await self._bus.request(ctx, target, op, payload)

    def declarations(self) -> tuple[ActorDeclaration, ...]:
        """`ActorBus.declarations`."""
        return tuple(self._listing.declarations[target] for target in sorted(self._listing.declarations))

    def declaration(self, target: str) -> ActorDeclaration | None:
        """`ActorBus.declaration`."""
        return self._listing.declarations.get(target)

    async def reload(self) -> HostListing:
        """Load what changed; a host that stayed down is started again. Raises `MatrixError`: ACTOR_UNAVAILABLE, …"""
        if self._revived is not None:
            self._revived.set()
        with anyio.move_on_after(READY_TIMEOUT_MS / 1000):
            await self._up.wait()
        if self._bus is None:
            raise self._unavailable()
        return await self._bus.reload()

    async def guard(self) -> None:
        """From now on, and in every further life, changes are loaded by `reload` alone."""
        self.spec = replace(self.spec, guarded=True)
        if self._bus is not None:
            await self._bus.guard()

    async def end_if_hung(self) -> None:
        """Kill the host where its event loop no longer answers, so that it is started again."""
        bus, process = self._bus, self._process
        if bus is not None and process is not None and not await bus.is_alive() and self._process is process:
            _log.error("the host of %s does not answer and is killed", self.spec.path)
            _kill_group(process)

    async def _run_once(self, task_status: TaskStatus[None]) -> bool:
        """One life of the process; whether it came to a listing."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await _start(self.spec, theirs)
        try:
            async with SocketStream(ours) as stream, anyio.create_task_group() as tasks:
                bus = StreamBus(stream, self._take_listing, self._on_notice)
                tasks.start_soon(self._announce, bus, process, task_status)
                await bus.run()
                tasks.cancel_scope.cancel()
            return bus.ready.is_set()
        finally:
            self._bus = self._process = None
            if self._up.is_set():
                self._up = anyio.Event()
            await _end(process)

    async def _announce(self, bus: StreamBus, process: Process, task_status: TaskStatus[None]) -> None:
        with anyio.move_on_after(READY_TIMEOUT_MS / 1000):
            await bus.ready.wait()
        if not bus.ready.is_set():
            return await bus.aclose()
        self._bus, self._process = bus, process
        self._up.set()
        return task_status.started()

    def _take_listing(self, listing: HostListing) -> None:
        self._listing = listing
        if self._on_listing is not None:
            self._on_listing(listing)

    def _unavailable(self) -> MatrixError:
        mend = "It died too often: mend its actors, then reload them." if self._revived is not None else "Call again."
        return MatrixError(
            "MX_AGENT_ACTOR_UNAVAILABLE", f"The host of the actors in {str(self.spec.path)!r} is not running. {mend}"
        )


async def _start(spec: HostSpec, theirs: socket.socket) -> Process:
    argv = [sys.executable, "-P", "-m", "bridge.bus.actor_host", "--fd", str(theirs.fileno()), "--root", spec.root]
    argv += ["--guarded"] if spec.guarded else []
    return await anyio.open_process(
        [*argv, "--", str(spec.path)],
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,  # so that it can be ended together with what its actors started
    )


async def _end(process: Process) -> None:
    """The stream is closed: the host ends by itself, or is killed with everything it started."""
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(STOP_TIMEOUT_MS / 1000):
            await process.wait()
        _kill_group(process)
        await process.wait()


def _kill_group(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
