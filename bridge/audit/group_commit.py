"""The writer thread: gathers what is waiting, gives it numbers and hashes, and commits it with one write and one fsync.

Everything that decides order lives here, under one lock: the chain's head, the keys already used, checkpoints, and the
bounded delay after which records that nobody waits for reach the disk. Knows no event loop: it hands finished
work to the `deliver` it was given. Above: `audit_log`. Below: `log_file`, `chain`, `checkpoints`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from bridge.audit.chain import Head, seal
from bridge.audit.checkpoints import Keyring
from bridge.audit.frames import frame
from bridge.audit.log_file import LogFile
from bridge.audit.stored_form import members_text
from bridge.contract.errors import MatrixError

CHECKPOINT_RECORDS: Final = 512  # at most so many records, and those of a busy log's last seconds, are unanchored
CHECKPOINT_IDLE_S: Final = 2.0  # a log that fell silent is anchored after this
FLUSH_S: Final = 0.1  # a record that nobody waits for is on disk within twice this
MAX_WAITING: Final = 4096  # appends in the queue; more are refused, so that memory is bounded while the disk is slow
MAX_KEYS: Final = 16_384  # remembered for idempotence; about as many stand in what is read of the log at open


class Appended(NamedTuple):
    """Where a record stands in the log."""

    seq: int
    hash: str


@dataclass(eq=False)
class Waiting:
    """One append: `members` is its text without seq, at, prev and hash.

    `outcome` is set before it is delivered: the record's place, or why nothing was stored.
    """

    members: str
    durable: bool
    key: str | None = None
    outcome: Appended | str | None = None


Deliver = Callable[[Sequence[Waiting]], None]


class GroupCommit:
    """Owns an open `LogFile` until `close`."""

    def __init__(self, log: LogFile, keyring: Keyring, keys: "OrderedDict[str, Appended]", anchored: int) -> None:
        self._log = log
        self._keyring = keyring
        self._keys = keys
        self._anchored = anchored
        self._anchor_due: Head | None = None
        self._changed = threading.Condition()
        self._disk = threading.Lock()  # held by whoever appends: the writer thread, or the loop's in `store_now`
        self._queue: list[Waiting] = []
        self._closing = False
        self._last_append_s = self._last_sync_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="audit-writer", daemon=True)
        self._deliver: Deliver = _nobody_waits
        self._close_error: OSError | None = None

    @property
    def head(self) -> Head:
        """The last record written."""
        return self._log.head

    def start(self, deliver: Deliver) -> None:
        """Starts the thread; `deliver` is called in it, with appends whose outcome is known."""
        self._deliver = deliver
        self._thread.start()

    def submit(self, waiting: Waiting) -> None:
        """Queues an append. Raises `MatrixError` if the log is closed or too much is waiting."""
        with self._changed:
            if self._closing:
                raise unavailable("it is closed")
            if len(self._queue) >= MAX_WAITING:
                raise unavailable(f"{MAX_WAITING} records are waiting for the disk")
            self._queue.append(waiting)
            self._changed.notify()

    def store_now(self, waiting: Waiting) -> bool:
        """Stores an append that need not be durable in the caller's thread, if the disk is free and nothing waits.

        Then `waiting.outcome` is set; else nothing happened and False is returned. It saves two hops between threads:
        writing to the page cache takes less than one of them. The sync that follows is the writer thread's.
        """
        if self._closing or self._queue or self._unanchored >= CHECKPOINT_RECORDS:
            return False  # the writer's turn: it takes what waits, and signs
        if not self._disk.acquire(blocking=False):
            return False
        try:
            # With unanchored records the writer looks every FLUSH_S: waking it would cost this call its turn.
            sleeps = not self._unanchored
            self._commit([waiting])
        finally:
            self._disk.release()
        if sleeps:
            with self._changed:
                self._changed.notify()
        return True

    def close(self) -> None:
        """Writes what waits, a checkpoint, and everything to disk. Raises `MatrixError` if that failed."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._log.close()
        if self._close_error is not None:
            raise unavailable(str(self._close_error))

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._closing = True  # also when the event loop went away: whoever still appends is refused at once

    def _turn(self) -> bool:
        """One batch and what is due after it; False when everything is done and the log closes."""
        batch, closing = self._take()
        if batch:
            with self._disk:
                self._commit(batch)
            self._deliver(batch)
        try:
            with self._disk:
                self._rest(closing=closing)
            self._close_error = None
        except OSError as error:
            self._close_error = error
        return bool(batch) or not closing

    def _take(self) -> tuple[list[Waiting], bool]:
        with self._changed:
            if not self._queue and not self._closing:
                self._changed.wait(self._rest_s())
            batch, self._queue = self._queue, []
            return batch, self._closing

    def _rest_s(self) -> float | None:
        """How long there is nothing to do on our own account; None = until something arrives."""
        busy = self._log.dirty or self._anchor_due is not None or self._unanchored
        return FLUSH_S if busy else None

    @property
    def _unanchored(self) -> int:
        return self._log.head.seq - self._anchored

    def _commit(self, batch: Sequence[Waiting]) -> None:
        """Gives every append of `batch` its outcome: all are stored, or none is."""
        lines: list[bytes] = []
        fresh: dict[str, Appended] = {}
        head, at = self._log.head, utc_now()
        for waiting in batch:
            known = None if waiting.key is None else fresh.get(waiting.key) or self._keys.get(waiting.key)
            if known is None:
                line, head = seal(head, at, waiting.members)
                lines.append(line)
                known = Appended(*head)
                if waiting.key is not None:
                    fresh[waiting.key] = known
            waiting.outcome = known
        try:
            self._log.append(b"".join(lines), head, durable=any(waiting.durable for waiting in batch))
        except OSError as error:
            for waiting in batch:
                waiting.outcome = error.strerror or str(error)
        else:
            self._remember(fresh)
            self._last_append_s = time.monotonic()

    def _remember(self, fresh: dict[str, Appended]) -> None:
        self._keys.update(fresh)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)

    def _rest(self, *, closing: bool) -> None:
        """Own work between batches: late fsync, checkpoint, anchor. Raises `OSError`; it is tried again later."""
        now = time.monotonic()
        if not self._log.dirty:
            self._last_sync_s = now
        elif closing or now - self._last_sync_s >= FLUSH_S:
            self._log.sync()
        idle = closing or now - self._last_append_s >= CHECKPOINT_IDLE_S
        if self._unanchored >= CHECKPOINT_RECORDS or (self._unanchored and idle):
            self._checkpoint()
        if self._anchor_due is not None:
            self._keyring.anchor(self._anchor_due)
            self._anchor_due = None

    def _checkpoint(self) -> None:
        members = members_text({"kind": "checkpoint"} | frame("checkpoint", self._keyring.sign(self._log.head)))
        line, head = seal(self._log.head, utc_now(), members)
        self._log.append(line, head, durable=True)
        self._anchored, self._anchor_due = head.seq, head


def unavailable(why: str) -> MatrixError:
    """The one error of this log: nothing was recorded, so nothing may be executed."""
    return MatrixError(
        "MX_AGENT_AUDIT_UNAVAILABLE",
        f"The audit log cannot be written ({why}), so nothing is executed. Free or repair its disk, then try again.",
    )


def utc_now() -> str:
    """Now in UTC, RFC 3339 with milliseconds."""
    return rfc3339(datetime.now(UTC))


def rfc3339(at: datetime) -> str:
    """`at` (with a zone) in UTC, RFC 3339 with milliseconds: `2026-11-30T18:40:12.031Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _nobody_waits(_finished: Sequence[Waiting]) -> None:
    """Before `start` nothing is queued."""
