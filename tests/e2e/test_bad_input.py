"""What goes wrong on the way of the main job: each ends in its typed error and exit code, and leaves nothing behind."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Mxs, git
from tests.e2e.independent_verifier import first_fault
from tests.e2e.live_run import (
    container_processes,
    containers_of,
    inspected,
    kill,
    live_run,
    process_texts,
    processes_naming,
    status,
    worker_processes,
)
from tests.e2e.local_upstream import local_upstream

pytestmark = pytest.mark.container

HERE = Path(__file__).parent
ROLE = ("--policy", HERE / "faulty.toml")
FAULTY = (*ROLE, "--actors", HERE / "faulty_actor.py")
DONE = "steps:\n  - say: Done.\n"
WAITING = """
steps:
  - call: {tool: shell, args: {command: "echo begun > begun.txt"}}
  - say: "Now it waits."
    call: {tool: shell, args: {command: "python3 -c 'import time; time.sleep(60)'"}}
  - say: Done.
"""


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "One")
    return folder


@pytest.fixture
def other_home():
    """Makes further state folders, for what a supervisor takes from its environment."""
    made = []

    def make(**variables):
        command = Mxs(Path(tempfile.mkdtemp(prefix="mxs-", dir="/tmp")), variables)
        made.append(command)
        return command

    yield make
    for command in made:
        command("down")
        shutil.rmtree(command.home)


def refused(done, code, *words):
    """A command that ended with this exit code, a sentence with these words, and no traceback."""
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    for word in words:
        assert word in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    return done


def failed(mxs, outcome, code, *, exit_code=1):
    """A run that ended `failed` with this typed error, and whose container is gone; its message."""
    assert outcome.code == exit_code, outcome.events
    assert outcome.result["status"] == "failed"
    assert outcome.result["error"]["code"] == code, outcome.result
    assert containers_of(mxs) == []
    return outcome.result["error"]["message"]


# The engine and the image


def test_without_an_engine_a_run_says_so_and_calls_still_work(other_home, repo, script):
    mxs = other_home(DOCKER_HOST="unix:///nonexistent/docker.sock")
    outcome = mxs.run("claude", "--repo", repo, *ROLE, *script(DONE))
    assert outcome.code == 3
    assert outcome.result["error"]["code"] == "MX_AGENT_SANDBOX_UNAVAILABLE"
    assert "make setup" in outcome.result["error"]["message"]
    looked = mxs("doctor", check=3)
    assert "-- engine" in looked.stdout
    assert "make setup" in looked.stdout
    called = mxs("invoke", "--json", *FAULTY, "demo.faulty", "faulty.count", check=0)
    assert json.loads(called.stdout) == {"result": {"n": 1}}


@pytest.mark.skipif(
    os.geteuid() != 0, reason="a user who may read all of this but the engine's socket is made from root"
)
def test_an_engine_without_rights_is_called_that(other_home, repo, script, tmp_path):
    closed = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(closed))
        closed.chmod(0)
        mxs = other_home(DOCKER_HOST=f"unix://{closed}")
        without = "-dac_override,-dac_read_search"
        mxs.before = ("setpriv", f"--bounding-set={without}", f"--inh-caps={without}")
        outcome = mxs.run("codex", "--repo", repo, *ROLE, *script(DONE))
    message = failed(mxs, outcome, "MX_AGENT_SANDBOX_UNAVAILABLE", exit_code=3)
    assert "no right" in message
    assert "usermod -aG docker" in message


def test_an_unknown_image_is_named_with_the_mend(mxs, repo, script):
    outcome = mxs.run("claude", "--repo", repo, *ROLE, *script(DONE), "--image", "no-such-image:at-all")
    message = failed(mxs, outcome, "MX_AGENT_SANDBOX_UNAVAILABLE", exit_code=3)
    assert "no-such-image:at-all" in message
    assert "docker pull" in message


# What the person gave


def test_an_unknown_role_is_refused_with_the_roles_there_are(mxs, repo, script):
    done = mxs("run", "claude", "Do it.", "--repo", repo, *ROLE, "--role", "tseter", *script(DONE))
    refused(done, 2, "tseter", "tester")


def test_a_malformed_policy_is_refused_with_line_and_mend(mxs, repo, script, tmp_path):
    text = (HERE / "faulty.toml").read_text().replace("allow =", "alow =", 1)
    line = text.splitlines().index('alow = ["faulty.*", "$getState"]') + 1
    policy = tmp_path / "bad.toml"
    policy.write_text(text)
    done = mxs("run", "claude", "Do it.", "--repo", repo, "--policy", policy, *script(DONE))
    refused(done, 2, f"bad.toml:{line}", "alow", "allow")
    checked = mxs("policy", "check", policy)
    refused(checked, 2, f"bad.toml:{line}")


def test_a_malformed_script_is_refused_with_its_line(mxs, repo, script):
    done = mxs("run", "codex", "Do it.", "--repo", repo, *ROLE, *script("steps:\n  - sya: hello\n"))
    refused(done, 2, "script.yaml:2", "sya", "say")


# The actor


@pytest.fixture
def impatient(tmp_path):
    """A configuration whose tool calls may take three seconds."""
    file = tmp_path / "impatient.toml"
    file.write_text("[timeouts]\ntool_ms = 3000\n")
    return ("--config", file)


def test_every_fault_of_an_actor_reaches_the_model_typed_and_the_run_goes_on(mxs, kind, repo, script, impatient):
    faults = {
        "faulty.raise": "MX_AGENT_ACTOR_ERROR",
        "faulty.refuse": "come back tomorrow",
        "faulty.hang": "MX_AGENT_TOOL_TIMEOUT",
        "faulty.lie": "MX_AGENT_INVALID_RESULT",
        "faulty.flood": "MX_AGENT_TOO_LARGE",
        "faulty.die": "MX_AGENT_ACTOR_UNAVAILABLE",
        "no.such.op": "MX_AGENT_OP_NOT_FOUND|MX_AGENT_COMMAND_NOT_ALLOWED",
    }
    step = "  - call: {{tool: matrix_invoke, args: {{target: demo.faulty, op: {}, payload: {{}}}}}}\n    expect: '{}'\n"
    text = "steps:\n" + "".join(step.format(op, code) for op, code in faults.items()) + "  - say: Done.\n"
    outcome = mxs.run(kind, "--repo", repo, *FAULTY, *impatient, *script(text))
    assert outcome.code == 0, outcome.result
    assert outcome.result["calls"] == {"total": 7, "allowed": 6, "denied": 1, "failed": 6}
    results = [r for r in mxs.records(outcome.worker) if r["kind"] == "tool.result"]
    assert [r["outcome"] for r in results] == ["failed", "failed", "timedOut", "failed", "failed", "failed", "denied"]
    assert "a secret of the actor" not in json.dumps(results)


def test_invoke_tells_the_faults_of_an_actor_apart(mxs, impatient):
    def invoke(op, *words):
        done = mxs("invoke", "--json", *FAULTY, *impatient, "demo.faulty", op, *words)
        return done.returncode, json.loads(done.stdout).get("error", {}).get("code")

    assert invoke("faulty.raise") == (1, "MX_AGENT_ACTOR_ERROR")
    assert invoke("faulty.hang") == (5, "MX_AGENT_TOOL_TIMEOUT")
    assert invoke("faulty.flood") == (1, "MX_AGENT_TOO_LARGE")
    assert invoke("faulty.count", '{"x": 1}') == (2, "MX_AGENT_INVALID_ARGUMENTS")
    assert invoke("faulty.count") == (0, None)


# The model


UNKNOWN_TOOL: dict[str, list[Any]] = {
    "claude": [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
         "content": [], "stop_reason": None, "stop_sequence": None,
         "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "tool_use", "id": "toolu_1", "name": "NoSuchTool", "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
         "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "codex": [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0,
         "item": {"type": "function_call", "call_id": "c1", "name": "no_such_tool", "arguments": "{}"}},
        {"type": "response.completed", "response": {"id": "r", "output": [],
         "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}},
    ],
}  # fmt: skip


def test_a_model_that_calls_a_tool_that_does_not_exist_is_told_so_and_the_run_goes_on(mxs, kind, repo, script):
    raw = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in UNKNOWN_TOOL[kind])
    outcome = mxs.run(kind, "--repo", repo, *ROLE, *script(json.dumps({"steps": [{"raw": raw}, {"say": "Done."}]})))
    assert outcome.code == 0, outcome.result
    assert outcome.result["inferences"] == 2
    assert outcome.result["calls"]["allowed"] == 0


def test_a_script_that_asks_for_a_tool_nobody_has_ends_the_run(mxs, kind, repo, script):
    text = "steps:\n  - call: {tool: local/demo.nowhere/no.op, args: {}}\n"
    outcome = mxs.run(kind, "--repo", repo, *ROLE, *script(text))
    failed(mxs, outcome, "MX_SCRIPT_UNSUPPORTED")


def test_a_failed_expectation_shows_expected_and_got(mxs, kind, repo, script):
    text = 'steps:\n  - call: {tool: shell, args: {command: "echo one"}}\n    expect: "two"\n'
    outcome = mxs.run(kind, "--repo", repo, *ROLE, *script(text))
    message = failed(mxs, outcome, "MX_SCRIPT_EXPECTATION")
    assert "two" in message
    assert "one" in message


# Deaths


def test_a_worker_that_dies_in_the_middle_fails_and_keeps_its_work(mxs, kind, repo, script):
    with live_run(mxs, kind, "--repo", repo, *ROLE, *script(WAITING)) as run:
        run.wait_until_waiting()
        kill(worker_processes(run.container)[kind])
        code, last, _ = run.end()
    assert code == 1
    assert last["error"]["code"] == "MX_AGENT_WORKER_EXITED"
    assert "137" in last["error"]["message"], last
    assert git(repo, "show", f"mxs/{last['worker']}:begun.txt") == "begun\n"
    assert containers_of(mxs) == []
    unfinished = [r for r in mxs.records(last["worker"]) if r["kind"] == "tool.result"]
    assert [r["outcome"] for r in unfinished] == ["ok", "unknown"]


def test_out_of_memory_is_called_that(mxs, kind, repo, script, tmp_path):
    config = tmp_path / "small.toml"
    config.write_text('[limits]\nmemory = "64m"\n')
    hog = 'steps:\n  - call: {tool: shell, args: {command: "python3 -c \\"x = bytearray(10**9)\\""}}\n  - say: Done.\n'
    outcome = mxs.run(kind, "--repo", repo, *ROLE, "--config", config, *script(hog))
    message = failed(mxs, outcome, "MX_AGENT_SANDBOX_OOM")
    assert "memory" in message


def test_a_bridge_killed_in_mid_run_ends_it_and_the_next_run_has_a_new_one(mxs, kind, repo, script):
    with live_run(mxs, kind, "--repo", repo, *ROLE, *script(WAITING)) as run:
        run.wait_until_waiting()
        before = status(mxs)["bridge"]["pid"]
        kill(before)
        code, last, _ = run.end()
    assert code == 3
    assert last["error"]["code"] == "MX_AGENT_BRIDGE_UNAVAILABLE"
    assert containers_of(mxs) == []
    assert mxs.run(kind, "--repo", repo, *ROLE, *script(DONE)).code == 0
    assert status(mxs)["bridge"]["pid"] != before
    results = [r for r in mxs.records(last["worker"]) if r["kind"] == "tool.result"]
    assert [r["outcome"] for r in results] == ["ok", "unknown"]
    ended = [r for r in mxs.records(last["worker"]) if r["kind"] == "worker.state" and r["state"] == "ended"]
    assert len(ended) == 1, "the run's own records waited for the new bridge"
    assert first_fault(mxs("audit", "export", check=0).stdout.splitlines()) is None


def test_a_gateway_killed_in_mid_run_ends_it_and_the_next_run_has_a_new_one(mxs, repo, script):
    with live_run(mxs, "claude", "--repo", repo, *ROLE, *script(WAITING)) as run:
        run.wait_until_waiting()
        before = status(mxs)["gateway"]["pid"]
        kill(before)
        code, last, _ = run.end()
    assert code == 1
    assert last["error"]["code"] == "MX_AGENT_INFERENCE_FAILED"
    assert "gateway" in last["error"]["message"]
    assert containers_of(mxs) == []
    assert mxs.run("claude", "--repo", repo, *ROLE, *script(DONE)).code == 0
    assert status(mxs)["gateway"]["pid"] != before


def test_a_supervisor_killed_in_mid_run_leaves_nothing_after_the_next_start(mxs, repo, script):
    words = ("--repo", repo, *ROLE, *script(WAITING))
    mxs("up", check=0)
    with live_run(mxs, "claude", *words) as one, live_run(mxs, "codex", *words) as two:
        one.wait_until_waiting()
        two.wait_until_waiting()
        kill(status(mxs)["pid"])
        assert [one.end()[0], two.end()[0]] == [3, 3]
        workers = [one.worker, two.worker]
    mxs("up", check=0)
    assert containers_of(mxs) == []
    for worker in workers:
        kept = json.loads(mxs("show", worker, "--json", check=0).stdout)
        assert kept["state"] == "ended"
        assert kept["result"]["status"] == "failed"
        assert kept["result"]["error"]["code"] == "MX_AGENT_WORKER_EXITED"
        assert kept["result"]["calls"] == {"total": 2, "allowed": 2, "denied": 0, "failed": 1}
        assert kept["result"]["branch"] == f"mxs/{worker}"
        assert git(repo, "show", f"mxs/{worker}:begun.txt") == "begun\n"
        assert [r["outcome"] for r in mxs.records(worker) if r["kind"] == "tool.result"] == ["ok", "unknown"]
        assert mxs.records(worker)[-1]["state"] == "ended"
        assert json.loads(mxs("logs", worker, "--json", check=0).stdout.splitlines()[-1])["type"] == "result"
    assert mxs("audit", "verify").returncode == 0


def test_ctrl_c_stops_the_worker_and_leaves_nothing_behind(mxs, kind, repo, script):
    with live_run(mxs, kind, "--repo", repo, *ROLE, *script(WAITING)) as run:
        run.wait_until_waiting()
        run.interrupt()
        code, last, _ = run.end()
    assert code == 130
    assert last["status"] == "stopped"
    assert containers_of(mxs) == []
    assert processes_naming(last["worker"]) == []
    assert last["branch"] == f"mxs/{last['worker']}", "its work so far comes back"


def test_the_time_limit_has_its_own_exit_code(mxs, repo, script):
    outcome = mxs.run("codex", "--repo", repo, *ROLE, *script(WAITING), "--timeout", "4", check=5)
    assert outcome.result["status"] == "timedOut"
    assert outcome.result["error"]["code"] == "MX_AGENT_PROMPT_TIMEOUT"
    assert containers_of(mxs) == []


# The provider


CANARY = "sk-canary-a7f3k2m9q4x8"
KEYS = {"ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY}


def provider_variables(base_url):
    """The variables that lead both kinds of worker to a provider of the test."""
    return {**KEYS, "ANTHROPIC_BASE_URL": base_url, "OPENAI_BASE_URL": f"{base_url}/v1"}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    """A provider that speaks both protocols over TLS, with a CA that nobody knows but whom it is named to."""
    with local_upstream(CANARY, tmp_path_factory.mktemp("tls")) as running:
        yield running


@pytest.fixture(scope="module")
def connected(upstream):
    """A command with keys in its environment and a supervisor that trusts the provider's CA."""
    home = Path(tempfile.mkdtemp(prefix="mxs-", dir="/tmp"))
    command = Mxs(home, {**provider_variables(upstream.base_url), "SSL_CERT_FILE": str(upstream.ca_file)})
    yield command
    command("down")
    assert not holds_canary(home), "no file of the state folder may hold the key"
    shutil.rmtree(home)


