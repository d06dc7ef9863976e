"""What is kept of each worker on disk: its record, written whole and atomically, and its stream of events.

Above: the supervisor writes, the client reads without one. The truth about calls is the audit log, not this.
"""

import errno
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio

from bridge.contract.json_types import JsonObject
from supervisor.clock import utc_now
from supervisor.home import StateFolder
from supervisor.worker_spec import WorkerRecord

LARGEST_STREAM: Final = 64 * 1024 * 1024
"""Characters of one worker's events: what it says and does past that is in the audit log alone."""
KEPT_ALWAYS: Final = frozenset({"state", "approval", "result"})
"""Events that whoever follows has to have, a handful a run or paced by a person: past the bound they are kept too."""


class UnknownWorkerError(Exception):
    """No worker, or more than one, answers to this id, name or prefix."""


class WorkerStore:
    """The workers of one state folder."""

    def __init__(self, home: StateFolder) -> None:
        self._home = home

    def save(self, record: WorkerRecord) -> None:
        """Write `record`, whole or not at all."""
        folder = self._home.worker(record.id).root
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / "worker.json.new"
        draft.write_text(record.model_dump_json(by_alias=True, indent=1))
        draft.replace(folder / "worker.json")

    def load(self, worker_id: str) -> WorkerRecord:
        """The record of exactly this worker. Raises `UnknownWorkerError`."""
        path = self._home.worker(worker_id).record
        try:
            return WorkerRecord.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as fault:
            raise UnknownWorkerError(f"No worker {worker_id!r}: `mxs ps --all` lists them.") from fault

    def all(self) -> list[WorkerRecord]:
        """Every readable record, oldest first."""
        found = []
        for path in self._home.workers.glob("*/worker.json"):
            try:
                found.append(WorkerRecord.model_validate_json(path.read_bytes()))
            except (OSError, ValueError):
                continue
        return sorted(found, key=lambda record: record.created_at)

    def find(self, word: str) -> WorkerRecord:
        """The worker with this id or name, or with this unique beginning of an id. Raises `UnknownWorkerError`."""
        workers = self.all()
        exact = [w for w in workers if word in (w.id, w.name)]
        matches = exact or [w for w in workers if w.id.startswith(word) and word]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownWorkerError(
                f"{word!r} is the beginning of {', '.join(w.id for w in matches)}: give more of it."
            )
        raise UnknownWorkerError(f"No worker {word!r}: `mxs ps --all` lists them.")

    def remove(self, worker_id: str) -> None:
        """Delete everything kept of the worker."""
        shutil.rmtree(self._home.worker(worker_id).root)


class EventStream:
    """One worker's events: appended to a file, followed by any number of readers from any point."""

    def __init__(self, path: Path, worker_id: str) -> None:
        self._path = path
        self._worker_id = worker_id
        self._changed = anyio.Event()
        self._closed = False
        self._unwritten: list[str] = []
        self._size = path.stat().st_size if path.exists() else 0

    def append(self, kind: str, data: JsonObject) -> None:
        """Store one event and wake its readers; nothing is added to a closed stream.

        Past `LARGEST_STREAM` a notice says that the rest is left out, and it is, but for `KEPT_ALWAYS`.
        Raises `OSError` where the disk takes no more. The event, and all after it, are then kept for the readers of
        this process alone, so that they see how it ends.
        """
        if self._closed or (self._is_full and kind not in KEPT_ALWAYS):
            return
        line = json.dumps({"type": kind, "worker": self._worker_id, "at": utc_now(), **data}, ensure_ascii=True)
        self._size += len(line)
        if self._is_full and kind not in KEPT_ALWAYS:
            text = (
                f"The events are over {LARGEST_STREAM} characters: the rest is left out; the audit log has all calls."
            )
            line = json.dumps({"type": "notice", "worker": self._worker_id, "at": utc_now(), "text": text})
        try:
            self._write(line)
        except OSError:
            self._unwritten.append(line)
            raise
        finally:
            self._wake()

    @property
    def _is_full(self) -> bool:
        return self._size >= LARGEST_STREAM

    def _write(self, line: str) -> None:
        if self._unwritten:
            raise OSError(errno.ENOSPC, "an earlier event of this worker could not be written")
        with self._path.open("a") as file:
            file.write(line + "\n")

    def close(self) -> None:
        """No further event: readers end after the last."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def follow(self) -> AsyncIterator[str]:
        """Every line from the beginning, then new ones as they come, until the stream is closed."""
        position, shown = 0, 0
        while True:
            changed, closed = self._changed, self._closed
            lines, position = read_lines(self._path, position)
            unwritten = self._unwritten[shown:]
            shown += len(unwritten)
            for line in (*lines, *unwritten):
                yield line
            if closed:
                return
            await changed.wait()


def read_lines(path: Path, position: int) -> tuple[list[str], int]:
    """The complete lines after byte `position`, and the position after them. A missing file has none."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            data = file.read()
    except FileNotFoundError:
        return [], position
    complete = data[: data.rfind(b"\n") + 1]
    return complete.decode().splitlines(), position + len(complete)
