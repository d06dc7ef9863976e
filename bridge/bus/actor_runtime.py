"""One mounted actor: its declaration checked, its methods found, its requests answered.

Below: `actor`, which authors write against. Above: `local_bus`, in the bridge and inside every actor host. It validates
no arguments (the bridge has) and keeps no deadline (`request_reply` does); it lets no text of a foreign exception out.
"""

import inspect
import keyword
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from bridge.bus.actor import CURRENT_CONTEXT, Actor, ObservedValues, OpContext, Surroundings
from bridge.bus.actor_bus import CallContext
from bridge.contract import strict_json
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

OpMethod = Callable[..., Awaitable[JsonValue]]
_NAME_TO_PYTHON: Final = str.maketrans({".": "_", "-": "_"})
_DECLARED: Final = ("mount", "description", "version", "accepts", "state", "blackboard", "emits", "streams", "skills")

_log = logging.getLogger(__name__)


def declaration_of(kind: type[Actor]) -> ActorDeclaration:
    """What the class declares. Raises `MatrixError` where that is malformed."""
    declared: JsonObject = {name: getattr(kind, name, None) for name in _DECLARED}
    declared |= {"root": "", "type": kind.__name__, "subscribes": list(kind.subscribes), "skills": list(kind.skills)}
    return ActorDeclaration.from_introspect(strict_json.loads(strict_json.dumps(declared)))


def method_name(op: str) -> str:
    """`inventory.check` → `inventory_check`."""
    return op.translate(_NAME_TO_PYTHON)


class MountedActor:
    """An actor that answers requests. `privileged` ones, which are the bridge's own, may raise any code of ours."""

    def __init__(self, actor: Actor, root: str, *, privileged: bool = False) -> None:
        """Raises `MatrixError` where the actor's class is malformed."""
        self.declaration = declaration_of(type(actor))
        self._root = root
        self._methods = _methods_of(type(actor), self.declaration)
        self._actor = actor
        self._privileged = privileged

    @property
    def mount(self) -> str:
        """The target it answers at."""
        return self.declaration.mount

    def observed(self) -> JsonObject:
        """A copy of the state, as the next version gets it."""
        return dict(self._actor.state)

    async def start(self, surroundings: Surroundings, old_state: JsonObject | None = None) -> None:
        """Connect it, hand over the state of the version before, and start it. Raises what the author's code raises."""
        self._actor.attach(surroundings)
        if old_state is not None:
            await self._actor.migrate(old_state)
        await self._actor.start()

    async def stop(self) -> None:
        """Stop it; a failure of its own `stop` is logged by type and otherwise without effect."""
        try:
            await self._actor.stop()
        except Exception as error:  # noqa: BLE001 - the author's code; an actor that cannot stop is gone all the same
            _log.error("stop() of %r failed with %s", self.mount, type(error).__name__)
        self._actor.attach(None)

    async def answer(self, ctx: CallContext, op: str, payload: JsonObject) -> JsonValue:
        """The op's result. Raises `MatrixError`: OP_NOT_FOUND, ACTOR_ERROR."""
        if op == "$introspect":
            return self.declaration.to_introspect(self._root)
        if op == "$getState":
            return _read(self._actor.state, payload.get("key"), self.mount)
        if op == "$readBlackboard":
            return _read(self._actor.blackboard, payload.get("fact"), self.mount)
        method = self._methods.get(op)
        if method is None:
            raise op_not_found(self.declaration, op)
        return await self._call(method, ctx, op, payload)

    async def _call(self, method: str, ctx: CallContext, op: str, payload: JsonObject) -> JsonValue:
        token = CURRENT_CONTEXT.set(OpContext(ctx))
        try:
            handler: OpMethod = getattr(self._actor, method)
            return await handler(**{parameter_name(key): value for key, value in payload.items()})
        except MatrixError as error:
            raise error if self._privileged else as_actors_own(error, self.mount, op) from None
        except Exception as error:  # noqa: BLE001 - the wall: the author sees it in the log, the caller its type alone
            _log.exception("%r of %r failed", op, self.mount)
            raise MatrixError(
                "MX_AGENT_ACTOR_ERROR",
                f"The actor {self.mount!r} failed with {type(error).__name__} in {op!r}; its log has the details.",
            ) from None
        finally:
            CURRENT_CONTEXT.reset(token)


def parameter_name(field: str) -> str:
    """The Python parameter of a field: `.` and `-` become `_`, a keyword gets a `_` behind it (`from` → `from_`)."""
    name = field.translate(_NAME_TO_PYTHON)
    return f"{name}_" if keyword.iskeyword(name) else name


def op_not_found(declaration: ActorDeclaration, op: str) -> MatrixError:
    """The refusal of an op that an actor does not accept, naming those it does."""
    accepted = ", ".join(repr(name) for name in declaration.accepts) or "none"
    return MatrixError(
        "MX_AGENT_OP_NOT_FOUND",
        f"The actor {declaration.mount!r} does not accept the op {op!r}. It accepts {accepted}.",
    )


def _methods_of(kind: type[Actor], declaration: ActorDeclaration) -> dict[str, str]:
    methods: dict[str, str] = {}
    for op in declaration.accepts:
        name = method_name(op)
        if op.startswith("$"):
            raise _malformed(kind, f"the op {op!r} begins with '$', which is kept for reserved ops")
        if name in methods.values():
            raise _malformed(kind, f"two ops share the method {name!r}; rename one")
        if hasattr(Actor, name) or not inspect.iscoroutinefunction(getattr(kind, name, None)):
            raise _malformed(kind, f"the op {op!r} needs a method 'async def {name}(self, …)' of its own")
        methods[op] = name
    return methods


def _malformed(kind: type[Actor], why: str) -> MatrixError:
    return MatrixError("MX_AGENT_ACTOR_ERROR", f"The class {kind.__name__!r} is malformed: {why}.")


def _read(values: ObservedValues, key: JsonValue, mount: str) -> JsonValue:
    if key not in values.declared:
        known = ", ".join(repr(name) for name in values.declared) or "nothing"
        raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"{mount!r} does not declare {key!r}. It declares {known}.")
    return values.get(str(key))


def as_actors_own(error: MatrixError, target: str, op: str) -> MatrixError:
    """An actor speaks for itself alone: whatever code it raises, its caller learns that the actor failed."""
    code = error.data.get("actorCode", error.code)
    return MatrixError(
        "MX_AGENT_ACTOR_ERROR", error.message, **{**error.data, "actorCode": code, "target": target, "op": op}
    )
