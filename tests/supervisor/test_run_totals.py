"""What a run counts, from the events of its calls and inferences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.run_totals import RunTotals


def judged(call, verdict):
    return {"type": "call", "call": call, "verdict": verdict}


def ended(call, verdict, outcome):
    return {"type": "result", "call": call, "verdict": verdict, "outcome": outcome}


def counted(*events):
    totals = RunTotals()
    for event in events:
        totals.count_call(event)
    calls = totals.calls()
    return calls["allowed"], calls["denied"], calls["failed"]


@pytest.mark.parametrize(
    ("verdict", "outcome", "expected"),
    [
        ("allow", "ok", (1, 0, 0)),
        ("allow", "invalid", (1, 0, 1)),
        ("allow", "timedOut", (1, 0, 1)),
        ("deny", "denied", (0, 1, 0)),
        ("ask", "ok", (1, 0, 0)),
        ("ask", "failed", (1, 0, 1)),
        ("ask", "denied", (0, 1, 0)),
    ],
)
def test_a_call_counts_by_its_verdict_and_a_question_by_how_it_was_answered(verdict, outcome, expected):
    assert counted(judged("c", verdict), ended("c", verdict, outcome)) == expected


def test_a_call_that_was_allowed_and_never_ended_has_failed_and_a_question_without_an_end_was_denied():
    assert counted(judged("a", "allow"), judged("b", "ask")) == (1, 1, 1)


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["allow", "deny", "ask"]), st.sampled_from(["ok", "denied", "failed", None]))
    ),
    order=st.randoms(),
)
def test_the_total_is_what_was_allowed_and_denied_in_whatever_order_the_events_come(calls, order):
    events = []
    for number, (verdict, outcome) in enumerate(calls):
        events.append(judged(str(number), verdict))
        if outcome is not None:
            events.append(ended(str(number), verdict, outcome))
    in_order = counted(*events)
    order.shuffle(events)
    assert counted(*events) == in_order
    assert in_order[0] + in_order[1] == len(calls)
    assert in_order[2] <= in_order[0]


def test_an_inference_counts_where_the_model_answered():
    totals = RunTotals()
    totals.count_inference({"status": 200, "tokens": {"input": 10, "output": 5}})
    totals.count_inference({"status": 529, "tokens": {"input": 0, "output": 0}})
    totals.count_inference({"status": 499, "tokens": {"input": 7, "output": 0}})
    assert (totals.inferences, totals.tokens_in, totals.tokens_out) == (2, 17, 5)


def test_the_span_of_records_holds_whatever_order_their_numbers_come_in():
    totals = RunTotals()
    for number in (12, None, 10, 15, 11):
        totals.note_record(number)
    assert (totals.first_record, totals.last_record) == (10, 15)
