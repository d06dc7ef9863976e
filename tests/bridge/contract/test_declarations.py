"""FieldDescriptors, declarations and their projection to tools."""

import string
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.field_descriptor import field_problems, fields_to_schema, missing_descriptions, schema_to_fields
from bridge.contract.json_types import JsonObject
from bridge.contract.matrix_tool_projection import MatrixToolProjection, project

INVENTORY: JsonObject = {
    "root": "acme.com",
    "mount": "demo.inventory",
    "type": "Inventory",
    "description": "Stock levels of the demo shop, by warehouse.",
    "version": "1",
    "accepts": {
        "inventory.check": {
            "description": "How many items of a SKU are in stock, and where.",
            "schema": {
                "sku": {"type": "string", "description": "Stock keeping unit"},
                "warehouse": {"type": "string", "description": "Only this warehouse", "optional": True},
            },
            "returns": {"available": {"type": "integer", "description": "Items in stock"}},
        }
    },
    "state": {"checks": {"type": "integer", "description": "Checks answered", "default": 0}},
    "blackboard": {
        "low": {
            "type": "array",
            "description": "SKUs",
            "items": {"type": "string", "description": "SKU"},
            "price": None,
        }
    },
    "emits": {
        "inventory.changed": {"description": "A change", "schema": {"sku": {"type": "string", "description": "SKU"}}}
    },
    "streams": {},
    "subscribes": ["orders.placed"],
    "skills": [{"name": "stock", "description": "Answers about stock", "ops": ["inventory.check"]}],
}

NAMES = st.text(string.ascii_letters, min_size=1, max_size=6)
SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": "string", "minLength": 1, "maxLength": 9},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "pattern": "^a+$", "format": "date"},
        {"type": "number", "minimum": 0, "maximum": 1.5},
        {"type": "integer", "default": 3},
        {"type": "boolean"},
        {"type": "any"},
        {"type": "object"},
    ]
)


def _described(field: dict[str, Any], described: bool, optional: bool) -> dict[str, Any]:
    extra: dict[str, Any] = {"description": "It says what it is"} if described else {}
    # `optional` beside a default says nothing more, so the normal form has it not.
    return field | extra | ({"optional": True} if optional and "default" not in field else {})


def _fields(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    inner: st.SearchStrategy[dict[str, Any]] = SCALARS
    if depth:
        items = st.builds(_described, SCALARS, st.booleans(), st.just(False))
        inner = st.one_of(
            SCALARS,
            items.map(lambda item: {"type": "array", "items": item}),
            _fields(depth - 1).map(lambda fields: {"type": "object", "properties": fields}),
        )
    return st.dictionaries(NAMES, st.builds(_described, inner, st.booleans(), st.booleans()), max_size=4)


@given(_fields(2))
def test_fields_come_back_from_their_schema_and_the_schema_compiles(fields: JsonObject) -> None:
    schema = fields_to_schema(fields)
    assert schema_to_fields(schema) == fields
    assert list(field_problems(fields, "schema")) == []
    jsonschema_rs.meta.validate(schema)
    jsonschema_rs.Draft202012Validator(schema)


def test_a_field_without_optional_or_default_is_required_and_the_object_is_closed() -> None:
    fields: JsonObject = {
        "sku": {"type": "string", "description": "d"},
        "where": {"type": "string", "description": "d", "optional": True},
        "count": {"type": "integer", "description": "d", "default": 1},
        "open": {"type": "object", "description": "d", "optional": True},
    }
    schema = fields_to_schema(fields)
    assert schema["required"] == ["sku"]
    valid = jsonschema_rs.Draft202012Validator(schema).is_valid
    assert valid({"sku": "a", "open": {"any": 1}})
    assert not valid({"sku": "a", "more": 1})
    assert not valid({"sku": "a", "count": True})


def test_a_schema_beyond_field_descriptors_is_shown_as_any() -> None:
    shown = schema_to_fields({"properties": {"a": {"anyOf": [{"type": "string"}]}, "b": {"type": ["string", "null"]}}})
    assert shown == {"a": {"type": "any", "optional": True}, "b": {"type": "any", "optional": True}}


def test_missing_descriptions_are_found_at_every_depth() -> None:
    fields: JsonObject = {
        "a": {"type": "array", "description": " ", "items": {"type": "object", "properties": {"b": {"type": "any"}}}}
    }
    assert list(missing_descriptions(fields, "schema")) == ["schema.a", "schema.a.items", "schema.a.items.properties.b"]


def test_a_declaration_comes_back_from_introspect() -> None:
    declaration = ActorDeclaration.from_introspect(INVENTORY)
    assert declaration.to_introspect("acme.com") == INVENTORY
    assert declaration.missing_descriptions() == ()
    assert declaration.op_names() == ("inventory.check", "$introspect", "$getState", "$readBlackboard")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mount": "demo.*"}, "malformed"),
        ({"accepts": {"a b": {"description": "", "schema": {}}}}, "malformed"),
        ({"accepts": {"$introspect": {"description": "", "schema": {}}}}, "already"),
        ({"accepts": {"a": {"schema": {"x": {"type": "strin", "description": ""}}}}}, "'type' must be one of"),
        ({"accepts": {"a": {"schema": {"x": {"type": "string", "minLenght": 1}}}}}, "did you mean 'minLength'"),
        ({"accepts": {"a": {"schema": []}}}, "must be an object of fields"),
        ({"accepts": []}, "accepts: must be an object"),
        ({"accepts": {"a": 1}}, "must be an object"),
        ({"state": {"x": {"type": "string", "price": 1}}}, "unknown key 'price'"),
        ({"skills": ["x"]}, "must be an object"),
        ({"subscribes": {}}, "must be a list"),
        ({"description": 1}, "must be a string"),
    ],
)
def test_a_malformed_declaration_is_refused_saying_where(change: JsonObject, said: str) -> None:
    with pytest.raises(MatrixError, match=said):
        ActorDeclaration.from_introspect({**INVENTORY, **change})


@pytest.mark.parametrize("answer", [None, 1, "x", [], {}])
def test_what_is_no_declaration_at_all_is_refused(answer: Any) -> None:
    with pytest.raises(MatrixError):
        ActorDeclaration.from_introspect(answer)


def test_a_projection_carries_alias_canonical_name_and_both_schemas() -> None:
    projection = project("acme.com", ActorDeclaration.from_introspect(INVENTORY), "inventory.check")
    assert projection.name == "demo_inventory__inventory_check"
    assert projection.canonical == "acme.com/demo.inventory/inventory.check"
    assert projection.input_schema["required"] == ["sku"]
    assert projection.output_schema is not None
    assert MatrixToolProjection.from_json(projection.to_json()) == projection


def test_a_reserved_op_can_be_projected_and_an_unknown_one_cannot() -> None:
    declaration = ActorDeclaration.from_introspect(INVENTORY)
    assert project("acme.com", declaration, "$getState").input_schema["required"] == ["key"]
    with pytest.raises(MatrixError, match="MX_AGENT_OP_NOT_FOUND"):
        project("acme.com", declaration, "inventory.delete")


def test_a_mounted_servers_schema_is_carried_verbatim() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "x-own": 1}
    mounted: JsonObject = {
        **INVENTORY,
        "accepts": {"t": {"description": "d", "inputSchema": schema, "outputSchema": schema}},
    }
    declaration = ActorDeclaration.from_introspect(mounted)
    projection = project("r", declaration, "t")
    assert projection.input_schema == schema
    assert projection.output_schema == schema
    assert declaration.to_introspect("acme.com")["accepts"] == mounted["accepts"]