def holds_canary(folder):
    """Whether any file below `folder` holds the key."""
    return subprocess.run(["grep", "-rqaF", CANARY, folder], check=False).returncode == 0


def test_a_real_model_works_with_a_key_over_tls(connected, upstream, kind, repo):
    model = {"claude": "claude-sonnet-5-0", "codex": "gpt-5.5"}[kind]
    outcome = connected.run(kind, "--repo", repo, *ROLE, "--model", model, check=0)
    assert model in {request.body.get("model") for request in upstream.received}
    assert outcome.result["calls"] == {"total": 1, "allowed": 1, "denied": 0, "failed": 0}
    assert outcome.result["tokens"]["input"] > 0
    assert "from-the-provider" in json.dumps(connected.records(outcome.worker))
    assert all(
        CANARY in (r.headers.get("x-api-key"), r.headers.get("authorization", "")[7:]) for r in upstream.received
    )
    assert CANARY not in json.dumps(outcome.events)


@pytest.mark.parametrize("status", [429, 529])
def test_a_busy_provider_is_asked_again(connected, upstream, kind, repo, status):
    upstream.fail_once.append(status)
    outcome = connected.run(kind, "--repo", repo, *ROLE, check=0)
    assert upstream.fail_once == []
    assert status in [event["status"] for event in outcome.of("inference")]


