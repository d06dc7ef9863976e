"""The whole product from outside: the real command, real workers in real containers, a state folder of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SHOP = Path(__file__).parents[2] / "examples" / "shop"
COMMAND_TIMEOUT_S = 120


@dataclass
class Mxs:
    """The command `mxs` under one state folder."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()  # words before the command's own, such as `setpriv …`

    def __call__(self, *words, stdin=None, cwd=None, check=None):
        """Run one command; `check` is the exit code it must have."""
        done = subprocess.run(
            [*self.before, sys.executable, "-P", "-m", "supervisor", *map(str, words)],
            input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_TIMEOUT_S, cwd=cwd or "/", env=self.environment(), check=False,
        )  # fmt: skip
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def environment(self):
        """The caller's variables but for keys, and this state folder."""
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        return {**kept, "MXS_HOME": str(self.home), **self.variables}

    def run(self, kind, *words, check=None):
        """`mxs run --json`: the events, the last of which is the result."""
        done = self("run", kind, "Do what the script says.", "--json", "--no-input", *words, check=check)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return Outcome(done.returncode, events, done.stderr)

    def records(self, worker):
        """The worker's records in the log, in order."""
        done = self("audit", "export", check=0)
        return [record for record in map(json.loads, done.stdout.splitlines()) if record.get("worker") == worker]


@dataclass
class Outcome:
    """How `mxs run` ended."""

    code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def result(self):
        """The last event."""
        assert self.events, self.stderr
        assert self.events[-1]["type"] == "result", self.events[-1]
        return self.events[-1]

    @property
    def worker(self):
        """The worker's id."""
        return self.result["worker"]

    def of(self, kind):
        """The events of one type."""
        return [event for event in self.events if event["type"] == kind]


@contextmanager
def own_command(**variables):
    """A command with these variables and a state folder of its own, whose supervisor is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="mxs-", dir="/tmp"))
    command = Mxs(home, variables)
    try:
        yield command
    finally:
        command("down")
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def mxs():
    """A command that the tests of one file share."""
    with own_command() as command:
        yield command


@pytest.fixture(params=["claude", "codex"])
def kind(request):
    """Both kinds of worker: one body of tests."""
    return request.param


def git(folder, *words):
    """git as a person uses it, in `folder`."""
    who = ("-c", "user.name=You", "-c", "user.email=you@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def shop(tmp_path):
    """The example's repository, freshly committed."""
    repo = tmp_path / "shop"
    shutil.copytree(SHOP / "repo", repo, ignore=shutil.ignore_patterns("__pycache__"))
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "A shop with a bug")
    return repo


@pytest.fixture
def script(tmp_path):
    """Writes a script and returns the words that play it."""

    def write(text, name="script.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return ("--model", f"script:{path}")

    return write


@pytest.fixture
def shop_words(shop):
    """The words that give a worker the shop, its role and its actors."""
    return ("--repo", shop, "--policy", SHOP / "permissions.toml", "--actors", SHOP / "actors")
