"""The walls as a started worker of each kind finds them, asked from its own shell (threats.md C1, C3, C5, C7, N1, N3).

The questions to one process are those that tests/sandboxes puts to a bare container, where its negative control is.
"""

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox_spec import RELAY_PORT
from tests.e2e.conftest import Outcome, git
from tests.e2e.live_run import inspected, live_run
from tests.e2e.roles import role_file
from tests.sandboxes.test_hardening import BRIDGE_ADDRESS, DEVICES, canaries_in
from tests.sandboxes.test_hardening import INSIDE as ONE_PROCESS

pytestmark = pytest.mark.container
KINDS = ("claude", "codex")
ALL_PROCESSES = Path(__file__).with_name("inside.py")
PSEUDO = {"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay"}
NAMED_BY_THE_ENGINE = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
WRITABLE = {"/workspace", "/tmp", "/home/worker", "/dev/shm", "/run/mxs/gateway.sock"}
FORBIDDEN_REQUESTS = {
    ("POST", "/v1/files"): 403,
    ("POST", "/v1/messages/batches"): 403,
    ("GET", "/v1/skills"): 403,
    ("GET", "/v1/organizations/me"): 403,
    ("DELETE", "/v1/models"): 403,
    ("GET", "/v1/models/../files"): 400,
}
"""What a worker may not ask of its provider, and the status that it gets instead of an answer."""
ANSWERS = ("process", "container", "requests")
REQUESTS = f"""\
import http.client, json
answers = []
for method, path in {list(FORBIDDEN_REQUESTS)!r}:
    connection = http.client.HTTPConnection("127.0.0.1", {RELAY_PORT}, timeout=5)
    connection.request(method, path, body=None if method == "GET" else "{{}}")
    answers.append(connection.getresponse().status)
print(json.dumps(answers))
"""
SETTINGS = """
[limits]
memory = "1g"
cpus = 2
pids = 300
"""
NO_QUEUE_OR_TERMINAL = {"/dev/mqueue", "/dev/pts/ptmx", "/dev/ptmx"}


@dataclass(frozen=True)
class Seen:
    """What one worker saw, and what the host noticed of it."""

    process: dict[str, Any]
    container: dict[str, Any]
    requests: list[int]
    visitors: int
    outcome: Outcome


