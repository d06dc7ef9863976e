"""Attacks on the reader of JSON (threats.md, V1), and that it reads what it writes."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonValue
from bridge.contract.strict_json import MAX_BYTES, dumps, loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)

INVALID = [
    '{"a": 1, "a": 2}', '{"x": [{"a": 1, "a": 1}]}', '{"a": 1, "\\u0061": 2}', "NaN", "Infinity", "-Infinity", "1e999",
    "-1e999", "9" * 5000, str(2**64), str(-(2**63) - 1),
    '"\\ud800"', '"\\udc00\\ud800"', '{"\\ud800": 1}', "1 2", "{}x", "[1,]",
    "01", "", " ", "'a'", '"\n"', "\ufeff1", '"', '"\\', "{", "nul", '["\ud800"]',
]  # fmt: skip


@pytest.mark.parametrize("text", INVALID, ids=lambda text: ascii(text)[:40])
def test_what_has_no_single_meaning_is_refused(text: str) -> None:
    with pytest.raises(MatrixError) as caught:
        loads(text)
    assert caught.value.code == "MX_AGENT_INVALID_ARGUMENTS"
    assert caught.value.message.isascii()


@pytest.mark.parametrize("raw", [b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b"1\0"], ids=repr)
def test_bytes_that_are_not_utf_8_json_are_refused(raw: bytes) -> None:
    with pytest.raises(MatrixError, match="MX_AGENT_INVALID_ARGUMENTS"):
        loads(raw)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 65 + "]" * 65, '["[",' * 65 + "1" + "]" * 65])
def test_depth_over_the_limit_is_too_large(text: str) -> None:
    with pytest.raises(MatrixError, match="MX_AGENT_TOO_LARGE"):
        loads(text)


def test_brackets_inside_strings_are_not_depth() -> None:
    value = ["[" * 200, '\\"[{[{' * 50]
    assert loads(json.dumps(value)) == value
    assert loads("[" * 64 + "]" * 64)


def test_size_over_the_limit_is_too_large_also_when_counted_in_bytes() -> None:
    assert loads(b'"' + b"a" * (MAX_BYTES - 2) + b'"')
    for text in (b'"' + b"a" * (MAX_BYTES - 1) + b'"', '"' + "ä" * (MAX_BYTES // 2) + '"'):
        with pytest.raises(MatrixError, match="MX_AGENT_TOO_LARGE"):
            loads(text)


def test_a_hostile_text_costs_one_pass() -> None:
    started = time.process_time()
    for text in ("[" * 70 + '"' + '\\"' * 400_000, '["' * 300_000, "[" * 70 + '"\\' * 300_000):
        with pytest.raises(MatrixError):
            loads(text)
    # Read quadratically, any of these would take hours.
    assert time.process_time() - started < 20


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, {1, 2}, b"x"], ids=ascii)
def test_what_json_cannot_hold_is_not_written(value: object) -> None:
    with pytest.raises(MatrixError, match="MX_AGENT_INVALID_ARGUMENTS"):
        dumps(value)


def test_writing_has_limits_of_size_and_depth() -> None:
    deep: JsonValue = 1
    for _ in range(5000):
        deep = [deep]
    for value, limits in ((deep, {}), ([[[1]]], {"max_depth": 2}), ("aaa", {"max_bytes": 4})):
        with pytest.raises(MatrixError, match="MX_AGENT_TOO_LARGE"):
            dumps(value, **limits)
    assert dumps([[1]], max_depth=2, max_bytes=5) == "[[1]]"


@given(VALUE)
def test_what_is_written_is_ascii_and_reads_back_the_same(value: JsonValue) -> None:
    text = dumps(value)
    assert text.isascii()
    assert "\n" not in text
    assert loads(text) == value
    assert loads(text.encode()) == value
