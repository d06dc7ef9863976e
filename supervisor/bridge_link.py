"""The supervisor's end of the admin channel: starts the bridge, keeps it running, asks it. Decides nothing.

A bridge that dies fails what waits for it with `MX_AGENT_BRIDGE_UNAVAILABLE`; it is started again within the bounds of
its `RestartPolicy`, and past them the link says so to every caller. Its capabilities die with it.
"""

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import anyio
from anyio.abc import TaskStatus

import supervisor
from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.socket_stream import SocketStream
from supervisor.child_process import ChildSpec, running_child
from supervisor.home import StateFolder
from supervisor.keep_running import keep_running
from supervisor.restart_policy import RestartPolicy

START_TIMEOUT_MS = 15_000
"""A cold start on a busy machine; the warm one takes a third of a second."""

ADMIN_TIMEOUT_MS = 30_000

AskApproval = Callable[[JsonObject], Awaitable[JsonObject]]
OnCallEvent = Callable[[JsonObject], Awaitable[None]]
OnLost = Callable[[], None]


@dataclass(frozen=True)
class BridgeCallbacks:
    """What the supervisor answers and hears: approvals, call events, the bridge's loss, its (re)start."""

    ask_approval: AskApproval
    on_call_event: OnCallEvent
    on_lost: OnLost
    on_ready: Callable[[], Awaitable[None]]


class BridgeLink:
    """One bridge process after another, behind one `request`."""

    def __init__(self, home: StateFolder, root: str, callbacks: BridgeCallbacks) -> None:
        self._home = home
        self._root = root
        self._callbacks = callbacks
        self._peer: JsonRpcPeer | None = None
        self.given_up = False
        self.pid: int | None = None

    async def request(self, method: str, params: JsonObject, timeout_ms: float | None = ADMIN_TIMEOUT_MS) -> JsonObject:
        """Ask the bridge. Raises `MatrixError`; BRIDGE_UNAVAILABLE while there is none."""
        peer = self._peer
        if peer is None:
            why = "it failed too often and was given up" if self.given_up else "it is being started again"
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", f"The bridge does not run: {why}. See {self._log}.")
        return cast("JsonObject", await peer.request(method, params, timeout_ms, "MX_AGENT_BRIDGE_UNAVAILABLE"))

    @property
    def _log(self) -> str:
        return str(self._home.logs / "bridge.log")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve bridges until cancelled, or until the restart policy gives up. Started once the first one answers."""
        await keep_running(self._run_one, RestartPolicy(), self._callbacks.on_lost, task_status)
        self.given_up = True

    async def _run_one(self, task_status: TaskStatus[None]) -> None:
        ours, theirs = socket.socketpair()
        arguments = ("--admin-fd", str(theirs.fileno()), "--home", str(self._home.root))
        identity = ("--root", self._root, "--version", supervisor.__version__)
        spec = ChildSpec("bridge", (*arguments, *identity), self._home.logs / "bridge.log", pass_fds=(theirs.fileno(),))
        async with running_child(spec) as process:
            theirs.close()
            peer = JsonRpcPeer(SocketStream(ours), self._on_request, self._on_notification)
            self.pid = process.pid
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._serve, peer, tasks.cancel_scope)
                    await peer.request("bridge.hello", {}, START_TIMEOUT_MS, "MX_AGENT_BRIDGE_UNAVAILABLE")
                    self._peer = peer
                    await self._callbacks.on_ready()
                    task_status.started()
            except* MatrixError:
                pass  # it ended before its first answer: the restart policy counts it
            finally:
                self._peer, self.pid = None, None
                await peer.aclose()

    @staticmethod
    async def _serve(peer: JsonRpcPeer, scope: anyio.CancelScope) -> None:
        await peer.run()
        scope.cancel()

    async def _on_request(self, method: str, params: JsonObject) -> JsonValue:
        if method == "approval.ask":
            return await self._callbacks.ask_approval(params)
        raise MatrixError("MX_AGENT_OP_NOT_FOUND", f"The supervisor has no method {method!r}.")

    async def _on_notification(self, method: str, params: JsonObject) -> None:
        if method == "call.event":
            await self._callbacks.on_call_event(params)
