"""The command line as contracts.md, section 2 promises it: exit codes, JSON, life-cycle, trust, and a clean end."""

import json
import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

import supervisor
from supervisor.cli.main import command_line
from tests.e2e.conftest import SHOP, Mxs, git
from tests.e2e.live_run import containers_of, live_run, processes_naming, status

pytestmark = pytest.mark.container

POLICY = ("--policy", SHOP / "permissions.toml")
ACTORS = (*POLICY, "--actors", SHOP / "actors")
DONE = "steps:\n  - say: Done.\n"
EDITS = """
steps:
  - call: {tool: edit, args: {path: shop/cart.py, old: "stock + ordered", new: "stock - ordered"}}
  - say: Done.
"""
WAITS = """
steps:
  - call: {tool: shell, args: {command: "python3 -c 'import time; time.sleep(60)'"}}
  - say: Done.
"""
COMMANDS = (
    "run", "ps", "logs", "stop", "rm", "diff", "apply", "show", "approvals", "approve", "deny", "invoke", "trust", "up",
    "down", "status", "doctor", "actors list", "actors describe", "actors lint", "actors reload", "policy check",
    "policy explain", "audit tail", "audit query", "audit show", "audit verify", "audit export",
)  # fmt: skip


@pytest.fixture
def fresh():
    """A state folder of the test's own."""
    command = Mxs(Path(tempfile.mkdtemp(prefix="mxs-", dir="/tmp")))
    yield command
    command("down")
    shutil.rmtree(command.home)


