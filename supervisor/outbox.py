"""Records of the supervisor on their way to the audit log, kept on disk until the bridge has them (decision 6).

Only the bridge appends to the log. Each record has a key, so a delivery repeated after a crash is one record.
Above: runs. Below: a `deliver` callable, which is the bridge's admin channel.
"""

import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast

import anyio

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject

Deliver = Callable[[JsonObject], Awaitable[int]]
"""Hand one record to the bridge; answers its number in the log. Raises `MatrixError` when it cannot."""

NOT_NOW: Final = frozenset(
    {
        "MX_AGENT_BRIDGE_UNAVAILABLE",
        "MX_AGENT_BRIDGE_RESTARTED",
        "MX_AGENT_AUDIT_UNAVAILABLE",
        "MX_AGENT_CANCELLED",
        "MX_AGENT_LIMIT",
    }
)
"""Why a record waits. For any other reason it would be refused for ever, and hold up all that come after it."""

_log = logging.getLogger(__name__)


class Outbox:
    """An ordered queue of records in a folder, one file each. A record that the bridge refuses is set aside there."""

    def __init__(self, folder: Path, deliver: Deliver) -> None:
        self._folder = folder
        self._deliver = deliver
        self._lock = anyio.Lock()
        self._numbers: dict[str, int | None] = {}  # by key, of the records whose `append` is not over

    async def append(self, kind: str, fields: JsonObject) -> int | None:
        """Store a record, then try to deliver all that wait. Its number in the log, or None while it still waits.

        Raises `OSError` where the disk takes no more.
        """
        key = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self._numbers[key] = None
        try:
            self._write(key, {**fields, "kind": kind, "key": key})
            await self.flush()  # or another one's flush delivers it before
            return self._numbers[key]
        finally:
            del self._numbers[key]

    async def flush(self) -> None:
        """Deliver what waits, oldest first, until the bridge cannot take one now."""
        async with self._lock:
            for path in self.waiting():
                try:
                    await self._send(path)
                except MatrixError as error:
                    if error.code in NOT_NOW:
                        return
                    self._set_aside(path, f"{error.code}: {error.message}")

    def waiting(self) -> list[Path]:
        """The records not yet in the log, oldest first."""
        return sorted(self._folder.glob("*.json"))

    async def _send(self, path: Path) -> None:
        record = self._read(path)
        if record is not None:
            self._note_delivered(path, await self._deliver(record))

    def _read(self, path: Path) -> JsonObject | None:
        try:
            return cast("JsonObject", json.loads(path.read_bytes()))
        except ValueError:
            self._set_aside(path, "it is no JSON")
            return None

    def _note_delivered(self, path: Path, number: int) -> None:
        if path.stem in self._numbers:
            self._numbers[path.stem] = number
        path.unlink(missing_ok=True)

    def _set_aside(self, path: Path, why: str) -> None:
        aside = path.with_suffix(".refused")
        _log.error("the audit log does not take the record %s, which is kept: %s", aside, why)
        path.replace(aside)

    def _write(self, key: str, record: JsonObject) -> None:
        draft = self._folder / f"{key}.new"
        draft.write_text(json.dumps(record))
        draft.replace(self._folder / f"{key}.json")