@pytest.fixture(scope="module")
def workers(mxs, tmp_path_factory):
    """Kind -> what its worker saw. One run each."""
    return {kind: _ask(mxs, kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(params=KINDS)
def seen(request, workers):
    """What the worker of one kind saw."""
    return workers[request.param]


def _ask(mxs, kind, folder):
    repo = folder / "repo"
    repo.mkdir()
    shutil.copy(ONE_PROCESS, repo / "one_process.py")
    shutil.copy(ALL_PROCESSES, repo / "all_processes.py")
    (repo / "forbidden.py").write_text(REQUESTS)
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Questions")
    with canaries_in(folder) as canaries:
        asked = f"one_process.py {canaries.port} {BRIDGE_ADDRESS} {canaries.name} > process.json"
        command = f"python3 {asked}; python3 all_processes.py container.json; python3 forbidden.py > requests.json"
        script = {"steps": [{"call": {"tool": "shell", "args": {"command": command}}}, {"say": "Done."}]}
        (folder / "script.yaml").write_text(json.dumps(script))
        words = ("--repo", repo, "--policy", role_file(folder), "--model", f"script:{folder / 'script.yaml'}")
        outcome = mxs.run(kind, *words)
        assert outcome.code == 0, outcome.result
        found = (json.loads(git(repo, "show", f"{outcome.result['branch']}:{name}.json")) for name in ANSWERS)
        process, container, requests = found
        return Seen(process, container, requests, canaries.visitors(), outcome)


def test_every_process_of_the_worker_is_without_rights(seen):
    names = {process["name"] for process in seen.container["processes"]}
    assert len(names) >= 3, "the init, the worker's program and what it started"
    for process in seen.container["processes"]:
        status = process["status"]
        capabilities = {value for field, value in status.items() if field.startswith("Cap")}
        assert capabilities == {"0" * 16}, process["name"]
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), process["name"]
        assert "0" not in status["Uid"].split(), process["name"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives every worker a user of its own")
def test_two_workers_are_two_users(workers):
    users = {workers[kind].process["ids"][0] for kind in KINDS}
    assert len(users) == len(KINDS)
    assert os.getuid() not in users


def test_exactly_the_declared_paths_are_writable(seen):
    assert set(seen.process["writable"]) - DEVICES - NO_QUEUE_OR_TERMINAL == WRITABLE
    assert seen.process["queue"] == errno.EMFILE, "no message queue can be made in /dev/mqueue"


def test_of_the_host_nothing_but_the_workspace_can_be_written(seen, mxs):
    mounts = seen.container["mounts"]
    of_the_host = {
        point: (root, options.split(",")) for point, (root, options, kind, *_) in mounts.items() if kind not in PSEUDO
    }
    assert {point for point, (_, options) in of_the_host.items() if "rw" in options} == {"/workspace"}
    for point, (root, _) in of_the_host.items():
        ours = root.startswith((f"{mxs.home}/workers/", f"{mxs.home}/run/")) or "/site-packages/" in root
        helper = point == "/opt/mxs/mxs-helper"
        assert ours or helper or point in NAMED_BY_THE_ENGINE, (point, root)
    assert mounts["/"][1].startswith("ro")


def test_nothing_is_inherited_and_nothing_of_the_host_is_found(seen, mxs):
    assert seen.process["fds"] == [0, 1, 2]
    assert seen.process["cwd"] == "/workspace"
    assert (seen.process["canary"], seen.process["docker_sock"]) == ([], [])
    files = {file for process in seen.container["processes"] for file in process["files"]}
    inherited = {file for file in files if file.startswith("/") and not file.startswith((*WRITABLE, "/dev/", "/opt/"))}
    assert inherited == set()


def test_proc_and_sys_are_masked_and_read_only(seen):
    assert all(head in ("", errno.ENOENT, errno.EACCES) for head in seen.process["masked"].values())
    assert seen.process["firmware"] == []
    assert seen.process["writable_sys"] == []


def test_every_dangerous_call_and_socket_family_is_refused(seen):
    calls, families = seen.process["calls"], seen.process["families"]
    assert calls == dict.fromkeys(calls, errno.EPERM) | {"clone3": errno.ENOSYS}
    assert families == dict.fromkeys(families, errno.EPERM)


def test_there_is_no_network_but_loopback_and_no_canary_hears_anything(seen):
    assert (seen.process["interfaces"], seen.process["routes"]) == (["lo"], [])
    assert 0 not in seen.process["reached"].values(), seen.process["reached"]
    assert seen.visitors == 0


def test_the_only_way_out_takes_named_requests_alone_and_shows_what_it_refused(seen):
    assert seen.requests == list(FORBIDDEN_REQUESTS.values())
    assert [(e["method"], e["path"]) for e in seen.outcome.of("refusedRequest")] == list(FORBIDDEN_REQUESTS)


def test_no_setting_of_a_run_makes_its_container_less_hard(mxs, tmp_path, script):
    """Everything a person can set at once, and the container as the engine was told to run it (threats.md C7)."""
    (tmp_path / "mxs.toml").write_text(SETTINGS)
    git(tmp_path, "init", "-q")
    words = ("--repo", tmp_path, "--config", tmp_path / "mxs.toml", "--egress", "example.invalid:443", "--name", "set")
    with live_run(mxs, "codex", *words, *script("steps: [{delayMs: 2000, say: Done.}]")) as run:
        run.wait_for("state", state="running")
        host = inspected(run.container)["HostConfig"]
        assert run.end()[0] == 0
    assert (host["Privileged"], host["CapDrop"]) == (False, ["ALL"])
    assert not any([host["CapAdd"], host["Devices"], host["DeviceRequests"], host["GroupAdd"]])
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["AutoRemove"]) == ("none", True, False)
    assert "host" not in {host["PidMode"], host["IpcMode"], host["UTSMode"], host["UsernsMode"], host["CgroupnsMode"]}
    assert not any("unconfined" in option for option in host["SecurityOpt"])
    assert {"no-new-privileges"} <= {option.split(":")[0].split("=")[0] for option in host["SecurityOpt"]}
    assert host["Memory"] == 1024**3
