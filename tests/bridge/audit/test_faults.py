"""Full disks, broken disks, vanished files and killed writers: what was acknowledged is there, the rest is refused."""

import errno
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest

from bridge.audit import group_commit
from bridge.audit.audit_log import AuditLog
from bridge.audit.log_file import LOG_FILE
from bridge.audit.query import read_records
from bridge.audit.verify import verify
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject

WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import anyio
    from bridge.audit.audit_log import AuditLog

    async def write(log, worker):
        number = 0
        while True:
            fields = {"worker": worker, "call": f"{worker}-{number}"}
            appended = await log.append("tool.call", fields, durable=number % 3 > 0)
            print(appended.seq, appended.hash, flush=True)
            number += 1

    async def main():
        async with AuditLog.open(Path(sys.argv[1])) as log, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(write, log, f"w{number}")

    anyio.run(main)
    """
)
PAYLOAD: JsonObject = {"text": "x" * 20_000}


async def refused(log: AuditLog) -> str:
    with pytest.raises(MatrixError) as refusal:
        await log.append("tool.call", {"call": "refused", "payload": PAYLOAD})
    assert refusal.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"
    return refusal.value.message


async def fill(log: AuditLog) -> int:
    """Appends until the disk is full; how many were acknowledged."""
    for number in range(1000):
        try:
            fields: JsonObject = {"call": f"c{number}", "payload": PAYLOAD}
            await log.append("tool.call", fields, durable=number % 2 == 0)
        except MatrixError as error:
            assert error.code == "MX_AGENT_AUDIT_UNAVAILABLE"  # noqa: PT017  the number matters too
            assert "No space left" in error.message  # noqa: PT017  as above
            return number
    raise AssertionError("the disk never filled")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_refuses_keeps_what_was_acknowledged_and_recovers(small_disk: Path, tmp_path: Path) -> None:
    folder, keys = small_disk / "audit", tmp_path / "keys"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 150_000)
    async with AuditLog.open(folder, keys) as log:
        acknowledged = await fill(log)
        await refused(log)
        assert verify(folder / LOG_FILE, keys).records == acknowledged > 0
        ballast.unlink()
        assert (await log.append("tool.call", {"call": "after"})).seq == acknowledged + 1
    outcome = verify(folder / LOG_FILE, keys)
    assert outcome.intact
    assert outcome.unfinished_bytes == 0
    calls = [record["call"] for record in read_records(folder) if record["kind"] == "tool.call"]
    assert calls == [*(f"c{number}" for number in range(acknowledged)), "after"]


async def test_a_full_disk_refuses_every_append_of_the_batch_or_none(small_disk: Path, tmp_path: Path) -> None:
    folder, keys = small_disk / "audit", tmp_path / "keys"
    stored: list[str] = []

    async def append(log: AuditLog, call: str) -> None:
        try:
            await log.append("tool.call", {"call": call, "payload": PAYLOAD})
        except MatrixError:
            return
        stored.append(call)

    async with AuditLog.open(folder, keys) as log:
        async with anyio.create_task_group() as tasks:
            for number in range(32):
                tasks.start_soon(append, log, f"c{number}")
        assert [record["call"] for record in read_records(folder)] == stored


async def test_a_full_disk_at_the_opening_is_the_typed_error(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 255 * 1024)
    with pytest.raises(MatrixError) as refusal:
        async with AuditLog.open(small_disk / "audit") as log:
            await log.append("gate", {"worker": "w", "text": "x" * 5000})
    assert refusal.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"


@pytest.mark.parametrize("durable", [True, False])
async def test_a_failing_fsync_refuses_and_what_was_acknowledged_is_written_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    real_fsync, broken = os.fsync, True

    def failing_fsync(descriptor: int) -> None:
        if broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_fsync(descriptor)

    rewritten: list[bytes] = []
    real_write = os.write

    def seen_write(descriptor: int, content: bytes) -> int:
        rewritten.append(bytes(content))
        return real_write(descriptor, content)

    monkeypatch.setattr(group_commit, "FLUSH_S", 60.0)
    async with AuditLog.open(folder) as log:
        await log.append("tool.call", {"call": "before"}, durable=durable)
        monkeypatch.setattr(os, "fsync", failing_fsync)
        monkeypatch.setattr(os, "write", seen_write)
        assert "Input/output error" in await refused(log)
        assert [record["call"] for record in read_records(folder)] == ["before"]
        broken = False
        assert (await log.append("tool.call", {"call": "after"})).seq == 2
        assert (b'"call":"before"' in b"".join(rewritten)) == (not durable), "again only what was not on disk yet"
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


async def test_a_short_write_is_completed_or_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, room = os.write, 100

    def short_write(descriptor: int, content: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        written = real_write(descriptor, bytes(content[:room]))
        room -= written
        return written

    async with AuditLog.open(folder) as log:
        monkeypatch.setattr(os, "write", short_write)
        await refused(log)
        assert (folder / LOG_FILE).read_bytes() == b""
        room = 10**6
        await log.append("tool.call", {"call": "after"})
        monkeypatch.undo()
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


def test_a_limit_on_file_size_refuses_the_append(folder: Path) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        import anyio
        from bridge.audit.audit_log import AuditLog
        from bridge.contract.errors import MatrixError

        async def main():
            async with AuditLog.open(Path(sys.argv[1])) as log:
                resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
                stored = 0
                try:
                    while True:
                        await log.append("gate", {"worker": "w"})
                        stored += 1
                except MatrixError as error:
                    print(error.code, stored, flush=True)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        anyio.run(main)
        """
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(folder)], capture_output=True, text=True, timeout=30, check=True
    )
    code, stored = done.stdout.split()
    assert code == "MX_AGENT_AUDIT_UNAVAILABLE"
    gates = [record for record in read_records(folder) if record["kind"] == "gate"]
    assert len(gates) == int(stored) > 0
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact


async def test_a_vanished_folder_refuses_and_its_return_recovers(folder: Path) -> None:
    away = anyio.Path(folder.with_name("away"))
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})
        await anyio.Path(folder).rename(away)
        assert "No such file" in await refused(log)
        await away.rename(folder)
        assert (await log.append("gate", {"worker": "w"})).seq == 2


async def test_lost_keys_lose_no_record_and_are_said_at_the_close(folder: Path) -> None:
    keys = anyio.Path(folder.with_name("keys"))

    async def lose_them(_log: anyio.Path) -> None:
        await keys.rename(folder.with_name("lost"))

    with pytest.raises(MatrixError, match="AUDIT_UNAVAILABLE"):
        await append_around(folder, lose_them, refuses=False)
    await anyio.Path(folder.with_name("lost")).rename(keys)
    outcome = verify(folder / LOG_FILE, folder.parent / "keys")
    assert outcome.intact
    assert (outcome.records, outcome.anchored) == (2, 1)


async def test_more_waiting_than_the_limit_is_refused_and_the_rest_is_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MAX_WAITING", 10)
    outcomes: list[bool] = []

    async def append(log: AuditLog) -> None:
        try:
            await log.append("gate", {"worker": "w"})
        except MatrixError as error:
            outcomes.append(error.code != "MX_AGENT_AUDIT_UNAVAILABLE")
        else:
            outcomes.append(True)

    async with AuditLog.open(folder) as log:
        async with anyio.create_task_group() as tasks:
            for _ in range(2000):
                tasks.start_soon(append, log)
        assert len(outcomes) == 2000
        stored = [record for record in read_records(folder) if record["kind"] == "gate"]
        assert len(stored) == outcomes.count(True)
        assert False in outcomes


async def written_by_somebody_else(file: anyio.Path) -> None:
    await file.write_bytes(await file.read_bytes() + b"{}\n")


async def cut_by_somebody_else(file: anyio.Path) -> None:
    await file.write_bytes(b"")


async def replaced(file: anyio.Path) -> None:
    copy = file.with_name("copy")
    await copy.write_bytes(await file.read_bytes())
    await copy.rename(file)


async def unlinked(file: anyio.Path) -> None:
    await file.unlink()


@pytest.mark.parametrize("meddle", [written_by_somebody_else, cut_by_somebody_else, replaced, unlinked])
async def test_a_log_that_somebody_meddled_with_refuses_until_it_is_opened_again(
    folder: Path, meddle: Callable[[anyio.Path], Awaitable[None]]
) -> None:
    with pytest.raises(MatrixError, match="AUDIT_UNAVAILABLE"):  # the checkpoint at the close has nowhere to go
        await append_around(folder, meddle)
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})


async def append_around(folder: Path, meddle: Callable[[anyio.Path], Awaitable[None]], *, refuses: bool = True) -> None:
    async with AuditLog.open(folder) as log:
        await log.append("gate", {"worker": "w"})
        await meddle(anyio.Path(folder / LOG_FILE))
        if refuses:
            await refused(log)
            await refused(log)


@pytest.mark.parametrize("seed", range(5))
def test_after_kill_9_every_acknowledged_record_is_there(folder: Path, seed: int) -> None:
    acknowledged: list[tuple[int, str]] = []
    wanted = random.Random(seed).randint(1, 400)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if not line.endswith("\n"):
                break
            seq, digest = line.split()
            acknowledged.append((int(seq), digest))
            if len(acknowledged) == wanted:
                writer.kill()
    assert len(acknowledged) >= wanted

    async def reopen() -> None:
        async with AuditLog.open(folder) as log:
            await log.append("gate", {"worker": "w"})

    anyio.run(reopen)
    stored = {(record["seq"], record["hash"]) for record in read_records(folder)}
    assert set(acknowledged) <= stored
    assert verify(folder / LOG_FILE, folder.parent / "keys").intact
