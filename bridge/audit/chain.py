"""The stored form of a record, and how each record holds on to the one before (contracts.md, section 7).

A record is one ASCII JSON object on one line: `{"seq":…,"at":…,"kind":…,…,"prev":…,"hash":…}`. `hash` is the SHA-256 of
the line's bytes before `,"hash":`; `prev` is the hash of the record before, 64 zeros at the first. Pure functions over
bytes: knows no file, no key and no kind of record. Above: `log_file` and `group_commit` (write), `verify` (checks).
"""

import json
from hashlib import sha256
from typing import Final, NamedTuple

ZEROS: Final = "0" * 64
_TAIL_BYTES: Final = len(',"hash":""}') + 64  # of a line without its newline


class Head(NamedTuple):
    """Where a chain stands: the last record's number and hash."""

    seq: int
    hash: str


GENESIS: Final = Head(0, ZEROS)


class ChainBreakError(Exception):
    """A line that does not continue the chain; the text says what is wrong with it."""


def seal(head: Head, at: str, members: str) -> tuple[bytes, Head]:
    """The line (with its newline) that continues `head`, and the new head.

    `members` is ASCII JSON without braces and without spaces, `"kind":"…",…`; `at` is UTC, RFC 3339 with milliseconds.
    """
    seq = head.seq + 1
    covered = f'{{"seq":{seq},"at":"{at}",{members},"prev":"{head.hash}"'.encode("ascii")
    digest = sha256(covered).hexdigest()
    return covered + f',"hash":"{digest}"}}\n'.encode("ascii"), Head(seq, digest)


def follow(head: Head, line: bytes) -> Head:
    """The head after `line` (without newline), which has to be the record that follows `head`.

    Raises `ChainBreakError`. The common form is checked on bytes alone; any other is parsed and checked in full.
    """
    digest = sha256(memoryview(line)[:-_TAIL_BYTES]).hexdigest()
    tail = f',"prev":"{head.hash}","hash":"{digest}"}}'.encode("ascii")
    seq = head.seq + 1
    if line.endswith(tail) and line.startswith(b'{"seq":%d,"at":"' % seq) and line.isascii():
        return Head(seq, digest)
    return _follow_parsed(head, line)


def intact_alone(line: bytes) -> Head | None:
    """The head that `line` claims, if its own hash is right whatever stands before it; else None."""
    try:
        record = _parse(line)
        seq = record["seq"]
        if isinstance(seq, int) and seq > 0:
            return Head(seq, _own_hash(line))
    except (ChainBreakError, KeyError):
        pass
    return None


def _follow_parsed(head: Head, line: bytes) -> Head:
    record = _parse(line)
    digest = _own_hash(line)
    seq = record.get("seq")
    if type(seq) is not int or seq != head.seq + 1:
        raise ChainBreakError(f"record {seq!r} stands where record {head.seq + 1} belongs")
    if record.get("prev") != head.hash:
        raise ChainBreakError("it does not follow the record before it: `prev` is another hash")
    return Head(seq, digest)


def _parse(line: bytes) -> dict[str, object]:
    if not line.isascii():
        raise ChainBreakError("the line holds bytes outside ASCII")
    try:
        record = json.loads(line, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise ChainBreakError("the line is no JSON object") from None
    if not isinstance(record, dict) or not record or next(reversed(record)) != "hash":
        raise ChainBreakError("the line is no record: `hash` does not stand last")
    return record


def _own_hash(line: bytes) -> str:
    digest = sha256(line[: line.rfind(b',"hash":')]).hexdigest()
    if not line.endswith(f',"hash":"{digest}"}}'.encode("ascii")):  # also: no blank where the hash does not look
        raise ChainBreakError("its bytes were changed: the hash differs")
    return digest


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice")
    return members
