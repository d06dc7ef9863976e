"""FieldDescriptor, the type of a field in an actor's declaration, and its conversion to JSON Schema 2020-12 and back.

Leaf: knows `errors` and `json_types`. FIELDS is `{name: FIELD}`; a FIELD is a JSON object with `type`, `description`,
and optionally `optional`, `default`, `enum`, `items`, `properties` and bounds (contracts.md, section 4). Above it,
`declarations` says where fields stand; `bridge.validation` compiles the schemas.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "any")
BOUNDS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "format",
)
_COPIED: Final = ("description", "default", "enum", *BOUNDS)
_KEYS: Final = frozenset(("type", "optional", "items", "properties", *_COPIED))


def fields_to_schema(fields: JsonObject) -> JsonObject:
    """The closed JSON Schema object of FIELDS. Required: every field that is neither optional nor has a default."""
    schema: JsonObject = {"type": "object", "properties": {name: _to_schema(_field(f)) for name, f in fields.items()}}
    required: list[JsonValue] = [name for name, f in fields.items() if _is_required(_field(f))]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def schema_to_fields(schema: JsonObject) -> JsonObject:
    """FIELDS for the properties of a JSON Schema object; the inverse of `fields_to_schema`.

    What a FieldDescriptor cannot say (references, unions) becomes type `any`: good for showing, not for validating.
    """
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: _to_field(_field(sub), required=name in names) for name, sub in properties.items()}


def field_problems(fields: object, where: str, further_keys: frozenset[str] = frozenset()) -> Iterator[str]:
    """Sentences on what is malformed in FIELDS, each beginning with where it stands. A missing description is none."""
    if not isinstance(fields, dict):
        yield f"{where}: must be an object of fields"
        return
    for name, field in fields.items():
        yield from _field_problems(field, f"{where}.{name}", further_keys)


def missing_descriptions(fields: Mapping[str, JsonValue], where: str) -> Iterator[str]:
    """Where a field of FIELDS has no description, at every depth."""
    for name, field in fields.items():
        if isinstance(field, dict):
            yield from _missing_in(field, f"{where}.{name}")


def has_description(described: Mapping[str, JsonValue]) -> bool:
    """Whether `description` says something."""
    text = described.get("description")
    return isinstance(text, str) and bool(text.strip())


def _missing_in(field: JsonObject, where: str) -> Iterator[str]:
    if not has_description(field):
        yield where
    items, properties = field.get("items"), field.get("properties")
    if isinstance(items, dict):
        yield from _missing_in(items, f"{where}.items")
    if isinstance(properties, dict):
        yield from missing_descriptions(properties, f"{where}.properties")


def _field_problems(field: object, where: str, further_keys: frozenset[str] = frozenset()) -> Iterator[str]:
    if not isinstance(field, dict):
        yield f"{where}: must be an object with 'type' and 'description'"
        return
    for key in field:
        if key not in _KEYS and key not in further_keys:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            yield f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if field.get("type") not in TYPES:
        yield f"{where}: 'type' must be one of {', '.join(TYPES)}"
    if not isinstance(field.get("optional", False), bool):
        yield f"{where}: 'optional' must be true or false"
    enum = field.get("enum", ["one"])
    if not isinstance(enum, list) or not enum:
        yield f"{where}: 'enum' must be a list with at least one value"
    if "items" in field:
        yield from _field_problems(field["items"], f"{where}.items")
    if "properties" in field:
        yield from field_problems(field["properties"], f"{where}.properties")


def _is_required(field: JsonObject) -> bool:
    return field.get("optional") is not True and "default" not in field


def _to_schema(field: JsonObject) -> JsonObject:
    schema: JsonObject = {} if field.get("type") == "any" else {"type": field.get("type")}
    properties = field.get("properties")
    if isinstance(properties, dict):
        schema.update(fields_to_schema(properties))
    if "items" in field:
        schema["items"] = _to_schema(_field(field["items"]))
    schema.update({key: field[key] for key in _COPIED if key in field})
    return schema


def _to_field(schema: JsonObject, *, required: bool) -> JsonObject:
    kind = schema.get("type")
    field: JsonObject = {"type": kind if kind in TYPES else "any"}
    field.update({key: schema[key] for key in _COPIED if key in schema})
    if not required and "default" not in schema:
        field["optional"] = True
    if isinstance(schema.get("items"), dict):
        field["items"] = _to_field(_field(schema["items"]), required=True)
    if isinstance(schema.get("properties"), dict):
        field["properties"] = schema_to_fields(schema)
    return field


def _field(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise MatrixError("MX_AGENT_ACTOR_ERROR", "A field of the declaration is not an object. Give it a 'type'.")
    return value
