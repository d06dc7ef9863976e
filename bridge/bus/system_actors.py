"""The bridge's own directory: `system.catalog` and `system.registry` (contracts.md, section 4).

They answer from what is mounted now, and only what the caller of this call may use. What that is comes as a function,
since the bus knows no permission. Above: `assembly`, which mounts them on the privileged local bus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bridge.bus.actor import Actor
from bridge.bus.actor_bus import ActorBus
from bridge.bus.local_bus import target_not_found
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import is_within

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100

MayUse = Callable[[str, str, str], bool]
"""(call id, target, op) -> whether the caller of that call may use the op, asking included."""

_ENTRY: Final[JsonObject] = {
    "mount": {"type": "string", "description": "The target to call it at"},
    "type": {"type": "string", "description": "The kind of actor"},
    "description": {"type": "string", "description": "What it is for"},
    "accepts": {"type": "object", "description": "The ops that you may use, each with description, schema and returns"},
    "emits": {
        "type": "array",
        "description": "Events it publishes",
        "items": {"type": "string", "description": "Name"},
    },
    "skills": {"type": "array", "description": "Bundles of ops", "items": {"type": "object", "description": "A skill"}},
}


@dataclass(frozen=True)
class _Visible:
    """An actor as one caller sees it."""

    declaration: ActorDeclaration
    ops: tuple[str, ...]

    def to_json(self) -> JsonObject:
        declaration = self.declaration
        return {
            "mount": declaration.mount,
            "type": declaration.type,
            "description": declaration.description,
            "accepts": {op: declaration.accepts[op].to_json() for op in self.ops if op in declaration.accepts},
            "emits": list(declaration.emits),
            "skills": [skill for skill in declaration.skills if _ops_of(skill) & set(self.ops)],
        }


class _Directory(Actor):
    """What both system actors look things up in."""

    def __init__(self, bus: ActorBus, may_use: MayUse) -> None:
        self._bus = bus
        self._may_use = may_use

    def _visible(self) -> list[_Visible]:
        return [seen for declaration in self._bus.declarations() if (seen := self._seen(declaration)).ops]

    def _seen(self, declaration: ActorDeclaration) -> _Visible:
        call = self.ctx.call
        ops = (op for op in declaration.op_names() if self._may_use(call, declaration.mount, op))
        return _Visible(declaration, tuple(ops))


class SystemCatalog(_Directory):
    """Finds actors by what they do."""

    mount = "system.catalog"
    description = "Finds actors and their ops by text, op, event or skill; shows only what you may use."
    accepts = {  # noqa: RUF012 - declarations are data, in the specification's own shape
        "catalog.search": {
            "description": "Search the actors that you may use. Without filters it lists them all, a page at a time.",
            "schema": {
                "query": {
                    "type": "string",
                    "description": "Words that occur in names or descriptions",
                    "optional": True,
                },
                "accepts": {"type": "string", "description": "An op, or the first segments of one", "optional": True},
                "emits": {"type": "string", "description": "An event, or the first segments of one", "optional": True},
                "skill": {"type": "string", "description": "The name of a skill", "optional": True},
                "limit": {
                    "type": "integer",
                    "description": "Actors in one answer",
                    "minimum": 1,
                    "maximum": MAX_LIMIT,
                    "default": DEFAULT_LIMIT,
                },
                "cursor": {"type": "string", "description": "'nextCursor' of the answer before", "optional": True},
            },
            "returns": {
                "actors": {
                    "type": "array",
                    "description": "What was found, ordered by mount",
                    "items": {"type": "object", "description": "One actor", "properties": _ENTRY},
                },
                "total": {"type": "integer", "description": "How many were found in all"},
                "nextCursor": {"type": "string", "description": "Where to go on, if there is more", "optional": True},
            },
        }
    }

    async def catalog_search(
        self,
        query: str = "",
        accepts: str = "",
        emits: str = "",
        skill: str = "",
        limit: int = DEFAULT_LIMIT,
        cursor: str = "",
    ) -> JsonObject:
        """`catalog.search`. A cursor is the last mount of the page before, so that it survives changes."""
        found = [
            seen
            for seen in self._visible()
            if _names(accepts, seen.ops)
            and _names(emits, seen.declaration.emits)
            and (not skill or any(told.get("name") == skill for told in seen.declaration.skills))
            and _mentions(query, seen)
        ]
        page = [seen for seen in found if seen.declaration.mount > cursor]
        answer: JsonObject = {"actors": [seen.to_json() for seen in page[:limit]], "total": len(found)}
        if len(page) > limit:
            answer["nextCursor"] = page[limit - 1].declaration.mount
        return answer


class SystemRegistry(_Directory):
    """Looks actors up by mount."""

    mount = "system.registry"
    description = "Looks up which actor is mounted where; shows only what you may use."
    accepts = {  # noqa: RUF012 - declarations are data, in the specification's own shape
        "registry.resolve": {
            "description": "Describe the actor at one mount, with the ops that you may use.",
            "schema": {"mount": {"type": "string", "description": "The mount, for example 'system.catalog'"}},
            "returns": _ENTRY,
        },
        "registry.list": {
            "description": "List every mount that you may use.",
            "schema": {},
            "returns": {
                "mounts": {
                    "type": "array",
                    "description": "Ordered by mount",
                    "items": {
                        "type": "object",
                        "description": "One actor",
                        "properties": {name: _ENTRY[name] for name in ("mount", "type", "description")},
                    },
                }
            },
        },
    }

    async def registry_resolve(self, mount: str) -> JsonObject:
        """`registry.resolve`. What the caller may not use is not found."""
        declaration = self._bus.declaration(mount)
        seen = None if declaration is None else self._seen(declaration)
        if seen is None or not seen.ops:
            raise target_not_found(mount)
        return seen.to_json()

    async def registry_list(self) -> JsonObject:
        """`registry.list`."""
        told = [seen.declaration for seen in self._visible()]
        entries: list[JsonValue] = [{"mount": d.mount, "type": d.type, "description": d.description} for d in told]
        return {"mounts": entries}


def _names(wanted: str, names: Iterable[str]) -> bool:
    return not wanted or any(is_within(name, wanted) for name in names)


def _mentions(query: str, seen: _Visible) -> bool:
    declaration = seen.declaration
    texts = [declaration.mount, declaration.type, declaration.description, *seen.ops]
    texts += [declaration.accepts[op].description for op in seen.ops if op in declaration.accepts]
    text = " ".join(texts).casefold()
    return all(word in text for word in query.casefold().split())


def _ops_of(skill: JsonObject) -> set[JsonValue]:
    ops = skill.get("ops")
    return {op for op in ops if isinstance(op, str)} if isinstance(ops, list) else set()