def test_a_refused_key_ends_the_run_and_is_named_without_being_shown(connected, upstream, kind, repo):
    upstream.fail_once += [401] * 10  # a worker may look whether it was a mistake
    outcome = connected.run(kind, "--repo", repo, *ROLE)
    upstream.fail_once.clear()
    message = failed(connected, outcome, "MX_AGENT_INFERENCE_FAILED")
    assert "401" in message or "authentication" in message
    assert CANARY not in json.dumps(outcome.events) + outcome.stderr


def test_the_key_is_nowhere_but_in_the_command_and_the_gateway(connected, upstream, kind, repo):
    upstream.silent = True
    upstream.received.clear()
    try:
        with live_run(connected, kind, "--repo", repo, *ROLE) as run:
            run.wait_for("state", state="running")
            inside = container_processes(run.container)
            assert inside
            gateway = status(connected)["gateway"]["pid"]
            holders = {pid for pid, text in process_texts().items() if CANARY in text}
            assert holders <= {run.pid, os.getpid()}, "neither argv nor environ, not even the gateway's"
            assert gateway not in holders
            assert not any(holds_canary(f"/proc/{inside[0]}/root/{folder}") for folder in ("tmp", "home", "run", "etc"))
            assert CANARY not in json.dumps(inspected(run.container))
            run.interrupt()
            assert run.end()[0] == 130
    finally:
        upstream.silent = False


