"""Tells whoever watches that a call was judged and how it ended: `call.event` (docs/wires.md).

For showing, not for keeping: the log is the record, and a watcher that is slow or gone changes nothing about a call.
How many were told of a caller is said at its end, so that a watcher knows when it has heard all.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from bridge.audit.oracle_sink import StartedCall
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Decision, Outcome

SUMMARY_CHARACTERS: Final = 200

Tell = Callable[[JsonObject], None]
RedactedText = Callable[[JsonValue], str]


class CallEvents:
    """`tell` gets each event, and must neither wait nor raise; what it shows of a payload is redacted as in the log."""

    def __init__(self, tell: Tell, redacted_text: RedactedText) -> None:
        self._tell = tell
        self._redacted_text = redacted_text
        self._told: Counter[str | None] = Counter()

    def forget(self, worker: str | None) -> int:
        """How many events there were of this worker, which is gone."""
        return self._told.pop(worker, 0)

    def judged(self, started: StartedCall, decision: Decision, payload: JsonValue) -> None:
        """The call's record is durable; it is now carried out, asked about or refused."""
        self._tell_of(started, {**_event("call", started, decision), "summary": self._summary(payload)})

    def ended(
        self,
        started: StartedCall,
        decision: Decision,
        outcome: Outcome,
        shown: JsonValue,
        duration_ms: float | None = None,
    ) -> None:
        """The call's result is recorded. `shown` is the result, or the error's sentence."""
        elapsed_ms = round((time.monotonic() - started.started_s) * 1000, 3)
        event = _event("result", started, decision)
        event |= {"outcome": outcome, "durationMs": elapsed_ms if duration_ms is None else duration_ms}
        self._tell_of(started, {**event, "summary": self._summary(shown)})

    def failed(self, started: StartedCall, decision: Decision, outcome: Outcome, error: MatrixError) -> None:
        """The call ended in `error`."""
        self.ended(started, decision, outcome, f"{error.code}: {error.message}")

    def _tell_of(self, started: StartedCall, event: JsonObject) -> None:
        worker = started.frame.caller.worker
        if worker is not None:
            self._told[worker] += 1
        self._tell(event)

    def _summary(self, shown: JsonValue) -> str:
        text = self._redacted_text(shown)
        return text if len(text) <= SUMMARY_CHARACTERS else f"{text[:SUMMARY_CHARACTERS]}…"


def _event(kind: str, started: StartedCall, decision: Decision) -> JsonObject:
    frame = started.frame
    return {
        "worker": frame.caller.worker,
        "type": kind,
        "call": frame.call,
        "workerCall": (frame.details or {}).get("workerCall"),
        "source": frame.source,
        "target": frame.target,
        "op": frame.op,
        "verdict": decision.verdict,
        "reason": decision.reason,
    }
