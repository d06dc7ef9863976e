"""The books of one run: its state, its events, its records, its result. Above: `run`.

Every change of state is kept in `worker.json`, shown as an event and appended to the audit log, in this order. A disk
that takes no more raises nothing here: the run is told once, and ends like any other.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio

from bridge.contract.json_types import JsonObject, JsonValue
from supervisor.clock import utc_now
from supervisor.home import WorkerFolder
from supervisor.lifecycle import Event, next_state
from supervisor.outbox import Outbox
from supervisor.run_totals import Ending, RunTotals
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import EventStream, WorkerStore

MOST_RECORDED: Final = 1000
"""Paths of each list in the last record, which has to fit into the log; the result has all of them."""

LAST_CALLS_TIMEOUT_S: Final = 2.0
"""A hundred times the longest that the bridge holds a `call.event` back."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RunBooks:
    """What is kept of one run while it goes on."""

    def __init__(
        self, record: WorkerRecord, folder: WorkerFolder, store: WorkerStore, outbox: Outbox, age_s: float = 0.0
    ) -> None:
        """`age_s` is how long ago the run was asked for, where its books are taken up again."""
        self.on_unwritable: Callable[[Ending], None] = _nobody
        self.record = record
        self.totals = RunTotals()
        self.events = EventStream(folder.events, record.id)
        self._store = store
        self._outbox = outbox
        self._call_taken = anyio.Event()
        self._started_s = anyio.current_time() - age_s

    async def open(self, role: str) -> None:
        """The run was accepted under `role`: from here on it is kept."""
        self._keep({"role": role})
        await self.append("worker.state", {"state": self.record.state, "workerKind": self.record.kind, "role": role})

    async def append(self, kind: str, fields: JsonObject) -> None:
        """One record of this run, by way of the outbox."""
        identity: JsonObject = {"worker": self.record.id, "run": self.record.run}
        with self._writing():
            self.totals.note_record(await self._outbox.append(kind, {**identity, **fields}))

    async def step(self, event: Event) -> None:
        """Walk the life-cycle's table by `event`. The last state is written by `close`, with the result."""
        state = next_state(self.record.state, event)
        if state in (self.record.state, "ended"):
            return
        self._keep({"state": state})
        self.show("state", {"state": state})
        await self.append("worker.state", {"state": state})

    async def phase(self, name: str, work: Awaitable[_T]) -> _T:
        """Await a part of the start and show how long it took."""
        began_s = anyio.current_time()
        done = await work
        now_s = anyio.current_time()
        took: JsonObject = {"ms": _ms(now_s - began_s), "sinceRequestMs": _ms(now_s - self._started_s)}
        self.show("phase", {"phase": name, **took})
        return done

    def take_call(self, event: JsonObject) -> None:
        """Count and show one `call.event` of the bridge."""
        self.totals.count_call(event)
        kind = "call" if event.get("type") == "call" else "call.result"
        self.show(kind, {key: value for key, value in event.items() if key not in ("type", "worker", "workerCall")})
        self._call_taken.set()
        self._call_taken = anyio.Event()

    async def wait_for_calls(self, events: int) -> None:
        """Until so many `call.event`s were taken: the last ones come later than the answer that says how many.

        Bounded, since a bridge that was far ahead of us may have dropped some.
        """
        with anyio.move_on_after(LAST_CALLS_TIMEOUT_S):
            while self.totals.call_events < events:
                await self._call_taken.wait()

    def show(self, kind: str, fields: JsonObject) -> None:
        """Stream one event."""
        with self._writing():
            self.events.append(kind, fields)

    async def close(self, ending: Ending, changes: JsonObject, unmediated: list[JsonValue]) -> None:
        """Write the last record, the result and the last event; nothing is shown after it."""
        ended: JsonObject = {"state": "ended", "status": ending.status, "error": ending.error(), **changes}
        lists: JsonObject = {"leftBehind": changes["leftBehind"], "review": changes["review"], "unmediated": unmediated}
        await self.append("worker.state", {**ended, **{name: _cut(items) for name, items in lists.items()}})
        totals = self.totals
        result: JsonObject = {
            "kind": self.record.kind,
            "status": ending.status,
            **changes,
            "calls": totals.calls(),
            "inferences": totals.inferences,
            "tokens": {"input": totals.tokens_in, "output": totals.tokens_out},
            "durationMs": _ms(anyio.current_time() - self._started_s),
            "audit": {"first": totals.first_record, "last": totals.last_record},
            "error": ending.error(),
        }
        self._keep({"state": "ended", "ended_at": utc_now(), "result": result})
        self.show("result", result)
        self.events.close()

    def _keep(self, update: dict[str, object]) -> None:
        self.record = self.record.model_copy(update=update)
        with self._writing():
            self._store.save(self.record)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            _log.error("the state folder took nothing of worker %s: %s", self.record.id, fault.strerror)
            text = f"The state folder cannot be written ({fault.strerror}): free some space, then run again."
            self.on_unwritable(Ending("failed", "MX_AGENT_AUDIT_UNAVAILABLE", text))


def _nobody(_: Ending) -> None:
    """Where no run goes on, there is none to end."""


def _cut(items: JsonValue) -> JsonValue:
    listed = items if isinstance(items, list) else []
    return listed if len(listed) <= MOST_RECORDED else [*listed[:MOST_RECORDED], f"{len(listed) - MOST_RECORDED} more"]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
