"""A rule of `ask`: put to the person at the terminal that runs the worker, or denied where nobody is there."""

import os
import pty
import subprocess
import sys
import time

import pytest

from tests.e2e.conftest import SHOP

pytestmark = pytest.mark.container

RESERVE = """
steps:
  - call:
      tool: matrix_invoke
      args: {target: demo.inventory, op: inventory.reserve, payload: {sku: WIDGET-42, quantity: 2}}
    expect: '"reserved": ?2|MX_AGENT_APPROVAL_DENIED'
  - say: Done.
"""
TERMINAL_TIMEOUT_S = 90


def words(shop):
    return ("--repo", shop, "--policy", SHOP / "permissions.toml", "--actors", SHOP / "actors")


def test_nobody_at_a_terminal_means_denied_at_once_and_recorded(mxs, kind, shop, script):
    outcome = mxs.run(kind, *words(shop), *script(RESERVE), check=0)
    records = mxs.records(outcome.worker)
    call = next(record for record in records if record["kind"] == "tool.call" and record["op"] == "inventory.reserve")
    of_call = [record for record in records if record.get("call") == call["call"]]
    assert [record["kind"] for record in of_call][-1] == "tool.result"
    assert "approval" in [record["kind"] for record in of_call]
    assert of_call[-1]["outcome"] == "denied"
    assert outcome.result["calls"]["denied"] == 1


@pytest.mark.parametrize(("answer", "outcome"), [("y", "ok"), ("n", "denied")])
def test_the_person_at_the_terminal_is_asked_and_obeyed(mxs, shop, script, answer, outcome):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "supervisor", "run", "claude", "x", *words(shop), *script(RESERVE)]
    with subprocess.Popen(
        list(map(str, command)), stdin=theirs, stdout=theirs, stderr=theirs, env=mxs.environment()
    ) as run:
        os.close(theirs)
        seen = read_until(ours, b"[y/N]")
        assert b"inventory.reserve" in seen or b"inventory_reserve" in seen
        os.write(ours, f"{answer}\n".encode())
        seen += read_until(ours, b"completed")
        read_rest(ours)
        assert run.wait(TERMINAL_TIMEOUT_S) == 0, seen
    os.close(ours)
    worker = mxs("ps", "--all", check=0).stdout.splitlines()[-1].split()[0]
    results = [r for r in mxs.records(worker) if r["kind"] == "tool.result" and r["op"] == "inventory.reserve"]
    assert [record["outcome"] for record in results] == [outcome]


def read_until(terminal, mark):
    """What the terminal shows up to `mark`, within the bound."""
    seen, deadline = b"", time.monotonic() + TERMINAL_TIMEOUT_S
    while mark not in seen:
        assert time.monotonic() < deadline, seen
        seen += os.read(terminal, 4096)
    return seen


def read_rest(terminal):
    """Take what is still shown: a terminal that nobody reads would hold its writer back."""
    try:
        while os.read(terminal, 4096):
            continue
    except OSError:
        return
