"""The append-only log: redacts, chains, stores durably, and signs from time to time (contracts.md, section 7).

The writing side, held by the bridge alone. Knows who may call and what may be done as little as it knows the bus: it
stores records of known kinds. Readers need no `AuditLog`: see `query` and `verify`. Above: `oracle_sink`, the bridge's
assembly. Below: `frames`, `redaction`, `group_commit`.
"""

import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
from anyio import lowlevel, to_thread

from bridge.audit.checkpoints import Keyring, last_anchored_count
from bridge.audit.frames import frame
from bridge.audit.group_commit import Appended, Deliver, GroupCommit, Waiting, unavailable
from bridge.audit.log_file import LogFile
from bridge.audit.redaction import Redactor
from bridge.audit.stored_form import members_text
from bridge.audit.unfinished import unfinished_calls
from bridge.contract.json_types import JsonObject, JsonValue

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

APPEND_BOUND_S: Final = 10.0  # a disk that takes longer counts as broken
CLOSE_BOUND_S: Final = 15.0  # the queue, a checkpoint and an anchor, on a slow disk
KEYS_FOLDER: Final = "keys"
_KEYED: Final = re.compile(
    rb'^\{"seq":(\d+),"at":"[^"]*","kind":"[^"]*","key":("(?:[^"\\]|\\.)*").*"hash":"([0-9a-f]{64})"\}$', re.MULTILINE
)


class AuditLog:
    """The open log. Made by `AuditLog.open`; safe to use from many tasks at once.

    `unfinished`: the `tool.call` records at the end of the log that had no `tool.result` when it was opened.
    """

    def __init__(self, commits: GroupCommit, redactor: Redactor, unfinished: tuple[JsonObject, ...]) -> None:
        self._commits = commits
        self._redactor = redactor
        self._arrived: dict[Waiting, anyio.Event] = {}
        self.unfinished = unfinished

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, keys: Path | None = None) -> "AsyncIterator[AuditLog]":
        """Opens the log in `folder` as its only writer; keys in `keys`, by default the folder `keys` beside it.

        Raises `MatrixError` `MX_AGENT_AUDIT_UNAVAILABLE`: another writer, no access, no room, foreign keys.
        """
        opened = await to_thread.run_sync(_open_files, folder, keys or folder.parent / KEYS_FOLDER)
        log_file, keyring, anchored = opened
        tail = log_file.take_tail()
        commits = GroupCommit(log_file, keyring, _used_keys(tail), min(anchored, log_file.head.seq))
        log = cls(commits, Redactor(keyring.redaction_key), unfinished_calls(tail))
        del tail  # megabytes of a long log
        commits.start(log._deliver_from_thread(lowlevel.current_token()))
        try:
            await log._record_recovery(log_file, anchored)
            yield log
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_BOUND_S):
                await to_thread.run_sync(commits.close, abandon_on_cancel=True)

    @property
    def head(self) -> Appended:
        """The last record written."""
        return Appended(*self._commits.head)

    def learn_secrets(self, values: Iterable[str]) -> None:
        """From now on `values` are redacted wherever they appear; those under 8 characters are passed over."""
        self._redactor.learn(values)

    def redact(self, value: JsonValue) -> JsonValue:
        """`value` as `append` would store it, for digests that have to be of the redacted form."""
        return value if self._redactor.is_free(_json(value)) else self._redactor.redact(value)

    def redacted_text(self, value: JsonValue) -> str:
        """`value` as compact JSON, as `append` would store it; a text as itself. For showing."""
        if isinstance(value, str):
            return self._redactor.text(value)
        text = _json(value)
        return text if self._redactor.is_free(text) else _json(self._redactor.redact(value))

    async def append(
        self, kind: str, fields: Mapping[str, JsonValue], *, durable: bool = True, key: str | None = None
    ) -> Appended:
        """Stores one record, redacted. With `durable` it is on disk on return, else written and on disk soon after.

        `key` makes it idempotent: the same key again is the first record's place, also after a restart. A cancellation
        waits until the record's fate is known. Raises `MatrixError`: `MX_AGENT_AUDIT_UNAVAILABLE` (nothing was
        stored), `MX_AGENT_INVALID_ARGUMENTS` (unknown kind, reserved field).
        """
        named: JsonObject = {"kind": kind} if key is None else {"kind": kind, "key": key}
        waiting = Waiting(self._members(named, frame(kind, fields)), durable, key)
        if durable or not self._commits.store_now(waiting):
            await self._stored_by_writer(waiting)
        if isinstance(waiting.outcome, Appended):
            return waiting.outcome
        raise unavailable(waiting.outcome or "its writer stopped")

    async def _stored_by_writer(self, waiting: Waiting) -> None:
        event = self._arrived[waiting] = anyio.Event()
        try:
            self._commits.submit(waiting)
            with anyio.move_on_after(APPEND_BOUND_S, shield=True):
                await event.wait()
        finally:
            del self._arrived[waiting]
        if not event.is_set():
            raise unavailable(f"the disk did not answer in {APPEND_BOUND_S:.0f} s")

    def _members(self, named: JsonObject, fields: JsonObject) -> str:
        text = members_text(named | fields)
        return text if self._redactor.is_free(text) else members_text(named | self._redactor.redact_object(fields))

    def _deliver_from_thread(self, token: lowlevel.EventLoopToken) -> Deliver:
        # The loop's own call and not anyio's `from_thread.run_sync`: that one makes the writer wait for the loop's turn
        # before it may go back to the disk, and costs more than the record.
        loop = cast("AbstractEventLoop", token.native_token)

        def deliver(finished: Sequence[Waiting]) -> None:
            loop.call_soon_threadsafe(self._set_arrived, finished)

        return deliver

    def _set_arrived(self, finished: Sequence[Waiting]) -> None:
        for waiting in finished:
            if event := self._arrived.get(waiting):
                event.set()

    async def _record_recovery(self, log_file: LogFile, anchored: int) -> None:
        head = log_file.head
        if torn := log_file.torn:
            await self.append(
                "recovered",
                {"what": "a torn tail was moved aside", "bytes": torn.length, "digest": torn.digest, "file": torn.file},
            )
        if head.seq < anchored:
            await self.append("recovered", {"what": f"the log ended at record {head.seq}, its anchor at {anchored}"})


def _json(value: JsonValue) -> str:
    return json.dumps(value, separators=(",", ":"))


def _open_files(folder: Path, keys: Path) -> tuple[LogFile, Keyring, int]:
    """The open log, its keys, and how many records the last anchor vouches for."""
    try:
        keyring = Keyring.open(keys)
        anchored = last_anchored_count(keys, keyring.verifier)
        return LogFile(folder), keyring, anchored
    except OSError as error:
        raise unavailable(str(error)) from None
    except ValueError as error:
        raise unavailable(f"its key in {str(keys)!r} cannot be used: {error}") from None


def _used_keys(tail: bytes) -> OrderedDict[str, Appended]:
    """The idempotence keys in the end of a log, oldest first."""
    return OrderedDict(
        (json.loads(found[2]), Appended(int(found[1]), found[3].decode("ascii"))) for found in _KEYED.finditer(tail)
    )
