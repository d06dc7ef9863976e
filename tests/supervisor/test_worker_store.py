import json

import anyio
import pytest

from supervisor import worker_store
from supervisor.home import StateFolder
from supervisor.worker_spec import WorkerRecord, new_worker_id
from supervisor.worker_store import EventStream, UnknownWorkerError, WorkerStore


def a_record(worker_id, name=None):
    return WorkerRecord(
        id=worker_id, kind="claude", name=name, run="run-1", prompt="do", repo="/r", role="coder", state="ended",
        created_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    home = StateFolder(tmp_path)
    home.make()
    return WorkerStore(home)


def test_a_worker_is_found_by_its_id_its_name_and_a_unique_beginning(store):
    store.save(a_record("claude-aaaaaa", "first"))
    store.save(a_record("claude-abbbbb"))
    assert store.find("first").id == "claude-aaaaaa"
    assert store.find("claude-ab").id == "claude-abbbbb"
    assert store.find("claude-abbbbb").id == "claude-abbbbb"


@pytest.mark.parametrize("word", ["claude-a", "codex", ""])
def test_an_unknown_or_ambiguous_word_is_an_error_that_says_which(store, word):
    store.save(a_record("claude-aaaaaa"))
    store.save(a_record("claude-abbbbb"))
    with pytest.raises(UnknownWorkerError):
        store.find(word)


def test_an_unreadable_record_does_not_hide_the_others(store, tmp_path):
    store.save(a_record("claude-aaaaaa"))
    (tmp_path / "workers" / "claude-bbbbbb").mkdir()
    (tmp_path / "workers" / "claude-bbbbbb" / "worker.json").write_text("{half")
    assert [record.id for record in store.all()] == ["claude-aaaaaa"]


def test_worker_ids_are_the_kind_and_six_base32_characters():
    ids = {new_worker_id("codex") for _ in range(200)}
    assert len(ids) == 200
    assert all(len(i) == len("codex-") + 6 and set(i[6:]) <= set("abcdefghijklmnopqrstuvwxyz234567") for i in ids)


@pytest.mark.anyio
async def test_a_late_reader_gets_every_event_and_ends_with_the_stream(tmp_path):
    stream = EventStream(tmp_path / "events.jsonl", "claude-aaaaaa")
    stream.append("text", {"text": "one"})
    seen = []

    async def read():
        async for line in stream.follow():
            seen.append(line)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()
            stream.append("text", {"text": "two"})
            stream.append("result", {})
            stream.close()
    assert [('"one"' in line, '"two"' in line) for line in seen] == [(True, False), (False, True), (False, False)]


def test_a_worker_that_talks_without_end_fills_no_disk_and_still_has_an_ending(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_store, "LARGEST_STREAM", 2000)
    stream = EventStream(tmp_path / "events.jsonl", "claude-aaaaaa")
    for _ in range(1000):
        stream.append("text", {"text": "x" * 500})
    stream.append("result", {})
    kinds = [json.loads(line)["type"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert kinds == ["text", "text", "text", "notice", "result"]
