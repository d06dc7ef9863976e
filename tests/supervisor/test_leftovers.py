"""What a dead supervisor left is ended at the next start, whatever state its files are in."""

import json
from contextlib import aclosing

import anyio
import pytest

from sandboxes.docker_engine import DockerEngine
from supervisor.home import StateFolder
from supervisor.leftovers import close_leftovers
from supervisor.outbox import Outbox
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore

pytestmark = [pytest.mark.anyio, pytest.mark.container]


@pytest.fixture
def home(tmp_path):
    home = StateFolder(tmp_path)
    home.make()
    return home


def left_running(home, worker_id):
    record = WorkerRecord(
        id=worker_id, kind="claude", name=None, run="run-1", prompt="do", repo="/r", role="coder", state="running",
        created_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip
    WorkerStore(home).save(record)
    return home.worker(worker_id)


async def start_again(home):
    async def deliver(_record):
        return 1

    with anyio.fail_after(60):
        async with aclosing(DockerEngine()) as engine:
            await close_leftovers(engine, home, WorkerStore(home), Outbox(home.outbox, deliver))


async def test_a_worker_is_ended_with_what_its_kept_events_count_half_a_line_aside(home):
    folder = left_running(home, "claude-aaaaaa")
    events = [
        {"type": "call", "call": "a", "verdict": "allow"},
        {"type": "call.result", "call": "a", "verdict": "allow", "outcome": "ok"},
        {"type": "call", "call": "b", "verdict": "allow"},
        {"type": "call", "call": "c", "verdict": "deny"},
        {"type": "inference", "status": 200, "tokens": {"input": 3, "output": 2}},
    ]
    lines = [json.dumps(event) for event in events]
    folder.events.write_text("\n".join([*lines[:2], '{"type": "ca', *lines[2:]]) + "\n")
    await start_again(home)
    ended = WorkerStore(home).load("claude-aaaaaa")
    assert ended.state == "ended"
    assert ended.result is not None
    assert ended.result["calls"] == {"total": 3, "allowed": 2, "denied": 1, "failed": 1}
    assert (ended.result["inferences"], ended.result["tokens"]) == (1, {"input": 3, "output": 2})


async def test_one_that_cannot_be_ended_keeps_neither_the_others_nor_the_supervisor_from_going_on(home):
    broken = left_running(home, "claude-aaaaaa")
    broken.events.mkdir()  # what is there cannot be read as a file
    left_running(home, "claude-bbbbbb")
    await start_again(home)
    assert WorkerStore(home).load("claude-bbbbbb").state == "ended"
