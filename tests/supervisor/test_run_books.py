"""The books of a run: the result is the last event, on a full disk too, and counts every call."""

import errno
import json

import anyio
import pytest

from bridge.contract.errors import MatrixError
from supervisor.home import StateFolder
from supervisor.outbox import Outbox
from supervisor.run_books import MOST_RECORDED, RunBooks
from supervisor.run_changes import NO_RESULT
from supervisor.run_totals import Ending
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore

pytestmark = pytest.mark.anyio

RECORD = WorkerRecord(
    id="claude-aaaaaa", kind="claude", name=None, run="run-1", prompt="do", repo="/r", role="coder", state="preparing",
    created_at="2026-01-01T00:00:00.000Z",
)  # fmt: skip


class Log:
    def __init__(self):
        self.records = []
        self.there = True

    async def deliver(self, record):
        if not self.there:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE")
        self.records.append(record)
        return len(self.records)


@pytest.fixture
def home(tmp_path):
    home = StateFolder(tmp_path)
    home.make()
    return home


@pytest.fixture
def log():
    return Log()


@pytest.fixture
async def books(home, log):
    home.worker(RECORD.id).root.mkdir()
    return RunBooks(RECORD, home.worker(RECORD.id), WorkerStore(home), Outbox(home.outbox, log.deliver))


async def read(books):
    return [json.loads(line) async for line in books.events.follow()]


def call(kind, **more):
    return {"worker": RECORD.id, "type": kind, "call": "c1", "workerCall": "w1", "verdict": "allow", **more}


async def test_the_result_is_the_last_event_and_nothing_is_shown_after_it(books):
    await books.open("coder")
    await books.close(Ending("completed"), dict(NO_RESULT), [])
    books.show("inference", {"model": "late"})
    with anyio.fail_after(5):
        assert [event["type"] for event in await read(books)] == ["result"]


async def test_the_result_comes_without_a_bridge_too_and_its_record_waits(books, home, log):
    log.there = False
    await books.open("coder")
    await books.close(Ending("failed", "MX_AGENT_BRIDGE_UNAVAILABLE", "gone"), dict(NO_RESULT), [])
    with anyio.fail_after(5):
        assert (await read(books))[-1]["audit"] == {"first": None, "last": None}
    assert len(Outbox(home.outbox, log.deliver).waiting()) == 2


async def test_a_disk_that_takes_no_more_ends_the_run_and_whoever_follows_sees_how(books, home, monkeypatch):
    endings: list[Ending] = []
    books.on_unwritable = endings.append
    await books.open("coder")
    books.show("notice", {"text": "before"})

    def full(*_words, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(home.root), "open", _open_for_reading_only(type(home.root).open))
    monkeypatch.setattr(type(home.root), "write_text", full)
    books.show("notice", {"text": "after"})
    await books.close(endings[0], dict(NO_RESULT), [])
    with anyio.fail_after(5):
        events = await read(books)
    assert [event["type"] for event in events] == ["notice", "notice", "result"]
    assert events[-1]["error"]["code"] == "MX_AGENT_AUDIT_UNAVAILABLE"
    assert "No space left" in events[-1]["error"]["message"]


def _open_for_reading_only(real):
    def opened(path, mode="r", *words, **options):
        if "a" in mode or "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, mode, *words, **options)

    return opened


async def test_the_events_of_calls_that_are_on_their_way_are_counted_before_the_result(books):
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(books.wait_for_calls, 2)
            await anyio.wait_all_tasks_blocked()
            books.take_call(call("call"))
            books.take_call(call("result", outcome="ok"))
    await books.close(Ending("completed"), dict(NO_RESULT), [])
    with anyio.fail_after(5):
        *shown, result = await read(books)
    assert [event["type"] for event in shown] == ["call", "call.result"]
    assert "workerCall" not in shown[0], "the bridge's id is the call's"
    assert result["calls"] == {"total": 1, "allowed": 1, "denied": 0, "failed": 0}


async def test_the_last_record_fits_into_the_log_and_the_result_has_every_path(books, log):
    left = [{"path": f"build/{number}", "why": "ignored"} for number in range(MOST_RECORDED + 5)]
    await books.close(Ending("completed"), {**NO_RESULT, "leftBehind": left}, [])
    assert len(log.records[-1]["leftBehind"]) == MOST_RECORDED + 1
    assert log.records[-1]["leftBehind"][-1] == "5 more"
    with anyio.fail_after(5):
        assert (await read(books))[-1]["leftBehind"] == left