def test_an_unreachable_provider_ends_the_run_with_what_to_check(mxs, repo):
    nobody = Mxs(mxs.home, provider_variables("http://127.0.0.1:9"))
    with ThreadPoolExecutor() as pool:
        ended = pool.map(lambda kind: nobody.run(kind, "--repo", repo, *ROLE), ("claude", "codex"))
        for outcome in ended:
            assert outcome.code == 1
            assert outcome.result["error"]["code"] == "MX_AGENT_INFERENCE_FAILED"
            assert "cannot be reached" in outcome.result["error"]["message"]
            assert "base URL" in outcome.result["error"]["message"]
    assert containers_of(mxs) == []


def test_without_a_key_a_run_says_which_variable_to_set(mxs, repo):
    done = mxs("run", "codex", "Do it.", "--repo", repo, *ROLE)
    refused(done, 2, "OPENAI_API_KEY", "script:FILE")


# A full disk


PAD = "x" * 8192
"""Makes a record larger than the rest of a page, which is what a full file system still takes."""


@pytest.fixture
def small_disk(other_home):
    """A command whose log lies on a file system of its own, and a switch that fills it."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mxs = other_home()
    folder = mxs.home / "audit"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", folder], check=True)
    yield mxs, folder / "filler"
    mxs("down")
    subprocess.run(["umount", folder], check=True)


def fill(path):
    """Write until there is no space left."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(512)):
            pass


