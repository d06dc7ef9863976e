"""What judges a call is down, slow or talks nonsense: the call has no effect, on both kinds of worker.

The parts are the real ones, stopped or killed from outside while the worker is about to call; the one that talks
nonsense is the real bridge with another answer to one of its methods.
"""

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.e2e.conftest import git, own_command
from tests.e2e.live_run import containers_of, kill, live_run, status
from tests.e2e.roles import role_file

pytestmark = pytest.mark.container
SETTLE_S = 1.5
"""How long an effect that must not come is waited for: a call that nothing stops takes a tenth of this."""
STARTS_AT_MS = 1500
"""The model's pause before the call, in which the test takes away what would judge it."""
EFFECTS = """
from pathlib import Path
from bridge import Actor

class Effects(Actor):
    mount = "demo.effects"
    description = "Leaves a mark that a test can see."
    accepts = {{"mark.leave": {{"description": "Leave the mark.", "schema": {{}}, "returns": {{}}}}}}

    async def mark_leave(self):
        Path({mark!r}).touch()
        return {{}}
"""
GRANT = """
[[roles.tester.grants]]
subtree = "demo.effects"
allow = ["mark.leave"]
"""
NATIVE = {"tool": "shell", "args": {"command": "touch native-ran"}}
FIRST = {"call": {"tool": "shell", "args": {"command": "true"}}}
"""A step whose result shows that the worker is well before anything is done to what judges it."""
MATRIX = {"tool": "matrix_invoke", "args": {"target": "demo.effects", "op": "mark.leave", "payload": {}}}


class Place:
    """A repository, a role, an actor with an effect; and what has happened so far."""

    def __init__(self, mxs, folder):
        self._mxs = mxs
        self._mark = mxs.home / "actor-ran"
        self._mark.unlink(missing_ok=True)
        self._actors = mxs.home / "actors"
        self._actors.mkdir(exist_ok=True)
        (self._actors / "effects.py").write_text(EFFECTS.format(mark=str(self._mark)))
        self._folder = folder
        self.repo = folder / "repo"
        self.repo.mkdir()
        git(self.repo, "init", "-q")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", "Nothing yet")

    def words(self, *steps, **settings):
        """The words of a run that plays `steps`; `settings` stand at the top of the script."""
        script = self._folder / "script.yaml"
        script.write_text(json.dumps({**settings, "steps": [*steps, {"say": "Done."}]}))
        policy = role_file(self._folder, grants=GRANT)
        return (
            "--repo",
            self.repo,
            "--policy",
            policy,
            "--actors",
            self._actors,
            "--model",
            f"script:{script}",
        )

    def effects(self, worker):
        """Which calls have had an effect."""
        found = {"matrix"} if self._mark.exists() else set()
        workspace = self._mxs.home / "workers" / worker / "repo" / "workspace"
        branch = git(self.repo, "branch", "--list", f"mxs/{worker}").strip()
        on_branch = branch and "native-ran" in git(self.repo, "ls-tree", "--name-only", branch).split()
        return found | {"native"} if on_branch or (workspace / "native-ran").exists() else found


@pytest.fixture
def place(mxs, tmp_path):
    """Where a run of this file takes place."""
    return Place(mxs, tmp_path)


@pytest.fixture
def started(mxs):
    """The processes of a supervisor that runs, by name."""
    mxs("up", check=0)
    shown = status(mxs)
    return {"supervisor": shown["pid"], "bridge": shown["bridge"]["pid"], "gateway": shown["gateway"]["pid"]}


def late(*calls):
    """A step that says so, and then calls."""
    return {"delayMs": STARTS_AT_MS, "say": "I call now.", "calls": list(calls)}


def wait_until_called(run):
    """The model has called; what the call does it does now."""
    run.wait_for("text")
    time.sleep(SETTLE_S)


