"""The life of a worker as a table: state and event give the next state. Pure; `run` walks it, records show it.

Every cell is filled: an event that cannot happen in a state is an error of ours, named as one.
"""

from typing import Final, Literal

State = Literal["preparing", "starting", "running", "finishing", "ended"]
Event = Literal["prepared", "connected", "worked", "handedOver", "failed", "stopped"]

STATES: Final[tuple[State, ...]] = ("preparing", "starting", "running", "finishing", "ended")
EVENTS: Final[tuple[Event, ...]] = ("prepared", "connected", "worked", "handedOver", "failed", "stopped")

_IMPOSSIBLE: Final = None

# A worker that fails or is stopped once it has a workspace still passes `finishing`: its work so far is handed over.
TABLE: Final[dict[tuple[State, Event], State | None]] = {
    ("preparing", "prepared"): "starting",
    ("preparing", "connected"): _IMPOSSIBLE,
    ("preparing", "worked"): _IMPOSSIBLE,
    ("preparing", "handedOver"): _IMPOSSIBLE,
    ("preparing", "failed"): "ended",
    ("preparing", "stopped"): "ended",
    ("starting", "prepared"): _IMPOSSIBLE,
    ("starting", "connected"): "running",
    ("starting", "worked"): _IMPOSSIBLE,
    ("starting", "handedOver"): _IMPOSSIBLE,
    ("starting", "failed"): "finishing",
    ("starting", "stopped"): "finishing",
    ("running", "prepared"): _IMPOSSIBLE,
    ("running", "connected"): _IMPOSSIBLE,
    ("running", "worked"): "finishing",
    ("running", "handedOver"): _IMPOSSIBLE,
    ("running", "failed"): "finishing",
    ("running", "stopped"): "finishing",
    ("finishing", "prepared"): _IMPOSSIBLE,
    ("finishing", "connected"): _IMPOSSIBLE,
    ("finishing", "worked"): _IMPOSSIBLE,
    ("finishing", "handedOver"): "ended",
    ("finishing", "failed"): "ended",
    ("finishing", "stopped"): "finishing",
    ("ended", "prepared"): _IMPOSSIBLE,
    ("ended", "connected"): _IMPOSSIBLE,
    ("ended", "worked"): _IMPOSSIBLE,
    ("ended", "handedOver"): _IMPOSSIBLE,
    ("ended", "failed"): "ended",
    ("ended", "stopped"): "ended",
}


class ImpossibleEventError(Exception):
    """An event that the table does not allow in this state: a fault of the supervisor, never of a worker."""


def next_state(state: State, event: Event) -> State:
    """The state after `event` in `state`. Raises `ImpossibleEventError`."""
    following = TABLE[(state, event)]
    if following is None:
        raise ImpossibleEventError(f"{event!r} cannot happen while a worker is {state!r}")
    return following
