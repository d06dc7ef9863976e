"""Checks a log from its first record to its last complete line, while somebody may be writing it.

Finds changed, moved, inserted, missing and spliced records by the chain, checkpoints that the key did not sign, and a
tail cut below an anchor. Reads files only; needs no `AuditLog`, no supervisor and no private key. Below: `chain`,
`checkpoints`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.audit.chain import GENESIS, ChainBreakError, Head, follow
from bridge.audit.checkpoints import PUBLIC_KEY_FILE, CheckpointVerifier, read_anchors

_CHECKPOINT: Final = b'"kind":"checkpoint"'
_HELD: Final = 80  # bytes of an unfinished last line that are looked at, beyond a whole record


@dataclass(frozen=True)
class FirstBad:
    """The first record that is not what was written: the number that belongs there, its line, what is wrong."""

    seq: int
    line: int
    what: str


@dataclass(frozen=True)
class Verification:
    """What a log proves. `records` counts the intact ones from the start, `anchored` those a signature vouches for.

    `key_known`: whether there was a public key to check signatures with. `unfinished_bytes`: after the last newline.
    """

    records: int
    head: str
    first_bad: FirstBad | None
    anchored: int
    key_known: bool
    unfinished_bytes: int

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong."""
        return self.first_bad is None

    @property
    def unanchored(self) -> int:
        """Intact records that only the chain vouches for."""
        return self.records - self.anchored


def verify(file: Path, keys: Path) -> Verification:
    """Checks the log in `file` against the public key and the anchors in the folder `keys`.

    A missing `file` is a log without records. Without a public key the chain alone is checked. Raises `OSError`, and
    `ValueError` for a key file that holds no key.
    """
    verifier = _public_key(keys)
    # Anchors first: a record is always written before its anchor, so a log that grows meanwhile never looks cut.
    anchors = read_anchors(keys, verifier) if verifier else {}
    walk = _Walk(verifier, anchors)
    try:
        with file.open("rb", buffering=1024 * 1024) as lines:
            walk.over(iter(lines))
    except FileNotFoundError:
        pass
    return walk.verification()


class _Walk:
    """The state of one pass over the lines."""

    def __init__(self, verifier: CheckpointVerifier | None, anchors: Mapping[int, str]) -> None:
        self._verifier = verifier
        self._anchors = anchors
        self._head = GENESIS
        self._anchored = 0
        self._unfinished = 0
        self._bad: FirstBad | None = None

    def over(self, lines: Iterator[bytes]) -> None:
        """Follows the chain until the first bad record, or the last complete line."""
        head, anchors = self._head, self._anchors
        try:
            for line in lines:
                if not line.endswith(b"\n"):
                    self._unfinished_line(head, line)
                    break
                after = follow(head, line[:-1])
                if _CHECKPOINT in line:
                    self._checkpoint(head, line)
                if after.seq in anchors:
                    self._anchor(after)
                head = after
        except ChainBreakError as error:
            self._bad = FirstBad(head.seq + 1, head.seq + 1, str(error))
        self._head = head

    def verification(self) -> Verification:
        """The outcome, once all lines were followed."""
        last_anchor = max(self._anchors, default=0)
        bad = self._bad
        if bad is None and last_anchor > self._head.seq:
            seq = self._head.seq + 1
            what = f"the tail was cut, or this is an older copy: an anchor vouches for {last_anchor} records"
            bad = FirstBad(seq, seq, what)
        return Verification(
            self._head.seq, self._head.hash, bad, self._anchored, self._verifier is not None, self._unfinished
        )

    def _checkpoint(self, head: Head, line: bytes) -> None:
        record = json.loads(line)
        if record.get("kind") != "checkpoint" or self._verifier is None:
            return
        if record.get("count") != head.seq or record.get("head") != head.hash:
            raise ChainBreakError("the checkpoint speaks of another count or head than the chain has")
        if record.get("keyId") != self._verifier.key_id:
            raise ChainBreakError("the checkpoint was signed with another key")
        if not self._verifier.holds(head.seq, head.hash, record.get("signature")):
            raise ChainBreakError("the checkpoint's signature is wrong: the log was rewritten without the key")
        self._anchored = max(self._anchored, head.seq)

    def _anchor(self, head: Head) -> None:
        if self._anchors[head.seq] != head.hash:
            raise ChainBreakError("it is not the record its anchor vouches for: the log was rewritten up to here")
        self._anchored = head.seq

    def _unfinished_line(self, head: Head, line: bytes) -> None:
        """A writer's half line is not our business; a whole record with something else than a newline behind it is."""
        self._unfinished = len(line)
        for end in range(max(0, len(line) - _HELD), len(line)):
            try:
                follow(head, line[:end])
            except ChainBreakError:
                continue
            raise ChainBreakError("the newline after it was changed, or bytes were added")


def _public_key(keys: Path) -> CheckpointVerifier | None:
    try:
        return CheckpointVerifier.load(keys / PUBLIC_KEY_FILE)
    except FileNotFoundError:
        return None
