"""Several buses as one: a request goes to the bus that its target is mounted on.

Knows neither process nor permission. Above: `request_reply`, `assembly`. One target has one source for as long as that
source holds it; a later source for the same mount is refused when it is added, and hidden when it turns up by a reload.
"""

from dataclasses import dataclass

from bridge.bus.actor_bus import ActorBus, CallContext
from bridge.bus.local_bus import target_not_found
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue


@dataclass(frozen=True)
class MountedBus:
    """A bus and where its actors come from, as people know it: a path, a command, "the bridge"."""

    source: str
    bus: ActorBus


class MountedBuses:
    """The composite `ActorBus`. The order of adding is the order of precedence."""

    def __init__(self) -> None:
        self._mounted: list[MountedBus] = []

    def add(self, source: str, bus: ActorBus) -> None:
        """Route to `bus` from now on. Raises `MX_AGENT_INVALID_ARGUMENTS`, naming both sources of a mount in use."""
        for declaration in bus.declarations():
            owner = self.owner(declaration.mount)
            if owner is not None:
                raise mount_in_use(declaration.mount, owner.source, source)
        self._mounted.append(MountedBus(source, bus))

    def remove(self, bus: ActorBus) -> None:
        """Route to `bus` no longer."""
        self._mounted = [mounted for mounted in self._mounted if mounted.bus is not bus]

    def owner(self, target: str) -> MountedBus | None:
        """Where the actor at `target` comes from, or None."""
        return next((mounted for mounted in self._mounted if mounted.bus.declaration(target) is not None), None)

    def hidden(self) -> tuple[MatrixError, ...]:
        """The mounts that two sources claim now, each as the error that adding them would have been."""
        return tuple(
            mount_in_use(declaration.mount, owner.source, mounted.source)
            for mounted in self._mounted
            for declaration in mounted.bus.declarations()
            if (owner := self.owner(declaration.mount)) is not None and owner is not mounted
        )

    async def request(self, ctx: CallContext, target: str, op: str, payload: JsonObject) -> JsonValue:
        """`ActorBus.request`."""
        owner = self.owner(target)
        if owner is None:
            raise target_not_found(target)
        return await owner.bus.request(ctx, target, op, payload)

    def declarations(self) -> tuple[ActorDeclaration, ...]:
        """`ActorBus.declarations`."""
        found: dict[str, ActorDeclaration] = {}
        for mounted in self._mounted:
            for declaration in mounted.bus.declarations():
                found.setdefault(declaration.mount, declaration)
        return tuple(found[target] for target in sorted(found))

    def declaration(self, target: str) -> ActorDeclaration | None:
        """`ActorBus.declaration`."""
        owner = self.owner(target)
        return None if owner is None else owner.bus.declaration(target)


def mount_in_use(mount: str, first: str, second: str) -> MatrixError:
    """The refusal of a second source for one mount."""
    return MatrixError(
        "MX_AGENT_INVALID_ARGUMENTS",
        f"The mount {mount!r} of {second!r} is in use by {first!r}. Rename one of them, or leave one out.",
        mount=mount,
        sources=[first, second],
    )
