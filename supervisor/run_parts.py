"""What every run is given: the supervisor's parts, as one frozen value. Leaf but for their types."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandboxes.sandbox import Sandboxes
from supervisor.bridge_link import BridgeLink
from supervisor.gateway_link import GatewayLink
from supervisor.home import StateFolder
from supervisor.outbox import Outbox
from supervisor.worker_store import WorkerStore
from supervisor.workers.worker import WorkerDriver, WorkerKind


@dataclass(frozen=True)
class RunParts:
    """The bridge, the gateway, the walls, the drivers, and where things are kept."""

    home: StateFolder
    store: WorkerStore
    bridge: BridgeLink
    gateway: GatewayLink
    sandboxes: Sandboxes
    outbox: Outbox
    driver_of: Callable[[WorkerKind], WorkerDriver]
    worker_image: Callable[[Callable[[str], None]], Awaitable[str]]
