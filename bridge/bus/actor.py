"""What an actor's author writes: a class whose declarations are data, whose ops are methods (contracts.md, section 5).

Knows no bus and no process: `actor_runtime` mounts an instance, calls its methods and listens to what it says. Agents
edit such classes, so nothing here may be needed in a privileged process but the names.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal

from bridge.bus.actor_bus import CallContext
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Caller

ObservedKind = Literal["state", "blackboard"]


class ActorError(MatrixError):
    """A failure an actor means: its caller gets `MX_AGENT_ACTOR_ERROR`, this message, and `code` as `actorCode`."""

    def __init__(self, code: str, message: str, **data: object) -> None:
        super().__init__("MX_AGENT_ACTOR_ERROR", message, **{**data, "actorCode": code})


class Surroundings(ABC):
    """Where an actor's changes and events go. Given by whoever mounts it."""

    @abstractmethod
    def changed(self, mount: str, kind: ObservedKind, key: str, value: JsonValue) -> None:
        """A value of the actor's state or blackboard was set."""

    @abstractmethod
    async def emitted(self, mount: str, name: str, payload: JsonObject) -> None:
        """The actor published an event."""


class OpContext:
    """`self.ctx` inside an op: who asks, the call's id, and how long there is left."""

    def __init__(self, call_context: CallContext) -> None:
        self._call_context = call_context
        self.deadline: Final = datetime.now(UTC) + timedelta(milliseconds=call_context.timeout_ms)

    @property
    def caller(self) -> Caller:
        """Who asks, as the bridge knows it from the channel."""
        return self._call_context.caller

    @property
    def call(self) -> str:
        """The call's id, as it stands in the audit log."""
        return self._call_context.call

    @property
    def remaining_ms(self) -> float:
        """Milliseconds until the deadline; negative once it has passed."""
        return (self.deadline - datetime.now(UTC)) / timedelta(milliseconds=1)

    async def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell the caller how far the op is. Dropped where nobody listens."""
        if self._call_context.progress is not None:
            await self._call_context.progress(done, total, text)


CURRENT_CONTEXT: Final[ContextVar[OpContext]] = ContextVar("mxs_op_context")


class ObservedValues(MutableMapping[str, JsonValue]):
    """`self.state` or `self.blackboard`: the declared keys and no other; every assignment is pushed to watchers.

    A change inside a stored list or object is not seen: assign the key again.
    """

    def __init__(self, declared: JsonObject, mount: str, kind: ObservedKind) -> None:
        self._declared = declared
        self._mount = mount
        self._kind: ObservedKind = kind
        self._values: JsonObject = {
            key: field["default"] for key, field in declared.items() if isinstance(field, dict) and "default" in field
        }
        self.surroundings: Surroundings | None = None

    def __getitem__(self, key: str) -> JsonValue:
        return self._values[key]

    def __setitem__(self, key: str, value: JsonValue) -> None:
        if key not in self._declared:
            raise KeyError(f"{key!r} is not declared in {self._kind!r} of {self._mount!r}")
        self._values[key] = value
        if self.surroundings is not None:
            self.surroundings.changed(self._mount, self._kind, key, value)

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def declared(self) -> tuple[str, ...]:
        """The keys that the class declares, set or not."""
        return tuple(self._declared)


@dataclass
class _Link:
    surroundings: Surroundings | None = None


class Actor:
    """Subclass it, say what it accepts, write one async method per op (`inventory.check` → `inventory_check`)."""

    mount: ClassVar[str]
    description: ClassVar[str] = ""
    version: ClassVar[str] = ""
    accepts: ClassVar[dict[str, Any]] = {}
    # On the class these two are declarations, on an instance its `ObservedValues`.
    state: Any = {}  # noqa: RUF012 - never changed: `__new__` puts an object of the instance's own before it
    blackboard: Any = {}  # noqa: RUF012 - likewise
    emits: ClassVar[dict[str, Any]] = {}
    streams: ClassVar[dict[str, Any]] = {}
    subscribes: ClassVar[list[str]] = []
    skills: ClassVar[list[dict[str, Any]]] = []

    _link: _Link

    def __new__(cls, *_args: object, **_options: object) -> "Actor":
        """Prepares state and blackboard here, so that a subclass's `__init__` need not call this class's."""
        actor = super().__new__(cls)
        actor._link = _Link()
        actor.state = ObservedValues(cls.state, cls.mount, "state")
        actor.blackboard = ObservedValues(cls.blackboard, cls.mount, "blackboard")
        return actor

    @property
    def ctx(self) -> OpContext:
        """The context of the op that is running. Raises `LookupError` outside of one."""
        return CURRENT_CONTEXT.get()

    async def emit(self, name: str, payload: JsonObject) -> None:
        """Publish the declared event `name`. Raises `KeyError` where the class does not declare it."""
        if name not in self.emits:
            raise KeyError(f"{name!r} is not declared in 'emits' of {self.mount!r}")
        if self._link.surroundings is not None:
            await self._link.surroundings.emitted(self.mount, name, payload)

    async def start(self) -> None:
        """Called once before the first op."""

    async def stop(self) -> None:
        """Called once after the last op."""

    async def migrate(self, old_state: JsonObject) -> None:
        """Take over the state of the version before this one. By default every key that is still declared is kept."""
        for key, value in old_state.items():
            if key in self.state.declared:
                self.state[key] = value

    def attach(self, surroundings: Surroundings | None) -> None:
        """Connect what this actor says to whoever mounted it; None takes it off. Called by `actor_runtime`."""
        self._link.surroundings = surroundings
        self.state.surroundings = surroundings
        self.blackboard.surroundings = surroundings