def documents(done):
    """The JSON documents a command printed, one a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]


# Calls


def test_every_command_has_help_and_usage_errors_are_exit_2(mxs):
    app = command_line([])
    for command in COMMANDS:
        helped = CliRunner().invoke(app, [*command.split(), "--help"])
        assert helped.exit_code == 0
        assert "Usage" in helped.output
    assert mxs("run", "nobody", "Do it.").returncode == 2
    assert mxs("nonsense").returncode == 2
    assert mxs("run", "claude", "Do it.", "--no-such-option").returncode == 2
    assert "Traceback" not in mxs("show").stderr


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (0, None, ("demo.inventory", "inventory.check", '{"sku": "WIDGET-42"}')),
        (1, "MX_AGENT_ACTOR_ERROR", ("demo.inventory", "inventory.check", '{"sku": "NONE"}')),
        (1, "MX_AGENT_OP_NOT_FOUND", ("system.catalog", "catalog.nothing")),
        (2, "MX_AGENT_INVALID_ARGUMENTS", ("demo.inventory", "inventory.check", '{"sku": 1}')),
        (2, "MX_AGENT_INVALID_ARGUMENTS", ("demo.inventory", "inventory.check", "not JSON")),
        (4, "MX_AGENT_OUT_OF_SUBTREE", ("demo.other", "inventory.check")),
        (4, "MX_AGENT_COMMAND_NOT_ALLOWED", ("demo.inventory", "inventory.delete", '{"sku": "WIDGET-42"}')),
        (4, "MX_AGENT_MALFORMED_NAME", ("demo..inventory", "inventory.check")),
        (4, "MX_AGENT_APPROVAL_DENIED", ("demo.inventory", "inventory.reserve", '{"sku": "WIDGET-42", "quantity": 1}')),
    ],
)
def test_invoke_has_an_exit_code_for_each_way_to_end(mxs, tmp_path, code, error, words):
    policy = tmp_path / "wide.toml"
    text = (SHOP / "permissions.toml").read_text()
    policy.write_text(text.replace('allow = ["catalog.search"]', 'allow = ["catalog.*"]'))
    done = mxs("invoke", "--json", "--policy", policy, "--actors", SHOP / "actors", *words)
    assert done.returncode == code, done.stdout + done.stderr
    (answer,) = documents(done)
    if error is None:
        assert answer == {"result": {"available": 147, "warehouses": ["east", "west"]}}
    else:
        assert set(answer["error"]) == {"code", "message"}
        assert answer["error"]["code"] == error
        assert answer["error"]["message"]


def test_invoke_reads_its_payload_from_standard_input_and_says_refusals_in_words(mxs):
    words = ("invoke", *ACTORS, "demo.inventory", "inventory.check", "-")
    assert json.loads(mxs(*words, stdin='{"sku": "WIDGET-42"}', check=0).stdout)["available"] == 147
    denied = mxs("invoke", *ACTORS, "demo.inventory", "inventory.delete", "{}", check=4)
    assert "MX_AGENT_COMMAND_NOT_ALLOWED" in denied.stderr
    assert denied.stdout == ""


def test_a_spent_budget_of_calls_has_its_own_exit_code(mxs, tmp_path):
    policy = tmp_path / "poor.toml"
    policy.write_text((SHOP / "permissions.toml").read_text().replace("tool_calls = 500", "tool_calls = 0"))
    done = mxs("invoke", "--json", "--policy", policy, "--actors", SHOP / "actors", "demo.inventory", "inventory.check")
    assert (done.returncode, documents(done)[0]["error"]["code"]) == (6, "MX_AGENT_BUDGET_SPENT")


@pytest.mark.parametrize(
    ("code", "verdict", "reason", "words"),
    [
        (0, "allow", "GRANTED", ("demo.inventory", "inventory.check")),
        (4, "deny", "COMMAND_NOT_ALLOWED", ("demo.inventory", "inventory.delete")),
        (4, "deny", "OUT_OF_SUBTREE", ("demo.inventoryX", "inventory.check")),
        (4, "deny", "MALFORMED_NAME", ("demo..x", "inventory.check")),
        (7, "ask", "ASK", ("demo.inventory", "inventory.reserve")),
    ],
)
def test_policy_explain_has_an_exit_code_for_each_verdict(mxs, code, verdict, reason, words):
    done = mxs("policy", "explain", "--json", *POLICY, "--as", "coder", *words)
    assert done.returncode == code, done.stderr
    (answer,) = documents(done)
    assert set(answer) == {"verdict", "reason", "rule", "nearest"}
    assert (answer["verdict"], answer["reason"]) == (verdict, reason)


def test_policy_check_and_the_catalog_answer_in_json(mxs):
    assert documents(mxs("policy", "check", "--json", SHOP / "permissions.toml", check=0))[0]["roles"] == ["coder"]
    listed = documents(mxs("actors", "list", "--json", "--actors", SHOP / "actors", check=0))
    assert "demo.inventory" in [actor["mount"] for actor in listed]
    (declared,) = documents(mxs("actors", "describe", "--json", "demo.inventory", check=0))
    assert "inventory.check" in declared["accepts"]
    assert mxs("actors", "describe", "demo.nothing").returncode == 1
    assert documents(mxs("actors", "lint", "--json", SHOP / "actors", check=0)) == [{"problems": []}]


def test_lint_names_file_line_and_field_without_importing(mxs, tmp_path):
    marker = tmp_path / "imported"
    actor = tmp_path / "bad.py"
    actor.write_text(
        f"open({str(marker)!r}, 'w')\nfrom bridge import Actor\n\n\nclass Bad(Actor):\n    mount = 'demo.bad'\n"
        "    description = 'Bad.'\n"
        "    accepts = {'bad.do': {'description': 'Does.', 'schema': {'x': {'type': 'string'}}}}\n"
    )
    done = mxs("actors", "lint", actor, check=1)
    assert "bad.py:" in done.stdout
    assert "x" in done.stdout
    assert not marker.exists()


# Life-cycle


def test_a_detached_run_is_followed_stopped_shown_and_removed(mxs, kind, shop, script):
    words = ("run", kind, "--repo", shop, *POLICY, *script(WAITS), "--detach", "--json", "--name", f"waiting-{kind}")
    (started,) = documents(mxs(*words, stdin="A prompt by standard input.\n", check=0))
    worker = started["worker"]
    assert worker in [record["id"] for record in documents(mxs("ps", "--json", check=0))]
    assert mxs("rm", worker).returncode == 1
    assert mxs("diff", worker).returncode == 1
    with ThreadPoolExecutor() as pool:
        following = pool.submit(mxs, "logs", "-f", "--json", worker)
        mxs("stop", f"waiting-{kind}", check=0)
        events = documents(following.result())
    assert events[-1]["type"] == "result"
    assert events[-1]["status"] == "stopped"
    assert all({"type", "worker", "at"} <= event.keys() for event in events)
    assert worker not in [record["id"] for record in documents(mxs("ps", "--json", check=0))]
    (shown,) = documents(mxs("show", "--json", worker, check=0))
    assert shown["prompt"] == "A prompt by standard input.\n"
    assert shown["state"] == "ended"
    assert containers_of(mxs) == []
    assert documents(mxs("logs", "--json", worker, check=0)) == events
    mxs("rm", worker, check=0)
    for command in ("show", "rm"):
        gone = mxs(command, worker)
        assert gone.returncode == 1
        assert "mxs ps --all" in gone.stderr


def test_the_result_has_the_promised_shape_and_is_never_lost_by_a_removal(mxs, shop, script):
    outcome = mxs.run("codex", "--repo", shop, *POLICY, *script(EDITS), check=0)
    result = outcome.result
    assert set(result) >= {
        "type", "worker", "kind", "status", "branch", "commits", "files", "calls", "inferences", "tokens", "durationMs",
        "audit", "error",
    }  # fmt: skip
    assert result["files"] == {"changed": 1, "insertions": 1, "deletions": 1}
    git(shop, "branch", "-D", f"mxs/{outcome.worker}")
    assert mxs("rm", outcome.worker, check=1).stderr.count("--force") == 1
    (stat_,) = documents(mxs("diff", "--stat", "--json", outcome.worker, check=0))
    assert stat_ == {"changed": 1, "insertions": 1, "deletions": 1}
    mxs("rm", "--force", outcome.worker, check=0)


def test_a_taken_name_an_empty_prompt_and_a_missing_file_are_usage_errors(mxs, shop, script):
    played = script(DONE)
    mxs("run", "claude", "Do it.", "--repo", shop, *POLICY, *played, "--name", "mine", "--no-input", check=0)
    again = mxs("run", "claude", "Do it.", "--repo", shop, *POLICY, *played, "--name", "mine", check=2)
    assert "mine" in again.stderr
    assert mxs("run", "claude", "--repo", shop, *POLICY, *played, stdin=" \n").returncode == 2
    assert mxs("run", "claude", "Do it.", "--repo", shop, "--policy", "/nowhere.toml", *played).returncode == 2
    assert mxs("run", "claude", "Do it.", "--repo", shop, "--actors", "/nowhere", *played).returncode == 2
    assert mxs("run", "claude", "Do it.", "--repo", shop, "--model", "script:/nowhere.yaml").returncode == 2


def test_the_built_in_role_works_without_a_policy_file(mxs, kind, shop, script):
    outcome = mxs.run(kind, "--repo", shop, *script(EDITS), check=0)
    assert outcome.result["files"]["changed"] == 1
    assert documents(mxs("show", "--json", outcome.worker))[0]["role"] == "default"


# Configuration and trust


def test_a_repositorys_configuration_counts_only_after_trust_and_only_as_it_was(fresh, shop, script):
    shutil.copy(SHOP / "permissions.toml", shop / "mine.toml")
    (shop / "mxs.toml").write_text('role = "coder"\npolicy = "mine.toml"\n')

    def role():
        done = fresh("run", "claude", "Do it.", "--repo", shop, *script(DONE), "--no-input", check=0)
        return documents(fresh("ps", "--all", "--json"))[-1]["role"], done.stderr

    ignored, said = role()
    assert ignored == "default"
    assert "mxs trust" in said
    fresh("trust", shop, check=0)
    assert role() == ("coder", "")
    (shop / "mine.toml").write_text((shop / "mine.toml").read_text() + "\n# changed\n")
    assert role()[0] == "default"


def test_an_unknown_key_in_a_configuration_is_refused_with_line_and_mend(fresh, shop, script, tmp_path):
    config = tmp_path / "other.toml"
    config.write_text('root = "acme.com"\nplicy = "x.toml"\n')
    done = fresh("run", "claude", "Do it.", "--repo", shop, "--config", config, *script(DONE), check=2)
    assert "other.toml:2" in done.stderr
    assert "policy" in done.stderr
    assert fresh("status").returncode == 3, "nothing was started for it"


# The supervisor


def test_up_status_and_down_leave_neither_process_nor_socket(fresh):
    assert fresh("status").returncode == 3
    assert fresh("status", "--json").returncode == 3
    fresh("down", check=0)
    fresh("up", "--root", "acme.com", check=0)
    state = status(fresh)
    assert state["root"] == "acme.com"
    assert state["version"] == supervisor.__version__
    assert stat.S_IMODE(fresh.home.stat().st_mode) == 0o700
    sockets = list((fresh.home / "run").iterdir())
    assert sockets
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in sockets), sockets
    differing = fresh("up", "--root", "other.org", check=2)
    assert "acme.com" in differing.stderr
    assert "other.org" in differing.stderr
    fresh("down", check=0)
    assert processes_naming(str(fresh.home)) == []
    assert list((fresh.home / "run").iterdir()) == []


def test_down_ends_what_runs(fresh, shop, script):
    with live_run(fresh, "claude", "--repo", shop, *POLICY, *script(WAITS)) as run:
        run.wait_for("call", op="shell.exec")
        fresh("down", check=0)
        code, last, _ = run.end()
    assert (code, last["status"]) == (130, "stopped")
    assert containers_of(fresh) == []
    assert processes_naming(str(fresh.home)) == []
    assert documents(fresh("ps", "--json", check=0)) == []


def test_two_runs_at_once_start_one_supervisor(fresh, shop, script):
    words = ("--repo", shop, *ACTORS, *script(DONE))
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda kind: fresh.run(kind, *words), ("claude", "codex")))
    assert [outcome.code for outcome in outcomes] == [0, 0], [outcome.stderr for outcome in outcomes]
    assert len([words for words in processes_naming(str(fresh.home)) if "supervisor.daemon" in words]) == 1


def test_a_supervisor_of_another_version_is_exit_3_with_the_mend(fresh, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(Path(supervisor.__file__).parent, older / "supervisor")
    package = older / "supervisor" / "__init__.py"
    package.write_text(package.read_text().replace(supervisor.__version__, "0.0.1"))
    before = Mxs(fresh.home, {"PYTHONPATH": f"{older}{os.pathsep}{Path(supervisor.__file__).parents[1]}"})
    before("up", check=0)
    assert status(before)["version"] == "0.0.1"
    done = fresh("actors", "list", check=3)
    assert "0.0.1" in done.stderr
    assert "mxs down" in done.stderr
    fresh("down", check=0)
    fresh("actors", "list", check=0)


# The log


def test_the_logs_commands_agree_and_need_no_supervisor(fresh, shop, script):
    outcome = fresh.run("claude", "--repo", shop, *POLICY, *script(EDITS), check=0)
    fresh("down", check=0)
    exported = documents(fresh("audit", "export", check=0))
    assert documents(fresh("audit", "query", "--worker", outcome.worker, "--kind", "tool.call", "--json")) == [
        record for record in exported if record["kind"] == "tool.call"
    ]
    assert documents(fresh("audit", "tail", "-n", "3", "--json")) == exported[-3:]
    call = next(record["call"] for record in exported if record["kind"] == "tool.call")
    assert [record["kind"] for record in documents(fresh("audit", "show", call, "--json"))][:2] == [
        "tool.call", "tool.result",
    ]  # fmt: skip
    assert fresh("audit", "show", "nonsense").returncode == 1
    assert documents(fresh("audit", "verify", "--json", check=0))[0]["intact"]
    copy = fresh.home / "copy.jsonl"
    copy.write_text(fresh("audit", "export").stdout.replace('"op":"file.write"', '"op":"file.raed"', 1))
    assert fresh("audit", "verify", copy).returncode == 1
    assert fresh("status").returncode == 3
