import pytest

from supervisor.lifecycle import EVENTS, STATES, TABLE, ImpossibleEventError, next_state


def test_the_table_has_no_blank_cell():
    assert set(TABLE) == {(state, event) for state in STATES for event in EVENTS}


def test_a_good_run_passes_every_state_in_order():
    state = STATES[0]
    walked = [state]
    for event in ("prepared", "connected", "worked", "handedOver"):
        state = next_state(state, event)
        walked.append(state)
    assert tuple(walked) == STATES


@pytest.mark.parametrize("state", STATES)
def test_failing_and_stopping_are_possible_in_every_state(state):
    assert next_state(state, "failed") in ("finishing", "ended")
    assert next_state(state, "stopped") in ("finishing", "ended")


def test_an_impossible_event_is_named_as_our_own_fault():
    with pytest.raises(ImpossibleEventError, match="'handedOver' cannot happen while a worker is 'running'"):
        next_state("running", "handedOver")


def test_no_event_leads_out_of_the_last_state():
    assert {TABLE[("ended", event)] for event in EVENTS} == {None, "ended"}
