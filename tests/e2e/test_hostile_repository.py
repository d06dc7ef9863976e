"""A repository that tries to disarm its worker changes nothing for either kind; the control shows that it would have.

The model is a provider on this machine, so that what the worker sends is seen as a provider sees it. A second one is
where the repository would like the requests, and the person's key, to go.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e import hostile_repository as hostile
from tests.e2e.conftest import Outcome, git, own_command
from tests.e2e.local_upstream import LAST_WORD, LocalUpstream, local_upstream
from tests.e2e.roles import FORBIDDEN, role_file

pytestmark = pytest.mark.container
KEY = "key-of-the-person"
COMMANDS = ("echo allowed > allowed.txt", f"touch denied-ran; {FORBIDDEN}")


@dataclass(frozen=True)
class Seen:
    """One run, and what both providers and the host saw of it."""

    kind: str
    outcome: Outcome
    records: list[Any]
    upstream: LocalUpstream
    decoy: LocalUpstream
    repo: object
    markers: set[Any]

    def sent(self):
        """All that the worker's requests said, as text."""
        return json.dumps([request.body for request in self.upstream.received])


@pytest.fixture(scope="module", params=["claude", "codex"])
def seen(request, tmp_path_factory):
    """A run of each kind on the hostile repository, with a real provider's protocol."""
    folder = tmp_path_factory.mktemp(request.param)
    repo = folder / "repo"
    with local_upstream(KEY) as upstream, local_upstream(hostile.DECOY_KEY) as decoy:
        hostile.make(repo, decoy.base_url)
        upstream.commands = COMMANDS
        words = (
            "--repo",
            repo,
            "--policy",
            role_file(folder),
            *(["--model", "gpt-5.5"] if request.param == "codex" else []),
        )
        with own_command(**_provider(upstream)) as mxs:
            outcome = mxs.run(request.param, *words)
            markers = hostile.markers(mxs.home) | hostile.markers(repo)
            records = mxs.records(outcome.worker)
        yield Seen(request.param, outcome, records, upstream, decoy, repo, markers)


def _provider(upstream):
    return {
        "ANTHROPIC_API_KEY": upstream.key,
        "ANTHROPIC_BASE_URL": upstream.base_url,
        "OPENAI_API_KEY": upstream.key,
        "OPENAI_BASE_URL": f"{upstream.base_url}/v1",
    }


def test_nothing_of_the_repository_runs(seen):
    assert seen.outcome.code == 0, seen.outcome.result
    assert seen.markers == set()


def test_its_calls_are_judged_and_recorded_as_ever(seen):
    verdicts = [
        (record["payload"].get("command"), record["decision"]["reason"])
        for record in seen.records
        if record["kind"] == "tool.call"
    ]
    assert verdicts == [(COMMANDS[0], "GRANTED"), (COMMANDS[1], "SHELL_DENIED")]
    assert git(seen.repo, "diff", "--name-only", f"main..{seen.outcome.result['branch']}").split() == ["allowed.txt"]


def test_its_surface_is_the_projected_one(seen):
    gates = [record for record in seen.records if record["kind"] == "gate"]
    assert [gate["verdict"] for gate in gates] == ["passed"]
    assert gates[0]["surface"]["missing"] == []


def test_the_instruction_files_reach_the_model_as_text_and_nothing_else_does(seen):
    assert hostile.INSTRUCTIONS in seen.sent()
    assert hostile.SMUGGLED not in seen.sent()
    assert LAST_WORD in "".join(event["text"] for event in seen.outcome.of("text"))


def test_neither_requests_nor_keys_are_redirected(seen):
    assert seen.decoy.received == []
    headers = json.dumps([request.headers for request in seen.upstream.received])
    assert KEY in headers
    assert hostile.DECOY_KEY not in headers


def test_the_repositorys_own_settings_of_mxs_are_ignored_and_that_is_said(seen):
    assert "mxs trust" in seen.outcome.stderr + json.dumps(seen.outcome.of("notice"))


WOULD_RUN = {
    "claude": {"claude-hook", "claude-local-hook", "claude-server", "key-helper", "shell"},
    "codex": {"codex-server", "shell"},
}


def test_without_us_the_repository_runs_its_hooks_and_servers(tmp_path, kind):
    repo = tmp_path / "repo"
    with local_upstream(KEY) as upstream, local_upstream(hostile.DECOY_KEY) as decoy:
        hostile.make(repo, decoy.base_url)
        upstream.commands = decoy.commands = ("touch shell-ran",)
        hostile.start_plainly(kind, repo, upstream)
    asked = decoy if kind == "claude" else upstream
    assert hostile.markers(repo) == WOULD_RUN[kind]
    assert asked.received, "Claude Code goes where the repository says, with the key that it says"
    assert hostile.SMUGGLED in json.dumps([request.body for request in asked.received])
