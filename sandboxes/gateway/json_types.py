"""The shape of JSON in types. Leaf; `sandboxes` imports nothing of the bridge, so it has its own."""

from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]


def as_object(value: JsonValue) -> JsonObject:
    """`value` if it is an object, else an empty one: for reading foreign JSON whose shape may be anything."""
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> list[JsonValue]:
    """`value` if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JsonValue) -> str:
    """`value` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: JsonValue) -> int:
    """`value` if it is a number of something, else 0. Booleans count nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
