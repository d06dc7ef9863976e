"""What is malformed in an `$introspect` answer, as sentences: the check before `declarations` reads one.

Below: `field_descriptor`. An answer comes from an actor's host, so any JSON value may stand anywhere in it.
"""

from collections.abc import Iterator
from typing import Final

from bridge.contract.field_descriptor import field_problems
from bridge.contract.json_types import JsonObject, JsonValue

_RESERVED: Final = frozenset({"$introspect", "$getState", "$readBlackboard"})
_BLACKBOARD_KEYS: Final = frozenset({"price"})


def declaration_problems(answer: JsonObject) -> Iterator[str]:
    """Sentences on what is malformed in an `$introspect` answer, each beginning with where it stands."""
    for key in ("type", "description", "version"):
        if not isinstance(answer.get(key, ""), str):
            yield f"{key}: must be a string"
    yield from field_problems(answer.get("state", {}), "state")
    yield from field_problems(answer.get("blackboard", {}), "blackboard", _BLACKBOARD_KEYS)
    for group in ("accepts", "emits", "streams"):
        yield from _group_problems(answer.get(group, {}), group)
    yield from _list_problems(answer.get("subscribes", []), "subscribes", str, "a name")
    yield from _list_problems(answer.get("skills", []), "skills", dict, "an object")


def _group_problems(entries: JsonValue, group: str) -> Iterator[str]:
    if not isinstance(entries, dict):
        yield f"{group}: must be an object"
        return
    for name, entry in entries.items():
        yield from _entry_problems(entry, f"{group}.{name}")
        if group == "accepts" and name in _RESERVED:
            yield f"{group}.{name}: every actor answers this op already; choose another name"


def _entry_problems(entry: JsonValue, where: str) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{where}: must be an object with 'description' and 'schema'"
        return
    if not isinstance(entry.get("description", ""), str):
        yield f"{where}.description: must be a string"
    for key in ("schema", "returns"):
        if entry.get(key) is not None:
            yield from field_problems(entry[key], f"{where}.{key}")
    for key in ("inputSchema", "outputSchema"):
        if not isinstance(entry.get(key, {}), dict):
            yield f"{where}.{key}: must be a JSON Schema object"


def _list_problems(
    items: JsonValue, where: str, kind: type[str] | type[dict[str, JsonValue]], noun: str
) -> Iterator[str]:
    if not isinstance(items, list):
        yield f"{where}: must be a list"
        return
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            yield f"{where}[{index}]: must be {noun}"
