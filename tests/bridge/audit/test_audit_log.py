"""The writing side: order, durability, idempotence, recovery after a crash, and what it refuses."""

import json
import os
import stat
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from bridge.audit import group_commit, log_file
from bridge.audit.audit_log import AuditLog
from bridge.audit.log_file import LOG_FILE
from bridge.audit.query import read_records
from bridge.audit.verify import verify
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue


def records(folder: Path, kind: str | None = None) -> list[JsonObject]:
    return [record for record in read_records(folder) if kind in (None, record["kind"])]


async def append_one(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})


async def test_a_record_is_stored_in_the_form_that_the_contract_gives(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        appended = await log.append("gate", {"worker": "w", "passed": True, "more": "é\x7f\x1b"})
        assert appended == log.head
    line = (folder / LOG_FILE).read_bytes().splitlines()[0]
    assert line.startswith(b'{"seq":1,"at":"')
    assert b'"kind":"gate","worker":"w","run":null,"passed":true,"checks":null,"more":"\\u00e9\\u007f\\u001b"' in line
    assert line.endswith(b',"prev":"' + b"0" * 64 + b'","hash":"' + appended.hash.encode() + b'"}')


async def test_records_of_many_tasks_are_in_one_order_without_gaps(folder: Path) -> None:
    places: list[int] = []

    async def call_repeatedly(log: AuditLog, worker: str) -> None:
        for number in range(25):
            appended = await log.append("tool.call", {"worker": worker, "call": f"{worker}-{number}"})
            places.append(appended.seq)

    async with AuditLog.open(folder) as log, anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(call_repeatedly, log, f"w{number}")
    assert sorted(places) == list(range(1, 401))
    calls = records(folder, "tool.call")
    for number in range(16):
        mine = [record["call"] for record in calls if record["worker"] == f"w{number}"]
        assert mine == [f"w{number}-{step}" for step in range(25)]
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


async def test_waiting_appends_share_an_fsync(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real_fsync = os.fsync

    def counting_fsync(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        real_fsync(descriptor)

    async with AuditLog.open(folder) as log:
        monkeypatch.setattr(os, "fsync", counting_fsync)
        async with anyio.create_task_group() as tasks:
            for number in range(64):
                tasks.start_soon(log.append, "gate", {"worker": f"w{number}"})
        assert 1 <= syncs <= 16


async def test_a_record_that_nobody_waits_for_is_readable_at_once_and_synced_soon(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = anyio.Event()
    token = anyio.lowlevel.current_token()
    real_fsync = os.fsync

    def telling_fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        anyio.from_thread.run_sync(synced.set, token=token)

    async with AuditLog.open(folder) as log:
        monkeypatch.setattr(os, "fsync", telling_fsync)
        await log.append("gate", {"worker": "w"}, durable=False)
        assert len(records(folder)) == 1
        with anyio.fail_after(5):
            await synced.wait()
        monkeypatch.undo()


async def test_a_silent_log_is_anchored_without_being_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "CHECKPOINT_IDLE_S", 0.05)
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})
        with anyio.fail_after(5):
            while verify(folder / LOG_FILE, folder.parent / "keys").anchored != 2:
                await anyio.lowlevel.checkpoint()
        assert log.head.seq == 2


async def test_a_busy_log_is_anchored_every_so_many_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "CHECKPOINT_RECORDS", 10)
    async with AuditLog.open(folder) as log:
        for number in range(35):
            await log.append("gate", {"worker": f"w{number}"}, durable=False)
    assert len(records(folder, "checkpoint")) >= 3
    assert verify(folder / LOG_FILE, folder.parent / "keys").unanchored == 0


async def test_an_untouched_log_gets_no_further_checkpoint(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})
    before = (folder / LOG_FILE).read_bytes()
    async with AuditLog.open(folder):
        pass
    assert (folder / LOG_FILE).read_bytes() == before


def test_files_and_folders_are_private_whatever_the_umask(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        anyio.run(append_one, folder)
    finally:
        os.umask(before)
    keys = folder.parent / "keys"
    assert {stat.S_IMODE(place.stat().st_mode) for place in (folder, keys)} == {0o700}
    assert {stat.S_IMODE(file.stat().st_mode) for place in (folder, keys) for file in place.iterdir()} == {0o600}


async def test_a_second_writer_is_refused_and_the_first_goes_on(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        with pytest.raises(MatrixError) as refusal:
            async with AuditLog.open(folder):
                pass
        assert refusal.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"
        assert "another process" in refusal.value.message
        assert (await log.append("gate", {"worker": "w"})).seq == 1


async def test_a_closed_log_refuses(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        pass
    with pytest.raises(MatrixError) as refusal:
        await log.append("gate", {"worker": "w"})
    assert refusal.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"


@pytest.mark.parametrize("key", ["k1", 'odd " \\ é key', 'record,"hash":'])
async def test_the_same_key_is_the_same_record_also_after_reopening(folder: Path, key: str) -> None:
    async with AuditLog.open(folder) as log:
        first = await log.append("commit", {"worker": "w", "commit": "abc"}, key=key)
        assert await log.append("commit", {"worker": "w", "commit": "abc"}, key=key) == first
        other = await log.append("commit", {"worker": "w", "commit": "def"}, key=key + "2")
        assert other.seq == first.seq + 1
    async with AuditLog.open(folder) as log:
        assert await log.append("commit", {"worker": "w", "commit": "abc"}, key=key) == first
    assert [record["key"] for record in records(folder, "commit")] == [key, key + "2"]


async def test_the_same_key_twice_at_once_is_one_record(folder: Path) -> None:
    seen: set[int] = set()

    async def append(log: AuditLog) -> None:
        seen.add((await log.append("commit", {"worker": "w"}, key="same")).seq)

    async with AuditLog.open(folder) as log, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(append, log)
    assert len(seen) == len(records(folder, "commit")) == 1


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"text": "\ud800"}, "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({"x": float("nan")}, "finite"),
        ({"x": 10**5000}, "digits"),
        ({"x": "é" * 1_000_000}, "limit"),
    ],
)
async def test_a_payload_that_cannot_be_stored_is_null_with_its_reason(
    folder: Path, payload: JsonValue, why: str
) -> None:
    async with AuditLog.open(folder) as log:
        await log.append("tool.call", {"call": "c", "payload": payload})
    call = records(folder, "tool.call")[0]
    assert call["payload"] is None
    assert why in str(call["payloadError"])


