import anyio
import pytest

from supervisor.approvals import Approvals

pytestmark = pytest.mark.anyio


async def test_an_answer_ends_the_question_with_its_verdict_and_who_gave_it():
    approvals = Approvals()
    pending = approvals.ask("claude-aaaaaa", {"op": "inventory.reserve"})
    assert approvals.answer(pending.number, "allow", "terminal")
    assert await approvals.wait_answer(pending, 1000) == {"verdict": "allow", "by": "terminal"}
    assert approvals.open_questions() == []


async def test_no_answer_in_time_is_a_refusal_and_a_late_answer_is_told_so():
    approvals = Approvals()
    pending = approvals.ask("claude-aaaaaa", {})
    with anyio.fail_after(5):
        answer = await approvals.wait_answer(pending, 1)
    assert answer["verdict"] == "deny"
    assert not approvals.answer(pending.number, "allow", "terminal")


@pytest.mark.parametrize("verdict", ["yes", "", "ALLOW", None])
async def test_anything_but_the_two_verdicts_is_no_answer(verdict):
    approvals = Approvals()
    pending = approvals.ask("claude-aaaaaa", {})
    assert not approvals.answer(pending.number, verdict, "terminal")
    assert approvals.open_questions() == [pending]


async def test_questions_have_numbers_of_their_own():
    approvals = Approvals()
    assert [approvals.ask("w", {}).number for _ in range(3)] == [1, 2, 3]
