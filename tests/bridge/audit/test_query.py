"""Reading: filters, one call with all that belongs to it, and a log as it grows."""

import threading
from pathlib import Path

import anyio
import pytest
from anyio import from_thread, to_thread

from bridge.audit.audit_log import AuditLog
from bridge.audit.log_file import LOG_FILE
from bridge.audit.query import AuditQuery, find_call, follow, query, read_lines, read_records
from bridge.contract.json_types import JsonObject

CALLS: list[JsonObject] = [
    {
        "worker": "claude-aaaaaa",
        "run": "r1",
        "call": "c1",
        "caller": {"kind": "worker", "role": "coder"},
        "source": "bus",
        "target": "demo.inventory",
        "op": "inventory.check",
        "payload": {"sku": ["WIDGET-42"]},
        "decision": {"verdict": "allow"},
    },
    {
        "worker": "codex-bbbbbb",
        "run": "r2",
        "call": "c2",
        "caller": {"kind": "worker", "role": "reviewer"},
        "source": "native",
        "target": "demo.inventoryX",
        "op": "shell.exec",
        "payload": {"command": "ls"},
        "decision": {"verdict": "deny"},
    },
]


@pytest.fixture
def log(folder: Path) -> Path:
    async def write() -> None:
        async with AuditLog.open(folder) as log:
            for call in CALLS:
                await log.append("tool.call", call)
            await log.append("approval", {"call": "c2", "state": "allowed", "verdict": "allow"})
            for call in CALLS:
                await log.append("tool.result", {"call": call["call"], "outcome": "ok"})
            await log.append("file.change", {"call": "c1", "path": "a.py"})

    anyio.run(write)
    return folder


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AuditQuery(), [1, 2, 3, 4, 5, 6, 7]),
        (AuditQuery(worker="claude-aaaaaa"), [1]),
        (AuditQuery(run="r2"), [2]),
        (AuditQuery(role="reviewer"), [2]),
        (AuditQuery(target="demo.inventory"), [1]),
        (AuditQuery(target="demo"), [1, 2]),
        (AuditQuery(target="dem"), []),
        (AuditQuery(op="shell.exec"), [2]),
        (AuditQuery(verdict="allow"), [1, 3]),
        (AuditQuery(outcome="ok"), [4, 5]),
        (AuditQuery(kind="tool.call", source="native"), [2]),
        (AuditQuery(text="WIDGET"), [1]),
        (AuditQuery(text="a.py"), [6]),
        (AuditQuery(since="9999"), []),
        (AuditQuery(until="9999", limit=2), [6, 7]),
    ],
)
def test_a_query_finds_what_holds_for_all_it_asks(log: Path, wanted: AuditQuery, found: list[int]) -> None:
    assert [record["seq"] for record in query(log, wanted)] == found


def test_a_time_range_takes_its_start_and_leaves_its_end(log: Path) -> None:
    at = str(next(read_records(log))["at"])
    assert 1 in [record["seq"] for record in query(log, AuditQuery(since=at))]
    assert 1 not in [record["seq"] for record in query(log, AuditQuery(until=at))]


def test_a_call_is_found_with_all_that_belongs_to_it(log: Path) -> None:
    assert [record["kind"] for record in find_call(log, "c1")] == ["tool.call", "tool.result", "file.change"]
    assert [record["kind"] for record in find_call(log, "c2")] == ["tool.call", "approval", "tool.result"]
    assert find_call(log, "c") == []


def test_reading_ends_at_the_last_complete_line_and_passes_over_what_is_no_record(log: Path) -> None:
    whole = (log / LOG_FILE).read_bytes()
    (log / LOG_FILE).write_bytes(b"\xff\n[]\n" + b"[" * 100_000 + b"\n" + whole + b'{"seq":9')
    assert b"".join(read_lines(log)).endswith(whole)
    assert len(list(read_records(log))) == 7


def test_no_log_has_no_records(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "none")) == []
    assert list(read_records(tmp_path)) == []


async def test_a_followed_log_shows_the_last_records_and_then_each_new_one(folder: Path) -> None:
    stop = threading.Event()
    send, receive = anyio.create_memory_object_stream[str](100)

    def read() -> None:
        for record in follow(folder, stop, last=1):
            from_thread.run(send.send, str(record["worker"]))

    with anyio.fail_after(20):
        async with AuditLog.open(folder) as log, anyio.create_task_group() as tasks, send, receive:
            await log.append("gate", {"worker": "old"})
            await log.append("gate", {"worker": "recent"})
            tasks.start_soon(to_thread.run_sync, read)
            assert await receive.receive() == "recent"
            for name in ("new", "newer"):
                await log.append("gate", {"worker": name}, durable=False)
                assert await receive.receive() == name
            stop.set()


async def test_a_log_can_be_followed_before_it_exists(folder: Path) -> None:
    stop = threading.Event()
    found: list[object] = []

    def read() -> None:
        for record in follow(folder, stop, last=10):
            found.append(record["worker"])
            stop.set()
            return

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, read)
            async with AuditLog.open(folder) as log:
                await log.append("gate", {"worker": "first"})
    assert found == ["first"]
