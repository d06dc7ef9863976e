"""The grammar of names, and the aliases made of them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.errors import MatrixError
from bridge.contract.matrix_tool_projection import MatrixToolProjection, by_alias
from bridge.contract.names import canonical_name, is_within, parse_op, parse_root, parse_target
from bridge.contract.tool_names import MAX_ALIAS, alias_of

SEGMENT = st.one_of(
    st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=64),
    # Names that look like escapes and digests of the scheme itself.
    st.text("x_hH245F-aA", min_size=1, max_size=14),
)
NAME = st.lists(SEGMENT, min_size=1, max_size=5).map(".".join)
OP = st.tuples(st.sampled_from(["", "$"]), NAME).map("".join)

MALFORMED = [
    "", ".", "a.", ".a", "a..b", "a b", " a", "a ", "a\n", "a\0b", "a/b", "*", "a.*", "demo.*", "a" * 65,
    ".".join(["a"] * 33), "ä", "\uff41", "a\u200b", "%61", "a\\b", "$a", None, 1, True, ["a"], {"a": 1}, b"a",
]  # fmt: skip


@pytest.mark.parametrize("value", MALFORMED, ids=repr)
def test_a_malformed_target_is_refused_before_any_look_up(value: object) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_target(value)
    assert caught.value.code == "MX_AGENT_MALFORMED_NAME"
    assert caught.value.message.isascii()
    assert len(caught.value.message) < 700


@pytest.mark.parametrize("value", ["$", "$$a", "a$b", "a.$b", "$a.", "$introspect\n", "$*"])
def test_an_op_has_one_leading_dollar_at_most(value: str) -> None:
    with pytest.raises(MatrixError):
        parse_op(value)


def test_well_formed_names_come_back_as_they_are() -> None:
    assert parse_root("COM.NIMBLETEC.RICHARD-SANTOMAURO") == "COM.NIMBLETEC.RICHARD-SANTOMAURO"
    assert parse_target("system.tools.mcpBridge") == "system.tools.mcpBridge"
    assert parse_op("$getState") == "$getState"
    assert parse_target(".".join(["a" * 64] * 32))
    assert canonical_name("acme.com", "demo.inventory", "inventory.check") == "acme.com/demo.inventory/inventory.check"


def test_a_subtree_holds_whole_segments_only() -> None:
    assert is_within("system.tools", "system.tools")
    assert is_within("system.tools.mcpBridge", "system.tools")
    assert not is_within("system.toolsX", "system.tools")
    assert not is_within("system", "system.tools")
    assert not is_within("System.tools", "system.tools")


@pytest.mark.parametrize(
    ("mount", "op", "alias"),
    [
        ("system.registry", "registry.resolve", "system_registry__registry_resolve"),
        ("demo.inventory", "$introspect", "demo_inventory___x24_introspect"),
        ("a-b", "c", "a_x2D_b__c"),
        ("a.x41", "b", "a_x2E_x41_x2F_b"),  # the readable form would decode to another name
        ("a._b", "c", "a_x2E__x5F_b_x2F_c"),
    ],
)
def test_an_alias_is_readable_where_it_is_unambiguous(mount: str, op: str, alias: str) -> None:
    assert alias_of(mount, op) == alias


def test_an_alias_over_its_budget_or_like_a_digest_ends_in_a_digest() -> None:
    long = alias_of("m" * 60, "op")
    assert len(long) == MAX_ALIAS
    assert long.startswith("m" * 33 + "__op_h")
    assert alias_of("x", "h" + "a" * 12) == "x__haaaaaaaaaaaa_h" + alias_of("x", "h" + "a" * 12)[-12:]


@given(st.lists(st.tuples(NAME, OP), min_size=2, max_size=12, unique=True))
def test_different_ops_never_share_an_alias(names: list[tuple[str, str]]) -> None:
    aliases = [alias_of(mount, op) for mount, op in names]
    assert len(set(aliases)) == len(names)
    assert all(len(alias) <= MAX_ALIAS and alias.isascii() and alias.replace("_", "a").isalnum() for alias in aliases)


def test_a_collision_of_aliases_is_an_error_that_names_both() -> None:
    one = MatrixToolProjection("same", "r/a/x", "a", "x", "", {})
    two = MatrixToolProjection("same", "r/b/x", "b", "x", "", {})
    with pytest.raises(MatrixError, match=r"r/a/x.*r/b/x"):
        by_alias([one, two])
    assert by_alias([one, one]) == {"same": one}
