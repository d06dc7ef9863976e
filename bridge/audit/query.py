"""The reading side: records of a log that match, one call with all that belongs to it, and a log as it grows.

Reads files only and needs no supervisor; shows what is stored and proves nothing (that is `verify`). Lines that are no
records are passed over. The supervisor and `mxs audit` stand above.
"""

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.audit.log_file import LOG_FILE
from bridge.contract.json_types import JsonObject, JsonValue

FOLLOW_POLL_S: Final = 0.1  # how late `follow` may notice a new record
_READ_BYTES: Final = 1024 * 1024
_CALL_KINDS: Final = frozenset({"tool.call", "approval", "tool.result", "file.change", "commit"})


@dataclass(frozen=True)
class AuditQuery:
    """What a record has to be; None and empty ask nothing. All that is given has to hold.

    `target` takes a subtree by whole segments, `op` and the others are exact. `since` (inclusive) and `until`
    (exclusive) are UTC in RFC 3339 with milliseconds. `text` is looked for in every text of the record. `limit` keeps
    the last so many.
    """

    worker: str | None = None
    run: str | None = None
    role: str | None = None
    target: str | None = None
    op: str | None = None
    verdict: str | None = None
    outcome: str | None = None
    kind: str | None = None
    source: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None
    limit: int | None = None

    def matches(self, record: JsonObject) -> bool:
        """Whether `record` is one of those asked for; `limit` plays no part."""
        at = str(record.get("at", ""))
        wanted = {
            "worker": self.worker, "run": self.run, "op": self.op, "outcome": self.outcome, "kind": self.kind,
            "source": self.source,
        }  # fmt: skip
        return (
            all(value is None or record.get(name) == value for name, value in wanted.items())
            and (self.role is None or _member(record, "caller", "role") == self.role)
            and (
                self.verdict is None or self.verdict in (_member(record, "decision", "verdict"), record.get("verdict"))
            )
            and (self.target is None or _in_subtree(record.get("target"), self.target))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (self.text is None or _holds_text(record, self.text))
        )


def log_path(place: Path) -> Path:
    """The log's file: `place` itself, or the log in the folder `place`."""
    return place / LOG_FILE if place.is_dir() else place


def read_lines(place: Path) -> Iterator[bytes]:
    """The complete lines of the log as stored, with their newlines; none if there is no log yet."""
    try:
        with log_path(place).open("rb", buffering=_READ_BYTES) as lines:
            yield from (line for line in lines if line.endswith(b"\n"))
    except FileNotFoundError:
        return


def read_records(place: Path) -> Iterator[JsonObject]:
    """The records of the log, a folder or a file, oldest first."""
    return _parsed(read_lines(place))


def query(place: Path, wanted: AuditQuery) -> list[JsonObject]:
    """The records that match, oldest first; with a limit the last of them."""
    return list(deque(filter(wanted.matches, read_records(place)), maxlen=wanted.limit))


def find_call(place: Path, call: str) -> list[JsonObject]:
    """The records of one call, oldest first: tool.call, approvals, tool.result, and the changes ascribed to it."""
    return [
        record for record in read_records(place) if record.get("call") == call and record.get("kind") in _CALL_KINDS
    ]


def follow(place: Path, stop: threading.Event, *, last: int = 0) -> Iterator[JsonObject]:
    """The last `last` records, then each new one as it is written, until `stop` is set. Waits for a log to appear."""
    recent: deque[bytes] = deque(maxlen=last)
    offset = 0
    for line in read_lines(place):
        offset += len(line)
        recent.append(line)
    yield from _parsed(recent)
    while not stop.is_set():
        lines, offset = _lines_since(place, offset)
        yield from _parsed(lines)
        if not lines:
            stop.wait(FOLLOW_POLL_S)


def _lines_since(place: Path, offset: int) -> tuple[list[bytes], int]:
    """The complete lines after `offset`, and the offset behind them; a log that is not there has none."""
    try:
        with log_path(place).open("rb") as log:
            log.seek(offset)
            content = log.read()
    except FileNotFoundError:
        return [], offset
    complete = content[: content.rfind(b"\n") + 1]
    return complete.splitlines(), offset + len(complete)


def _parsed(lines: Iterable[bytes]) -> Iterator[JsonObject]:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _member(record: JsonObject, name: str, member: str) -> JsonValue:
    value = record.get(name)
    return value.get(member) if isinstance(value, dict) else None


def _in_subtree(target: JsonValue, subtree: str) -> bool:
    return isinstance(target, str) and (target + ".").startswith(subtree + ".")


def _holds_text(value: JsonValue, text: str) -> bool:
    match value:
        case str():
            return text in value
        case dict():
            return any(text in name or _holds_text(member, text) for name, member in value.items())
        case list():
            return any(_holds_text(item, text) for item in value)
        case _:
            return False
