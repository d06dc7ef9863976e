"""Forms of the control socket: what goes in comes out, and nothing else does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.gateway.json_types import JsonObject, JsonValue
from sandboxes.gateway.wire_form import WireFormError, from_wire, to_wire
from sandboxes.gateway.worker_opening import KeyDelivery, Limits, WorkerFigures, WorkerOpening

NAMES = st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z")
TEXTS = st.lists(st.text(max_size=5)).map(tuple)
COUNTS = st.none() | st.integers(min_value=0)
OPENINGS = st.builds(
    WorkerOpening,
    worker=NAMES,
    kind=st.sampled_from(["claude", "codex"]),
    socket=st.text("ab/.", min_size=1).map(Path),
    uid=st.integers(),
    script=st.none() | st.text(),
    expected_tools=st.none() | TEXTS,
    judge_tools=TEXTS,
    limits=st.builds(Limits, tokens=COUNTS, requests=COUNTS),
    tool_names=st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
    infer_timeout_ms=st.integers(min_value=1),
)
LEAST: JsonObject = {"worker": "w", "kind": "claude", "socket": "/s", "uid": 0}


@given(OPENINGS)
def test_a_form_comes_back_as_it_was_sent(opening: WorkerOpening) -> None:
    assert from_wire(WorkerOpening, to_wire(opening)) == opening


def test_names_on_the_wire_are_those_of_the_page() -> None:
    assert to_wire(WorkerFigures()) == {
        "inferences": 0,
        "tokens": {"input": 0, "output": 0},
        "script": {"finished": True, "error": None},
    }
    assert "inferTimeoutMs" in to_wire(from_wire(WorkerOpening, LEAST))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("uids", 1, "no field"),
        ("infer_timeout_ms", 1, "no field"),
        ("uid", "0", "whole number"),
        ("uid", True, "whole number"),
        ("uid", 1.0, "whole number"),
        ("kind", "native", "'claude', 'codex'"),
        ("worker", "../w", "worker"),
        ("worker", "w\n", "worker"),
        ("socket", None, "a path"),
        ("script", 1, "a text"),
        ("egress", "a.example:443", "a list"),
        ("egress", [1], "a text"),
        ("limits", [], "an object"),
        ("limits", {"tokens": -1}, "0 or more"),
        ("limits", {"tokens": True}, "whole number"),
        ("limits", {"dollars": 1}, "no field"),
        ("toolNames", {"a": 1}, "a text"),
        ("inferTimeoutMs", 0, "over 0"),
    ],
)
def test_what_is_not_of_the_form_is_refused_with_the_field(field: str, value: JsonValue, said: str) -> None:
    with pytest.raises(WireFormError, match=said):
        from_wire(WorkerOpening, {**LEAST, field: value})


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(WireFormError, match="'uid' is missing"):
        from_wire(WorkerOpening, {name: value for name, value in LEAST.items() if name != "uid"})


def test_a_refused_key_is_in_no_message_and_a_kept_one_in_no_print() -> None:
    delivery: JsonObject = {"handle": "h", "provider": "nobody", "key": "sk-secret"}
    with pytest.raises(WireFormError) as refused:
        from_wire(KeyDelivery, delivery)

    assert "sk-secret" not in str(refused.value)
    assert "sk-secret" not in repr(from_wire(KeyDelivery, {**delivery, "provider": "openai"}))