def test_a_full_disk_under_the_log_refuses_calls_and_executes_nothing(small_disk):
    mxs, filler = small_disk

    def count():
        done = mxs("invoke", "--json", *FAULTY, "demo.faulty", "faulty.count", json.dumps({"pad": PAD}))
        return done.returncode, json.loads(done.stdout)

    assert count() == (0, {"result": {"n": 1}})
    fill(filler)
    code, answer = count()
    assert code == 3
    assert answer["error"]["code"] == "MX_AGENT_AUDIT_UNAVAILABLE"
    filler.unlink()
    assert count() == (0, {"result": {"n": 2}}), "the refused call was not executed"
    assert "intact" in mxs("audit", "verify", check=0).stdout


def test_a_disk_that_fills_up_in_mid_run_stops_calls_and_loses_no_record(small_disk, kind, repo, script):
    mxs, filler = small_disk
    refused = "MX_AGENT_AUDIT_UNAVAILABLE"
    count = {"target": "demo.faulty", "op": "faulty.count", "payload": {"pad": PAD}}
    steps = [
        {"call": {"tool": "shell", "args": {"command": "echo one > one.txt"}}},
        {
            "delayMs": 1500,
            "call": {"tool": "shell", "args": {"command": f"echo two > two.txt # {PAD}"}},
            "expect": refused,
        },
        {"call": {"tool": "matrix_invoke", "args": count}, "expect": refused},
        {"say": "Nothing can be done."},
    ]
    text = json.dumps({"steps": steps})
    with live_run(mxs, kind, "--repo", repo, *FAULTY, *script(text)) as run:
        run.wait_for("call.result", op="shell.exec")
        fill(filler)
        code, last, _ = run.end()
    assert code == 0, last
    assert "two.txt" not in git(repo, "ls-tree", "--name-only", last["branch"])
    filler.unlink()
    mxs("down", check=0)
    mxs("up", check=0)
    records = mxs.records(last["worker"])
    assert [r["state"] for r in records if r["kind"] == "worker.state"][-1] == "ended"
    calls = [r["call"] for r in records if r["kind"] == "tool.call"]
    assert sorted(calls) == sorted(r["call"] for r in records if r["kind"] == "tool.result")
    assert first_fault(mxs("audit", "export", check=0).stdout.splitlines()) is None
