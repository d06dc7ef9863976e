"""The judge: declarations, permissions, bus, audit. Knows no Docker and no agent SDK.

An actor's module needs `from bridge import Actor, ActorError` and nothing else of ours; both are loaded on first use,
so that reading a leaf such as `bridge.contract` stays cheap.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.bus.actor import Actor, ActorError

__all__ = ["Actor", "ActorError"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bridge.bus import actor

    return getattr(actor, name)
