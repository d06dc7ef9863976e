"""Frozen dataclasses as JSON objects and back: camelCase on the wire, exact types, no unknown field. Pure leaf.

Both ends of the control socket share the classes; this file reads what the other end sent. It stands in for a larger
library because the gateway, one process beside the workers', pays for what it loads: see docs/wires.md for the forms.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sandboxes.gateway.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Form = TypeVar("Form", bound="DataclassInstance")


class WireFormError(ValueError):
    """The object is not of the form. The message names the field and what it takes, and quotes no value."""


def to_wire(form: "DataclassInstance") -> JsonObject:
    """The JSON object of a form."""
    return {_camel(field.name): _plain(getattr(form, field.name)) for field in fields(form)}


def from_wire(form: type[Form], value: JsonObject) -> Form:
    """The form that `value` is. Raises `WireFormError`, also for what the form itself refuses."""
    known = {_camel(field.name): field for field in fields(form)}
    for name in value:
        if name not in known:
            raise WireFormError(f"{name!r} is no field here; known are {', '.join(known)}.")
    for name, field in known.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise WireFormError(f"{name!r} is missing.")
    hints = _hints(form)
    read = {known[name].name: _read(hints[known[name].name], given, name) for name, given in value.items()}
    try:
        return form(**read)
    except ValueError as error:
        raise WireFormError(str(error)) from None


@cache
def _hints(form: type) -> Mapping[str, Any]:
    return typing.get_type_hints(form)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _plain(value: object) -> JsonValue:
    if is_dataclass(value) and not isinstance(value, type):
        return to_wire(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return cast("JsonValue", value)


def _read(hint: Any, value: JsonValue, where: str) -> object:
    """`value` as the hint says; the hints understood are those that the forms use."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (wanted,) = (each for each in inner if each is not types.NoneType)
        return None if value is None else _read(wanted, value, where)
    if origin is typing.Literal and isinstance(value, str) and value in inner:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], item, where) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: _read(inner[1], item, where) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return from_wire(hint, value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if type(value) is hint:
        return value
    raise WireFormError(f"{where!r} must be {_said(hint)}.")


def _said(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    names = {str: "a text", Path: "a path", int: "a whole number", bool: "true or false"}
    return names.get(hint) or ("a list" if typing.get_origin(hint) is tuple else "an object")
