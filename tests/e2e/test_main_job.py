"""The main job, both kinds of worker from one body: what the README promises, seen from outside."""

import subprocess

import pytest

from tests.e2e.conftest import SHOP, git
from tests.e2e.independent_verifier import first_fault

pytestmark = pytest.mark.container

EVERYTHING = """
steps:
  - say: "I look."
    call: {tool: shell, args: {command: "python3 -m unittest -q 2>&1"}}
    expect: "FAILED"
  - call: {tool: local/demo.inventory/inventory.check, args: {sku: WIDGET-42}}
    expect: '"available": ?147'
  - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.check, payload: {sku: WIDGET-42}}}
    expect: '"available": ?147'
  - call: {tool: matrix_invoke, args: {target: demo.inventoryX, op: inventory.check, payload: {sku: WIDGET-42}}}
    expect: "MX_AGENT_OUT_OF_SUBTREE"
  - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.delete, payload: {sku: WIDGET-42}}}
    expect: "MX_AGENT_COMMAND_NOT_ALLOWED"
  - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.check, payload: {sku: 42}}}
    expect: "MX_AGENT_INVALID_ARGUMENTS"
  - call: {tool: shell, args: {command: "git push origin main"}}
    expect: "(?i)refused"
  - call: {tool: edit, args: {path: shop/cart.py, old: "stock + ordered", new: "stock - ordered"}}
  - call: {tool: write, args: {path: docs.txt, content: "outside the write paths\\n"}}
    expect: "(?i)refused"
  - call: {tool: shell, args: {command: "python3 -m unittest -q 2>&1"}}
    expect: "OK"
  - say: "Done."
"""


@pytest.fixture(scope="module", params=["claude", "codex"])
def run(request, mxs, tmp_path_factory):
    """One whole run of each kind, looked at by every test below."""
    folder = tmp_path_factory.mktemp(request.param)
    repo = folder / "shop"
    subprocess.run(["cp", "-R", SHOP / "repo", repo], check=True)
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "A shop with a bug")
    (folder / "script.yaml").write_text(EVERYTHING)
    words = ("--repo", repo, "--policy", SHOP / "permissions.toml", "--actors", SHOP / "actors")
    outcome = mxs.run(request.param, *words, "--model", f"script:{folder / 'script.yaml'}")
    outcome.repo = repo
    outcome.records = mxs.records(outcome.worker)
    return outcome


def test_the_run_completes_and_says_what_it_did(run):
    assert run.code == 0, run.result
    assert run.result["status"] == "completed"
    assert run.result["error"] is None
    assert run.result["calls"]["denied"] == 4
    assert run.result["calls"]["total"] == run.result["calls"]["allowed"] + 4
    assert run.result["inferences"] >= 11
    assert run.result["tokens"]["input"] > 0


def test_the_edit_comes_back_on_the_branch_and_nowhere_else(run):
    assert run.result["branch"] == f"mxs/{run.worker}"
    changed = git(run.repo, "diff", "--stat", f"main..mxs/{run.worker}")
    assert "shop/cart.py" in changed
    assert "docs.txt" not in changed
    assert git(run.repo, "status", "--porcelain") == ""
    assert git(run.repo, "branch", "--list").split() == ["*", "main", f"mxs/{run.worker}"]


def test_every_call_has_its_decision_before_its_result(run):
    calls = [record for record in run.records if record["kind"] == "tool.call"]
    results = {record["call"]: record for record in run.records if record["kind"] == "tool.result"}
    assert len({record["call"] for record in calls}) == len(calls) == len(results)
    for call in calls:
        assert call["seq"] < results[call["call"]]["seq"]
        denied = call["decision"]["verdict"] != "allow"
        assert (results[call["call"]]["outcome"] == "denied") == denied


def test_the_records_tell_the_story_in_order(run):
    bus = [
        (record["op"], record["decision"]["verdict"], record["decision"]["reason"])
        for record in run.records
        if record["kind"] == "tool.call" and record["source"] == "bus"
    ]
    assert bus == [
        ("inventory.check", "allow", "GRANTED"),
        ("inventory.check", "allow", "GRANTED"),
        ("inventory.check", "deny", "OUT_OF_SUBTREE"),
        ("inventory.delete", "deny", "COMMAND_NOT_ALLOWED"),
        ("inventory.check", "allow", "GRANTED"),
    ]
    native = {
        (r["op"], r["decision"]["reason"]) for r in run.records if r["kind"] == "tool.call" and r["source"] == "native"
    }
    assert ("shell.exec", "GRANTED") in native
    assert ("shell.exec", "SHELL_DENIED") in native
    assert ("file.write", "GRANTED") in native
    assert ("file.write", "PATH_DENIED") in native


def test_invalid_arguments_are_an_outcome_of_their_own(run):
    outcomes = [record["outcome"] for record in run.records if record["kind"] == "tool.result"]
    assert outcomes.count("invalid") == 1


def test_a_commit_is_joined_to_the_call_that_made_it(run):
    commits = [record for record in run.records if record["kind"] == "commit"]
    writes = {r["call"] for r in run.records if r["kind"] == "tool.call" and r["op"] == "file.write"}
    assert len(commits) == run.result["commits"] == 1
    assert commits[0]["call"] in writes
    assert any(r["kind"] == "file.change" and r["path"] == "shop/cart.py" for r in run.records)


def test_every_inference_is_metered_and_the_gate_left_its_evidence(run):
    kinds = [record["kind"] for record in run.records]
    assert kinds.count("inference") >= run.result["inferences"]
    assert kinds.count("gate") == 1
    states = [record["state"] for record in run.records if record["kind"] == "worker.state"]
    assert states == ["preparing", "starting", "running", "finishing", "ended"]


def test_every_call_in_the_models_answers_was_asked_about(run):
    (ended,) = [record for record in run.records if record["kind"] == "worker.state" and record["state"] == "ended"]
    assert ended["unmediated"] == []


def test_an_independent_verifier_agrees_with_verify(run, mxs):
    exported = mxs("audit", "export", check=0).stdout.splitlines()
    assert first_fault(exported) is None
    assert "intact" in mxs("audit", "verify", check=0).stdout


def test_the_finished_workers_container_is_gone_while_its_state_stays_until_rm(run, mxs):
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"name=mxs-{run.worker}"], capture_output=True, text=True, check=True
    )
    assert listed.stdout == ""
    assert mxs("show", run.worker, check=0).stdout


def test_the_result_is_applied_uncommitted(run, mxs):
    assert "stock - ordered" in mxs("diff", run.worker, check=0).stdout
    mxs("apply", run.worker, check=0)
    assert "stock - ordered" in (run.repo / "shop" / "cart.py").read_text()
    assert git(run.repo, "status", "--porcelain").split() == ["M", "shop/cart.py"]
    mxs("rm", run.worker, check=0)
    assert mxs("show", run.worker).returncode == 1
