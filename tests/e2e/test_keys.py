"""A person's key reaches the provider and is nowhere else, in no form (threats.md N5, K1, K2, K3), on the real path.

The worker searches its own container; meanwhile the test searches the host: processes, engine, state folder.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandboxes.sandbox_spec import RELAY_PORT
from tests.e2e import key_search
from tests.e2e.conftest import git, own_command
from tests.e2e.live_run import inspected, live_run, process_texts, status
from tests.e2e.local_upstream import Received, local_upstream
from tests.e2e.roles import role_file

pytestmark = pytest.mark.container
KEY = "sk-canary-5f2c9b71e0d84a36"
PLACEHOLDER = "placeholder-the-gateway-holds-the-key"
"""What stands in a worker's environment instead of a key: the search has to find it there."""
WORKERS_OWN_KEY = "sk-that-the-worker-sends"
ASK = {
    "claude": (
        "/v1/messages",
        {"model": "asked-aside", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
    ),
    "codex": ("/v1/responses", {"model": "asked-aside", "stream": True, "input": [{"role": "user", "content": "x"}]}),
}
NOBODY = 65534
HOLD_S = 20


@dataclass(frozen=True)
class Seen:
    """What was found while the worker ran, and what the provider got."""

    in_container: list[Any]
    in_processes: set[Any]
    by_the_engine: str
    in_state: list[Any]
    gateway: dict[str, Any]
    code: int
    events: list[Any]
    received: list[Received]


@pytest.fixture(scope="module", params=["claude", "codex"])
def seen(request, tmp_path_factory):
    """One run of each kind with a key."""
    folder = tmp_path_factory.mktemp(request.param)
    repo = _repository(folder / "repo", *ASK[request.param])
    words = ["--repo", repo, "--policy", role_file(folder)]
    if request.param == "codex":
        words += ["--model", "gpt-5.5"]
    with local_upstream(KEY) as upstream:
        base, keys = upstream.base_url, {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
        upstream.commands = (_command(),)
        with own_command(**keys, ANTHROPIC_BASE_URL=base, OPENAI_BASE_URL=f"{base}/v1") as mxs:
            yield _look(mxs, request.param, words, repo, upstream)


def _repository(repo, path, body):
    repo.mkdir()
    shutil.copy(key_search.__file__, repo / "key_search.py")
    (repo / "ask.py").write_text(
        f"""\
import json, urllib.request
headers = {{"content-type": "application/json", "x-api-key": {WORKERS_OWN_KEY!r}}}
headers["authorization"] = "Bearer " + {WORKERS_OWN_KEY!r}
asked = urllib.request.Request("http://127.0.0.1:{RELAY_PORT}{path}", json.dumps({body!r}).encode(), headers)
print(urllib.request.urlopen(asked, timeout=20).status)
"""
    )
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "A search")
    return repo


def _command():
    """Search, ask the provider aside, and stay until the test has looked at the host."""
    search = f"python3 key_search.py {KEY[::-1]} {PLACEHOLDER[::-1]} > found.json"
    hold = f"timeout {HOLD_S} sh -c 'until [ -e go ]; do sleep 0.1; done'"
    return f"{search}; python3 ask.py > asked.txt; {hold}"


def _look(mxs, kind, words, repo, upstream):
    with live_run(mxs, kind, *words) as run:
        run.wait_for("call", op="shell.exec")
        engine = json.dumps(inspected(run.container))
        texts = process_texts()
        holders = {pid for pid, text in texts.items() if key_search.holds(KEY, text.encode(errors="replace"))}
        gateway = _gateway(status(mxs)["gateway"]["pid"])
        (mxs.home / "workers" / run.worker / "repo" / "workspace" / "go").touch()
        code, result, said = run.end()
        assert code == 0, (result, said)
    in_container = json.loads(git(repo, "show", f"{result['branch']}:found.json"))
    assert git(repo, "show", f"{result['branch']}:asked.txt") == "200\n"
    in_state = key_search.found(KEY, mxs.home)
    events = [*run.events, said, mxs("audit", "export", check=0).stdout]
    return Seen(in_container, holders - {run.pid}, engine, in_state, gateway, code, events, list(upstream.received))


def _gateway(pid):
    """What another user of the host can learn from the gateway's process, and what its core dump could be."""
    attempt = f"open('/proc/{pid}/' + __import__('sys').argv[1], 'rb').read(1)"
    user: Any = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    refused = {
        name: "PermissionError"
        in subprocess.run(
            [python, "-c", attempt, name], capture_output=True, text=True, check=False, cwd="/", **user
        ).stderr
        for name in ("mem", "environ", "maps")
    }
    limits = Path(f"/proc/{pid}/limits").read_text()
    return {**refused, "core": next(line.split()[4:6] for line in limits.splitlines() if "core file" in line)}


def test_the_key_is_nowhere_in_the_container_and_the_search_finds_what_is_there(seen):
    of_the_key, of_the_placeholder = seen.in_container
    assert of_the_key == []
    assert "/proc/1/environ" in of_the_placeholder


def test_no_process_but_the_command_was_started_with_it(seen):
    assert seen.in_processes == set()


def test_neither_the_engine_nor_the_state_folder_knows_it(seen):
    assert not key_search.holds(KEY, seen.by_the_engine.encode())
    assert seen.in_state == []


def test_it_is_in_nothing_that_is_shown_or_recorded(seen):
    assert not key_search.holds(KEY, json.dumps(seen.events).encode())


def test_it_reaches_the_provider_and_a_key_that_the_worker_sends_does_not(seen):
    assert "asked-aside" in [request.body.get("model") for request in seen.received]
    for request in seen.received:
        sent = {request.headers.get("x-api-key"), request.headers.get("authorization", "").removeprefix("Bearer ")}
        assert sent - {None, ""} == {KEY}
        assert WORKERS_OWN_KEY not in json.dumps([request.headers, request.path])


def test_the_gateways_memory_is_closed(seen):
    assert seen.gateway == {"mem": True, "environ": True, "maps": True, "core": ["0", "0"]}
