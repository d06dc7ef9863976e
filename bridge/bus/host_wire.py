"""The words of the host stream (docs/wires.md), for its two ends: `stream_bus` in the bridge, `actor_host` beyond.

Leaf of the bus. Only the form of a caller crosses here; that it is the true one is the bridge's doing.
"""

from typing import Final, get_args

from bridge.bus.local_bus import MAX_RESULT_BYTES
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Caller, CallerKind

HOST_LINE_BYTES: Final = MAX_RESULT_BYTES + 64 * 1024
"""A result of the greatest size, with its envelope."""

READY: Final = "host.ready"
ACTORS_CHANGED: Final = "actors.changed"
STATE_CHANGED: Final = "state.changed"
EVENT: Final = "event"
PROGRESS: Final = "progress"
REQUEST: Final = "actor.request"
RELOAD: Final = "actors.reload"
PING: Final = "host.ping"
GUARD: Final = "host.guard"


def caller_to_json(caller: Caller) -> JsonObject:
    """`{"kind", "role", "worker", "run"}`."""
    return {"kind": caller.kind, "role": caller.role, "worker": caller.worker, "run": caller.run}


def caller_from_json(wire: JsonValue) -> Caller:
    """The inverse; whatever is not told is left out."""
    fields = wire if isinstance(wire, dict) else {}
    kind = fields.get("kind")
    return Caller(
        kind=next((known for known in get_args(CallerKind) if known == kind), "person"),
        role=str(fields.get("role", "")),
        worker=_text(fields.get("worker")),
        run=_text(fields.get("run")),
    )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