async def test_a_payload_nested_too_deep_is_null_with_its_reason(folder: Path) -> None:
    payload: JsonValue = {}
    for _ in range(20_000):
        payload = [payload]
    async with AuditLog.open(folder) as log:
        await log.append("tool.call", {"call": "c", "payload": payload})
    assert "deep" in str(records(folder, "tool.call")[0]["payloadError"])


@pytest.mark.parametrize(("kind", "fields"), [("tool.calls", {}), ("gate", {"hash": "x"}), ("gate", {"seq": 1})])
async def test_an_unknown_kind_or_a_reserved_field_is_refused(folder: Path, kind: str, fields: JsonObject) -> None:
    async with AuditLog.open(folder) as log:
        with pytest.raises(MatrixError) as refusal:
            await log.append(kind, fields)
        assert refusal.value.code == "MX_AGENT_INVALID_ARGUMENTS"
    assert records(folder) == []


@pytest.mark.parametrize(
    "torn", [b'{"seq":3,"at":"20', b"\0" * 5000, b"\0\0\n", b'{"seq":3}\n{"se', b"\xff\xfe" * 9_000_000]
)
async def test_a_torn_tail_is_moved_aside_and_recorded_and_the_rest_stays(folder: Path, torn: bytes) -> None:
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})
    intact = (folder / LOG_FILE).read_bytes()
    (folder / LOG_FILE).write_bytes(intact + torn)
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w2"})
    assert (folder / LOG_FILE).read_bytes().startswith(intact)
    recovered = records(folder, "recovered")[0]
    assert recovered["bytes"] == len(torn)
    assert (folder / str(recovered["file"])).read_bytes() == torn
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


async def test_calls_that_a_crash_cut_off_are_known_at_the_next_opening(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        assert log.unfinished == ()
        for call in ("a", "b", "c"):
            await log.append("tool.call", {"call": call}, key=f"k{call}")
        await log.append("tool.result", {"call": "b", "outcome": "ok"})
    async with AuditLog.open(folder) as log:
        assert [call["call"] for call in log.unfinished] == ["a", "c"]


async def test_a_long_log_is_opened_by_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "TAIL_BYTES", 3000)
    async with AuditLog.open(folder) as log:
        for number in range(50):
            await log.append("tool.call", {"call": f"c{number}"}, durable=False, key=f"k{number}")
        last = log.head
    async with AuditLog.open(folder) as log:
        assert await log.append("tool.call", {"call": "c49"}, key="k49") == last
        unfinished = [str(call["call"]) for call in log.unfinished]
        assert unfinished == [f"c{number}" for number in range(50 - len(unfinished), 50)]
        assert 3 < len(unfinished) < 12
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


async def test_a_cancelled_append_is_stored_before_the_cancellation_goes_on(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append("gate", {"worker": "w"})
        assert len(records(folder, "gate")) == 1


async def test_opening_a_log_with_a_foreign_key_file_is_refused(folder: Path) -> None:
    keys = folder.parent / "keys"
    keys.mkdir()
    (keys / "audit.pem").write_text("not a key")
    with pytest.raises(MatrixError) as refusal:
        async with AuditLog.open(folder):
            pass
    assert refusal.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"


async def test_secrets_are_gone_from_the_file_and_equal_ones_look_equal(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        log.learn_secrets(["capability-0123456789"])
        for text in ("x capability-0123456789 y", "sk-ant-api03-" + "a1" * 20):
            for number in range(2):
                await log.append("tool.call", {"call": f"c{number}", "payload": {"text": text, "password": "hunter2"}})
    stored = await to_thread.run_sync((folder / LOG_FILE).read_text)
    assert "capability-0123456789" not in stored
    assert "a1a1a1" not in stored
    assert "hunter2" not in stored
    texts = [json.dumps(record["payload"]) for record in records(folder, "tool.call")]
    assert texts[0] == texts[1] != texts[2] == texts[3]
