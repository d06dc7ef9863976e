"""The one place where concrete bus, policy, audit and actor meet: the bridge's process.

Above: `__main__`. `open_bridge` puts the parts together in the order in which they must not be missing (log first,
socket last); `serve` runs them until the admin channel ends, which is the bridge's only reason to live. Nothing is
decided here.
"""

import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bridge.actor_hosts import ActorHosts
from bridge.admin_methods import AdminMethods
from bridge.approvals import ApprovalAnswer, ApprovalRequest, Approvals, Approver
from bridge.audit.audit_log import AuditLog
from bridge.audit.oracle_sink import OracleSink
from bridge.bridge_parts import BridgeIdentity, BridgeParts
from bridge.bus.local_bus import LocalBus
from bridge.bus.mounted_buses import MountedBuses
from bridge.bus.request_reply import RequestReply
from bridge.bus.system_actors import SystemCatalog, SystemRegistry
from bridge.call_events import CallEvents, Tell
from bridge.callers import Callers
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import parse_root
from bridge.contract.socket_stream import SocketStream
from bridge.mcp_bridge_actor import McpBridgeActor
from bridge.native_calls import NativeCalls
from bridge.policies import Policies
from bridge.worker_channel import WorkerChannel, listen

AUDIT_FOLDER: Final = "audit"
SOCKET: Final = Path("run") / "bridge.sock"
MAX_QUEUED_EVENTS: Final = 8192
"""`call.event`s on their way; a supervisor that is further behind misses some, and has the log."""
EVENT_DELAY_MS: Final = 20
"""How late an event may be, for the sake of fewer writes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BridgeConfig:
    """What a bridge is started with: its state folder, the authority root, and the version it calls itself."""

    home: Path
    root: str
    version: str


@dataclass(frozen=True)
class Surroundings:
    """Whom the bridge talks to of itself: who approves, and who is told of calls."""

    approver: Approver
    tell: Tell


@asynccontextmanager
async def open_bridge(config: BridgeConfig, surroundings: Surroundings) -> AsyncIterator[BridgeParts]:
    """The parts of a bridge, working, without any channel. Raises `MatrixError`: MALFORMED_NAME, AUDIT_UNAVAILABLE."""
    identity = BridgeIdentity(parse_root(config.root), config.version, os.getpid())
    async with AuditLog.open(config.home / AUDIT_FOLDER) as log, anyio.create_task_group() as tasks:
        policies = Policies(log, tasks)
        parts = _assemble(identity, log, policies, surroundings, tasks)
        await _mount_system_actors(parts)
        await _end_unfinished(log)
        try:
            yield parts
        finally:
            tasks.cancel_scope.cancel()


async def serve(config: BridgeConfig, admin: socket.socket) -> None:
    """Be the bridge until `admin` ends. Raises as `open_bridge` does, and `OSError` where the socket cannot be made."""
    async with SocketStream(admin) as stream:
        supervisor = _Supervisor(stream)
        async with (
            open_bridge(config, Surroundings(supervisor.approve, supervisor.tell)) as parts,
            listen(config.home / SOCKET) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(WorkerChannel(parts.callers, parts.actor).serve, listener)
            await supervisor.serve(AdminMethods(parts))
            tasks.cancel_scope.cancel()


def _assemble(
    identity: BridgeIdentity, log: AuditLog, policies: Policies, surroundings: Surroundings, tasks: TaskGroup
) -> BridgeParts:
    async def record_revision(target: str, revision: str, source: str) -> None:
        await log.append("actor.revision", {"target": target, "revision": revision, "source": source}, durable=False)

    buses = MountedBuses()
    hosts = ActorHosts(identity.root, buses, tasks, record_revision)
    bus = RequestReply(buses, lambda target: tasks.start_soon(hosts.end_if_hung, target))
    sink = OracleSink(log)
    approvals = Approvals(sink, surroundings.approver, log.redact)
    events = CallEvents(surroundings.tell, log.redacted_text)
    return BridgeParts(
        identity=identity,
        log=log,
        policies=policies,
        buses=buses,
        bus=bus,
        hosts=hosts,
        callers=Callers(),
        actor=McpBridgeActor(identity.root, bus, sink, approvals, events),
        native=NativeCalls(sink, approvals, events),
        events=events,
    )


async def _mount_system_actors(parts: BridgeParts) -> None:
    """The bridge's own actors, first, so that no other source can take their mounts."""
    system = LocalBus(parts.identity.root, privileged=True)
    for actor in (
        parts.actor,
        SystemCatalog(parts.buses, parts.actor.may_use),
        SystemRegistry(parts.buses, parts.actor.may_use),
    ):
        await system.mount(actor)
    parts.buses.add("the bridge", system)


async def _end_unfinished(log: AuditLog) -> None:
    """Calls that an earlier bridge was in the middle of when it died end here, once, with an unknown outcome."""
    sink = OracleSink(log)
    for call in log.unfinished:
        await sink.unknown_outcome(call, MatrixError("MX_AGENT_BRIDGE_RESTARTED"))


class _Supervisor:
    """The other end of the admin channel: asks for approvals, is told of calls, and sends requests."""

    def __init__(self, stream: SocketStream) -> None:
        self._queue, self._queued = anyio.create_memory_object_stream[JsonObject](MAX_QUEUED_EVENTS)
        self._methods: AdminMethods | None = None
        self._peer = JsonRpcPeer(stream, self._answer)

    async def serve(self, methods: AdminMethods) -> None:
        """Until the supervisor is gone."""
        self._methods = methods
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_events)
            await self._peer.run()
            tasks.cancel_scope.cancel()

    def tell(self, event: JsonObject) -> None:
        """`Tell`: queue a `call.event`."""
        try:
            self._queue.send_nowait(event)
        except anyio.WouldBlock:
            _log.warning("the supervisor is behind; an event of call %s was dropped", event.get("call"))

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """`Approver`: anything but a clear yes is a no."""
        answer = await self._peer.request("approval.ask", request.to_json())
        told = answer if isinstance(answer, dict) else {}
        return ApprovalAnswer("allow" if told.get("verdict") == "allow" else "deny", str(told.get("by", "")))

    async def _answer(self, method: str, params: JsonObject) -> JsonValue:
        assert self._methods is not None
        return await self._methods.serve(method, params)

    async def _send_events(self) -> None:
        with self._queue, self._queued:
            async for event in self._queued:
                await anyio.sleep(EVENT_DELAY_MS / 1000)  # gathers what belongs together: one write for many calls
                events = [event]
                while self._queued.statistics().current_buffer_used:
                    events.append(self._queued.receive_nowait())
                with suppress(MatrixError):  # a supervisor that is gone misses nothing
                    await self._peer.notify_all("call.event", events)
