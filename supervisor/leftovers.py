"""What a supervisor that died left behind: containers go, work comes out, records say what happened.

Runs once, before a supervisor serves, when no run of this state folder can be alive. Above: `supervisor`. Below: the
books and the changes of a run, which are taken up from disk.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import anyio

from bridge.contract.json_types import JsonObject
from sandboxes import SandboxError
from sandboxes.docker_engine import DockerEngine
from sandboxes.reaper import reap
from supervisor.home import StateFolder
from supervisor.outbox import Outbox
from supervisor.repo import RepositoryError
from supervisor.run_books import RunBooks
from supervisor.run_changes import NO_RESULT, RunChanges
from supervisor.run_totals import Ending, RunTotals
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore, read_lines

BRING_OUT_TIMEOUT_S: Final = 30.0
"""For one worker's work: it delays the start, and what is not brought out stays where it is."""

_log = logging.getLogger(__name__)

DIED: Final = Ending("failed", "MX_AGENT_WORKER_EXITED", "The supervisor ended while this worker ran.")


async def close_leftovers(engine: DockerEngine, home: StateFolder, store: WorkerStore, outbox: Outbox) -> None:
    """Remove every container of this state folder, and end each worker that did not end, with its work so far."""
    with suppress(SandboxError):  # without an engine there is no container; `run` says so when one is wanted
        await reap(engine, str(home.root))
    async with anyio.create_task_group() as closing:
        for record in store.all():
            if record.state != "ended":
                closing.start_soon(_close_or_leave, record, home, store, outbox)


async def _close_or_leave(record: WorkerRecord, home: StateFolder, store: WorkerStore, outbox: Outbox) -> None:
    """One worker that cannot be ended now must not keep the supervisor from starting: the next start tries again."""
    try:
        await _close(record, home, store, outbox)
    except Exception as fault:  # noqa: BLE001 - whatever is wrong with what it left
        _log.error("worker %s could not be ended: %s", record.id, type(fault).__name__, exc_info=fault)


async def _close(record: WorkerRecord, home: StateFolder, store: WorkerStore, outbox: Outbox) -> None:
    folder = home.worker(record.id)
    books = RunBooks(record, folder, store, outbox, _age_s(record))
    lines, _ = read_lines(folder.events, 0)
    books.totals = totals_of(_readable(lines))
    changes = RunChanges(Path(record.repo), folder.repo, record.id, books.append)
    ending, result = DIED, dict(NO_RESULT)
    try:
        with anyio.fail_after(BRING_OUT_TIMEOUT_S):
            if await changes.take_up():
                result = await changes.hand_over()
    except (RepositoryError, TimeoutError, OSError) as fault:
        why = str(getattr(fault, "message", "")) or type(fault).__name__
        kept = f"{DIED.message} Its work could not be brought out ({why}) and is kept in {folder.repo}."
        ending = Ending(DIED.status, DIED.code, kept)
    await books.close(ending, result, [])


def totals_of(events: Iterable[JsonObject]) -> RunTotals:
    """What a run had counted, from the events that are kept of it."""
    totals = RunTotals()
    for event in events:
        if event.get("type") in ("call", "call.result"):
            totals.count_call(event)
        elif event.get("type") == "inference":
            totals.count_inference(event)
    return totals


def _readable(lines: Iterable[str]) -> Iterable[JsonObject]:
    """The events in `lines`; a disk that was full leaves halves of lines."""
    for line in lines:
        with suppress(ValueError):
            yield cast("JsonObject", json.loads(line))


def _age_s(record: WorkerRecord) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(record.created_at)).total_seconds()
