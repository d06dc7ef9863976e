"""However a run is ended, the command shows everything up to the result, and nothing after it."""

import json

import pytest

from tests.e2e.conftest import git
from tests.e2e.live_run import live_run
from tests.e2e.roles import role_file

pytestmark = pytest.mark.container

LONG = """\
steps:
  - call: {tool: shell, args: {command: "echo done > done.txt"}}
  - call: {tool: shell, args: {command: "python3 -c 'import time; time.sleep(60)'"}}
  - say: "Never."
"""


@pytest.fixture
def words(shop, script, tmp_path):
    """The words of a run that writes a file and then waits."""
    return ("--repo", shop, "--policy", role_file(tmp_path), *script(LONG))


def assert_whole(run, last, shop):
    """The stream has its calls, its time stamps and one result, and the work so far came out."""
    results = [event for event in run.events if event["type"] == "result"]
    assert results == [last]
    assert all({"type", "worker", "at"} <= event.keys() for event in run.events)
    judged = [event for event in run.events if event["type"] == "call"]
    ended = [event for event in run.events if event["type"] == "call.result"]
    assert len(judged) == len(ended) == last["calls"]["total"] == 2
    assert last["calls"]["failed"] == 1
    assert git(shop, "show", f"{last['branch']}:done.txt") == "done\n"


def test_ctrl_c_stops_the_worker_and_shows_the_rest_of_its_events(mxs, kind, words, shop):
    with live_run(mxs, kind, *words) as run:
        run.wait_until_waiting()
        run.interrupt()
        code, last, _ = run.end()
    assert (code, last["status"]) == (130, "stopped")
    assert_whole(run, last, shop)


def test_down_ends_the_worker_and_whoever_watches_it_sees_the_result(mxs, kind, words, shop):
    with live_run(mxs, kind, *words) as run:
        run.wait_until_waiting()
        mxs("down", check=0)
        code, last, _ = run.end()
    assert (code, last["status"]) == (130, "stopped")
    assert_whole(run, last, shop)


def test_a_spent_budget_of_time_is_a_spent_budget(mxs, shop, script, tmp_path):
    policy = role_file(tmp_path)
    policy.write_text(policy.read_text() + "\n[roles.tester.budget]\nseconds = 3\n")
    done = mxs.run("claude", "--repo", shop, "--policy", policy, "--timeout", 60, *script(LONG), check=6)
    assert (done.result["status"], done.result["error"]["code"]) == ("failed", "MX_AGENT_BUDGET_SPENT")


def test_a_time_limit_of_the_command_is_no_budget(mxs, shop, script, tmp_path):
    done = mxs.run("claude", "--repo", shop, "--policy", role_file(tmp_path), "--timeout", 3, *script(LONG), check=5)
    assert (done.result["status"], done.result["error"]["code"]) == ("timedOut", "MX_AGENT_PROMPT_TIMEOUT")


def test_ps_prints_the_kept_record_of_each_worker(mxs, shop, script, tmp_path):
    done = mxs.run(
        "claude", "--repo", shop, "--policy", role_file(tmp_path), *script('steps: [{say: "Hello."}]'), check=0
    )
    listed = [json.loads(line) for line in mxs("ps", "--all", "--json", check=0).stdout.splitlines()]
    (record,) = [record for record in listed if record["id"] == done.worker]
    assert (record["state"], record["result"]["status"]) == ("ended", "completed")
