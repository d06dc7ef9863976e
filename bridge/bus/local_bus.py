"""Actors in this process: the bridge's own system actors, and all actors of one host inside that host.

The first implementation of `actor_bus.ActorBus` and the full in-memory twin of `stream_bus`: what comes out is copied
as if it had crossed a wire (a payload is its receiver's own already). Knows no permission, no log and no deadline;
those stand above, in `request_reply`.
"""

import json
from collections.abc import Callable
from typing import Final

from bridge.bus.actor import Actor, ObservedKind, Surroundings
from bridge.bus.actor_bus import CallContext
from bridge.bus.actor_runtime import MountedActor
from bridge.contract import strict_json
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
MAX_RESULT_DEPTH: Final = 64

Changed = Callable[[str, ObservedKind, str, JsonValue], None]
Emitted = Callable[[str, str, JsonObject], None]


class _Listeners(Surroundings):
    """Hands what actors say to plain functions."""

    def __init__(self, on_changed: Changed | None, on_event: Emitted | None) -> None:
        self._on_changed = on_changed
        self._on_event = on_event

    def changed(self, mount: str, kind: ObservedKind, key: str, value: JsonValue) -> None:
        if self._on_changed is not None:
            self._on_changed(mount, kind, key, value)

    async def emitted(self, mount: str, name: str, payload: JsonObject) -> None:
        if self._on_event is not None:
            self._on_event(mount, name, payload)


class LocalBus:
    """Actors by mount. `privileged` is for the bridge's own actors alone (`actor_runtime.MountedActor`)."""

    def __init__(
        self,
        root: str,
        *,
        privileged: bool = False,
        on_changed: Changed | None = None,
        on_event: Emitted | None = None,
    ) -> None:
        self._root = root
        self._privileged = privileged
        self._listeners = _Listeners(on_changed, on_event)
        self._mounted: dict[str, MountedActor] = {}

    async def mount(self, actor: Actor) -> None:
        """Start `actor` and answer for it. Raises `MatrixError` where its class is malformed or its mount is in use."""
        mounted = MountedActor(actor, self._root, privileged=self._privileged)
        if mounted.mount in self._mounted:
            raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"Two actors are mounted at {mounted.mount!r}; rename one.")
        await mounted.start(self._listeners)
        self._mounted[mounted.mount] = mounted

    async def replace(self, actor: Actor) -> None:
        """Mount `actor` in place of its earlier version, if any, with that one's state.

        The earlier version answers until the new one has started; when that fails it stays, and the failure is raised.
        """
        mounted = MountedActor(actor, self._root, privileged=self._privileged)
        before = self._mounted.get(mounted.mount)
        await mounted.start(self._listeners, None if before is None else before.observed())
        self._mounted[mounted.mount] = mounted
        if before is not None:
            await before.stop()

    async def unmount(self, target: str) -> None:
        """Stop the actor at `target`, if there is one."""
        mounted = self._mounted.pop(target, None)
        if mounted is not None:
            await mounted.stop()

    async def aclose(self) -> None:
        """Stop all actors, the last mounted first."""
        for target in reversed(list(self._mounted)):
            await self.unmount(target)

    async def request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """`ActorBus.request`."""
        mounted = self._mounted.get(target)
        if mounted is None:
            raise target_not_found(target)
        return _copied(await mounted.answer(ctx, op, payload), target, op)

    def declarations(self) -> tuple[ActorDeclaration, ...]:
        """`ActorBus.declarations`."""
        return tuple(self._mounted[target].declaration for target in sorted(self._mounted))

    def declaration(self, target: str) -> ActorDeclaration | None:
        """`ActorBus.declaration`."""
        mounted = self._mounted.get(target)
        return None if mounted is None else mounted.declaration


def target_not_found(target: str) -> MatrixError:
    """The refusal of a target where nothing is mounted."""
    return MatrixError(
        "MX_AGENT_TARGET_NOT_FOUND",
        f"No actor is mounted at {target!r}. 'catalog.search' of 'system.catalog' lists the actors there are.",
    )


def _copied(value: JsonValue, target: str, op: str) -> JsonValue:
    try:
        text = strict_json.dumps(value, max_bytes=MAX_RESULT_BYTES, max_depth=MAX_RESULT_DEPTH)
    except MatrixError as error:
        raise unfit_result(error, target, op) from None
    copy: JsonValue = json.loads(text)
    return copy


def unfit_result(error: MatrixError, target: str, op: str) -> MatrixError:
    """What a result that is too large, or no JSON, means to the caller."""
    code = "MX_AGENT_TOO_LARGE" if error.code == "MX_AGENT_TOO_LARGE" else "MX_AGENT_INVALID_RESULT"
    return MatrixError(
        code,
        f"The result of {op!r} at {target!r} cannot be delivered: {error.message} "
        "The op may have taken effect; ask for less, or have its actor mended.",
    )
