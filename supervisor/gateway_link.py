"""The supervisor's hold on the gateway: starts it, keeps it running, and hands each worker's events to its run.

The supervisor never sees a provider's key: the command gives it to the gateway over the gateway's own socket. A gateway
that dies loses its keys with it; its workers' runs are told. Above: `supervisor`. Below: `sandboxes.gateway.client`.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from sandboxes.gateway.client import GatewayClient, GatewayError
from supervisor.child_process import CA_VARIABLES, PROXY_VARIABLES, ChildSpec, running_child
from supervisor.home import StateFolder
from supervisor.keep_running import keep_running
from supervisor.restart_policy import RestartPolicy

START_TIMEOUT_S: Final = 15.0
POLL_S: Final = 0.02
"""Between two looks for the socket of a gateway that is starting."""

OnGatewayEvent = Callable[[JsonObject], Awaitable[None]]


@dataclass(frozen=True)
class GatewayCallbacks:
    """What the supervisor hears: the workers' events, and the gateway's loss."""

    on_event: OnGatewayEvent
    on_lost: Callable[[], None]


class GatewayLink:
    """One gateway process after another, behind one client."""

    def __init__(self, home: StateFolder, callbacks: GatewayCallbacks) -> None:
        self._home = home
        self._callbacks = callbacks
        self._client: GatewayClient | None = None
        self.pid: int | None = None

    @property
    def client(self) -> GatewayClient:
        """The running gateway's client. Raises `MatrixError` INFERENCE_FAILED while there is none."""
        if self._client is None:
            log = self._home.logs / "gateway.log"
            raise MatrixError("MX_AGENT_INFERENCE_FAILED", f"The model gateway does not run. See {log}.")
        return self._client

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve gateways until cancelled, or until the restart policy gives up. Started once the first one listens."""
        await keep_running(self._run_one, RestartPolicy(), self._callbacks.on_lost, task_status)

    async def _run_one(self, task_status: TaskStatus[None]) -> None:
        lifeline, held = os.pipe()  # the gateway reads `lifeline`, and ends when our end `held` is closed
        self._home.gateway_socket.unlink(missing_ok=True)
        arguments = ("--socket", str(self._home.gateway_socket), "--parent-fd", str(lifeline))
        log = self._home.logs / "gateway.log"
        spec = ChildSpec(
            "sandboxes.gateway", arguments, log, variables=(*PROXY_VARIABLES, *CA_VARIABLES), pass_fds=(lifeline,)
        )
        try:
            async with running_child(spec) as process:
                os.close(lifeline)
                try:
                    await self._use(process.pid, task_status)
                finally:
                    self._client, self.pid = None, None
                    os.close(held)
        except* (GatewayError, OSError, TimeoutError):
            pass  # it ended or never listened: the restart policy counts it

    async def _use(self, pid: int, task_status: TaskStatus[None]) -> None:
        await self._wait_until_listening()
        async with GatewayClient(self._home.gateway_socket) as client:
            self._client, self.pid = client, pid
            task_status.started()
            async for event in client.events():
                await self._callbacks.on_event(event)

    async def _wait_until_listening(self) -> None:
        with anyio.fail_after(START_TIMEOUT_S):
            while not self._home.gateway_socket.exists():  # noqa: ASYNC110 - another process's socket has no event
                await anyio.sleep(POLL_S)
