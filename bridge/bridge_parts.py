"""The parts of a running bridge, as one value: what `assembly` puts together and the channels are given.

Pure data; the one thing here with a rule is that it has no rule.
"""

from dataclasses import dataclass

from bridge.actor_hosts import ActorHosts
from bridge.audit.audit_log import AuditLog
from bridge.bus.mounted_buses import MountedBuses
from bridge.bus.request_reply import RequestReply
from bridge.call_events import CallEvents
from bridge.callers import Callers
from bridge.mcp_bridge_actor import McpBridgeActor
from bridge.native_calls import NativeCalls
from bridge.policies import Policies


@dataclass(frozen=True)
class BridgeIdentity:
    """Which bridge this is."""

    root: str
    version: str
    pid: int


@dataclass(frozen=True)
class BridgeParts:
    """Everything a channel may need."""

    identity: BridgeIdentity
    log: AuditLog
    policies: Policies
    buses: MountedBuses
    bus: RequestReply
    hosts: ActorHosts
    callers: Callers
    actor: McpBridgeActor
    native: NativeCalls
    events: CallEvents
