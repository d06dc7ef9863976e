"""Records of the supervisor on their way to the audit log, kept on disk until the bridge has them (decision 6).

Only the bridge appends to the log. Each record has a key, so a delivery repeated after a crash is one record.
Above: runs. Below: a `deliver` callable, which is the bridge's admin channel.
"""

import json
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import anyio

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject

Deliver = Callable[[JsonObject], Awaitable[int]]
"""Hand one record to the bridge; answers its number in the log. Raises `MatrixError` when it cannot now."""


class Outbox:
    """An ordered queue of records in a folder, one file each."""

    def __init__(self, folder: Path, deliver: Deliver) -> None:
        self._folder = folder
        self._deliver = deliver
        self._lock = anyio.Lock()

    async def append(self, kind: str, fields: JsonObject) -> int | None:
        """Store a record, then try to deliver all that wait. Its number in the log, or None while it still waits."""
        key = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self._write(key, {**fields, "kind": kind, "key": key})
        return (await self.flush()).get(key)

    async def flush(self) -> dict[str, int]:
        """Deliver what waits, oldest first, until one cannot be delivered. Numbers by key."""
        delivered: dict[str, int] = {}
        async with self._lock:
            for path in self.waiting():
                try:
                    delivered[path.stem] = await self._deliver(cast("JsonObject", json.loads(path.read_bytes())))
                except MatrixError:
                    break
                path.unlink()
        return delivered

    def waiting(self) -> list[Path]:
        """The records not yet in the log, oldest first."""
        return sorted(self._folder.glob("*.json"))

    def _write(self, key: str, record: JsonObject) -> None:
        draft = self._folder / f"{key}.new"
        draft.write_text(json.dumps(record))
        draft.replace(self._folder / f"{key}.json")
