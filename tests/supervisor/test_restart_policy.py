from hypothesis import given
from hypothesis import strategies as st

from supervisor.restart_policy import RestartPolicy


@given(st.lists(st.floats(0, 1000), max_size=60), st.integers(1, 8), st.floats(1, 100))
def test_no_period_ever_holds_more_restarts_than_the_intensity(times, intensity, period):
    policy = RestartPolicy(intensity, period)
    allowed = [now for now in sorted(times) if policy.may_restart(now)]
    for start in allowed:
        assert sum(start <= now <= start + period for now in allowed) <= intensity


def test_restarts_are_possible_again_after_the_period():
    policy = RestartPolicy(1, 10)
    assert policy.may_restart(0)
    assert not policy.may_restart(5)
    assert policy.may_restart(11)


def test_repeated_restarts_wait_longer_and_never_over_five_seconds():
    policy = RestartPolicy(12, 1000)
    delays = []
    for now in range(12):
        policy.may_restart(now)
        delays.append(policy.delay_s())
    assert delays == sorted(delays)
    assert delays[0] == 0
    assert delays[-1] == 5.0