@pytest.mark.parametrize("call", [NATIVE, MATRIX], ids=["native", "matrix"])
def test_a_bridge_that_stopped_holds_the_call_and_a_dead_one_ends_it(mxs, place, started, kind, call):
    with live_run(mxs, kind, *place.words(FIRST, late(call))) as run:
        run.wait_for("call.result")
        os.kill(started["bridge"], signal.SIGSTOP)
        wait_until_called(run)
        assert place.effects(run.worker) == set()
        kill(started["bridge"])
        code, result, _ = run.end()
    assert (code, result["error"]["code"]) == (3, "MX_AGENT_BRIDGE_UNAVAILABLE")
    assert place.effects(run.worker) == set()
    assert containers_of(mxs) == []


def test_a_slow_bridge_delays_the_call_until_it_is_on_record(mxs, place, started, kind):
    with live_run(mxs, kind, *place.words(FIRST, late(NATIVE), {"call": MATRIX})) as run:
        run.wait_for("call.result")
        os.kill(started["bridge"], signal.SIGSTOP)
        wait_until_called(run)
        assert place.effects(run.worker) == set()
        os.kill(started["bridge"], signal.SIGCONT)
        code, result, _ = run.end()
    assert (code, result["calls"]["allowed"]) == (0, 3)
    assert place.effects(run.worker) == {"native", "matrix"}


def test_a_supervisor_that_stopped_holds_the_call_and_a_dead_one_ends_it(mxs, place, started, kind):
    with live_run(mxs, kind, *place.words(FIRST, late(NATIVE, MATRIX))) as run:
        run.wait_for("call.result")
        os.kill(started["supervisor"], signal.SIGSTOP)
        time.sleep(STARTS_AT_MS / 1000 + SETTLE_S)
        assert place.effects(run.worker) == set()
        kill(started["supervisor"])
        run.end()
    mxs("up", check=0)
    assert place.effects(run.worker) == set()
    assert containers_of(mxs) == []


def test_without_the_hooks_road_codex_runs_nothing(mxs, place, started):
    """The hook of Codex goes through the gateway, which stops after the model's answer went through it.

    One script in code mode makes both calls, the second after the first; two calls of a turn may run side by side.
    """
    first = {"tool": "shell", "args": {"command": f"sleep {STARTS_AT_MS / 1000}"}}
    with live_run(mxs, "codex", *place.words({"calls": [first, NATIVE]}, codexSurface="code")) as run:
        run.wait_for("call", op="shell.exec")
        os.kill(started["gateway"], signal.SIGSTOP)
        run.wait_for("call.result", op="shell.exec")
        time.sleep(SETTLE_S)
        assert place.effects(run.worker) == set()
        kill(started["gateway"])
        code, result, _ = run.end()
    assert (code, result["error"]["code"]) == (1, "MX_AGENT_INFERENCE_FAILED")
    assert place.effects(run.worker) == set()


NONSENSE = """
import sys

if "bridge" in sys.orig_argv:
    from bridge.admin_methods import AdminMethods

    ANSWERS = {answers!r}

    async def answer_nonsense(self, given):
        return ANSWERS.pop(0)

    AdminMethods._native_decide = answer_nonsense
"""
ALMOST_YES: list[Any] = [
    {},
    None,
    [],
    "allow",
    {"verdict": "allowed", "call": "c"},
    {"verdict": True, "call": "c"},
    {"verdict": "allow"},
]


def test_a_bridge_that_talks_nonsense_allows_nothing(tmp_path, kind):
    (tmp_path / "sitecustomize.py").write_text(NONSENSE.format(answers=ALMOST_YES))
    steps = [{"call": NATIVE, "expect": "MX_AGENT_BRIDGE_UNAVAILABLE"} for _ in ALMOST_YES]
    with own_command(PYTHONPATH=str(tmp_path)) as mxs:
        place = Place(mxs, tmp_path)
        outcome = mxs.run(kind, *place.words(*steps))
        assert outcome.code == 0, outcome.result
        assert place.effects(outcome.worker) == set()
