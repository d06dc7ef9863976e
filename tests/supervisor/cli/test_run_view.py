import pytest

from supervisor.cli.run_printer import RunPrinter
from supervisor.cli.run_view import lines_of

RESULT = {
    "type": "result", "worker": "claude-aaaaaa", "status": "completed", "branch": "mxs/claude-aaaaaa", "commits": 1,
    "files": {"changed": 1, "insertions": 2, "deletions": 3},
    "calls": {"total": 2, "allowed": 1, "denied": 1, "failed": 0},
    "inferences": 3, "tokens": {"input": 4, "output": 5}, "durationMs": 1500, "audit": {"first": 1, "last": 9},
    "error": None, "leftBehind": [], "review": [],
}  # fmt: skip


def texts(event):
    return [line.text for line in lines_of(event)]


def test_an_allowed_call_shows_its_name_and_arguments_and_a_refused_one_its_reason():
    call = {
        "type": "call",
        "source": "bus",
        "target": "demo.inventory",
        "op": "inventory.check",
        "summary": '{"sku": 1}',
    }
    assert texts({**call, "verdict": "allow"}) == ['→ demo.inventory inventory.check {"sku": 1}']
    assert texts({**call, "verdict": "deny", "reason": "OUT_OF_SUBTREE"})[0].endswith("OUT_OF_SUBTREE")


def test_a_result_names_the_branch_the_calls_and_the_records():
    shown = "\n".join(texts(RESULT))
    for part in ("claude-aaaaaa completed", "mxs/claude-aaaaaa", "1 allowed, 1 denied", "1.50 s", "records 1 to 9"):
        assert part in shown


def test_a_failed_result_says_code_and_message():
    error = {"code": "MX_AGENT_INFERENCE_FAILED", "message": "The key was refused."}
    assert "  MX_AGENT_INFERENCE_FAILED: The key was refused." in texts({**RESULT, "status": "failed", "error": error})


def test_what_was_left_behind_is_listed_but_not_what_the_repository_ignores():
    left = [
        {"path": "docs.txt", "why": "outside the paths"},
        {"path": "a.pyc", "why": "ignored by the repository's rules"},
    ]
    shown = "\n".join(texts({**RESULT, "leftBehind": left}))
    assert "docs.txt (outside the paths)" in shown
    assert "a.pyc" not in shown


@pytest.mark.parametrize("event", [{"type": "unknown"}, {"type": "state", "state": "running"}, {}])
def test_what_only_a_program_wants_is_not_shown(event):
    assert lines_of(event) == []


def test_text_that_comes_in_pieces_stays_on_its_line_and_the_next_event_begins_a_new_one(capsys):
    printer = RunPrinter()
    for piece in ("I look at the ", "test."):
        printer.print({"type": "text", "text": piece})
    printer.print({"type": "notice", "text": "careful"})
    assert capsys.readouterr().out == "I look at the test.\n! careful\n"


def test_text_of_a_worker_cannot_steer_the_terminal(capsys):
    RunPrinter().print({"type": "text", "text": "\x1b]0;title\x07\x1b[2J"})
    assert "\x1b" not in capsys.readouterr().out
