"""Arguments and results against what the op declares."""

import pytest

from bridge.contract.declarations import OpDeclaration
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.validation import OpValidator, ValidatorCache

CHECK = OpDeclaration(
    "inventory.check",
    "Stock of a SKU.",
    {
        "sku": {"type": "string", "description": "SKU", "pattern": "^[A-Z]+-[0-9]+$"},
        "limit": {"type": "integer", "description": "Most", "default": 10},
        "where": {
            "type": "object",
            "description": "Filter",
            "optional": True,
            "properties": {"zone": {"type": "string", "description": "Zone", "default": "all"}},
        },
    },
    {"available": {"type": "integer", "description": "Items"}},
)


def test_defaults_are_filled_in_at_every_depth_and_the_payload_stays_as_it_was() -> None:
    payload: JsonObject = {"sku": "W-1", "where": {}}
    assert OpValidator(CHECK).arguments(payload) == {"sku": "W-1", "where": {"zone": "all"}, "limit": 10}
    assert payload == {"sku": "W-1", "where": {}}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, '"sku" is a required property'),
        ({"sku": 7}, "at 'sku'"),
        ({"sku": "w"}, "at 'sku'"),
        ({"sku": "W-1", "limit": True}, 'true is not of type "integer"'),
        ({"sku": "W-1", "limt": 1}, "did you mean 'limit'"),
        ({"sku": "W-1", "where": {"x": 1}}, "at 'where'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_what_to_mend(payload: JsonObject, said: str) -> None:
    with pytest.raises(MatrixError) as caught:
        OpValidator(CHECK).arguments(payload)
    assert caught.value.code == "MX_AGENT_INVALID_ARGUMENTS"
    assert said in caught.value.message
    assert "It takes 'sku', 'limit', 'where'" in caught.value.message


def test_a_huge_wrong_argument_makes_a_short_message() -> None:
    with pytest.raises(MatrixError) as caught:
        OpValidator(CHECK).arguments({"sku": ["x" * 100] * 10_000})
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("value", [None, {}, {"available": "secret-value"}, {"available": 1, "more": 2}, [1]])
def test_a_result_against_its_declaration_is_refused_without_showing_its_values(value: JsonValue) -> None:
    with pytest.raises(MatrixError) as caught:
        OpValidator(CHECK).result(value)
    assert caught.value.code == "MX_AGENT_INVALID_RESULT"
    assert "secret-value" not in caught.value.message


def test_an_op_that_declares_no_result_may_answer_anything() -> None:
    OpValidator(OpDeclaration("a", "d")).result({"any": ["thing"]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/hostname"},
        {"type": "nonsense"},
        {"properties": {"a": {"pattern": "("}}},
        {"$schema": "http://example.invalid/own"},
    ],
)
def test_a_schema_that_cannot_be_compiled_or_points_elsewhere_refuses_the_op(schema: JsonObject) -> None:
    with pytest.raises(MatrixError, match="MX_AGENT_ACTOR_ERROR"):
        OpValidator(OpDeclaration("a", "d", input_schema=schema))


def test_a_pattern_made_to_backtrack_is_bounded() -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=a)(a|aa)+$"}}}
    with pytest.raises(MatrixError, match="MX_AGENT_INVALID_ARGUMENTS"):
        OpValidator(OpDeclaration("a", "d", input_schema=schema)).arguments({"a": "a" * 5000 + "!"})


def test_the_cache_compiles_once_and_again_after_a_reload() -> None:
    cache = ValidatorCache()
    first = cache.of("demo.inventory", CHECK)
    assert cache.of("demo.inventory", CHECK) is first
    reloaded = OpDeclaration("inventory.check", "d", {"id": {"type": "string", "description": "d"}})
    assert cache.of("demo.inventory", reloaded).arguments({"id": "x"}) == {"id": "x"}
    cache.forget("demo.inventory")
    assert cache.of("demo.inventory", reloaded) is not first
