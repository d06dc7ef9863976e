"""Questions that wait for a person: each has a number, an owner and a deadline, and ends in a verdict.

The bridge asks (`approval.ask`), a client answers over the control API. No answer in time is a refusal, and so is a
question of a run at which nobody sits.
"""

from dataclasses import dataclass, field
from typing import Final

import anyio

from bridge.contract.json_types import JsonObject

ANSWER_TIMEOUT_MS: Final = 120_000
"""How long a person has. Hooks and approvals of the workers wait longer than this."""


@dataclass
class PendingApproval:
    """One question. `question` is what the bridge sent, shown safely and never interpreted."""

    number: int
    worker: str
    question: JsonObject
    answered: anyio.Event = field(default_factory=anyio.Event)
    verdict: str = "deny"
    by: str = ""


class Approvals:
    """The open questions of one supervisor."""

    def __init__(self) -> None:
        self._open: dict[int, PendingApproval] = {}
        self._last = 0

    def open_questions(self) -> list[PendingApproval]:
        """Those without an answer, oldest first."""
        return list(self._open.values())

    def ask(self, worker: str, question: JsonObject) -> PendingApproval:
        """Put a question; `wait_answer` ends it."""
        self._last += 1
        pending = self._open[self._last] = PendingApproval(self._last, worker, question)
        return pending

    async def wait_answer(self, pending: PendingApproval, timeout_ms: float) -> JsonObject:
        """`{"verdict", "by"}` once somebody answered; `expired` counts as deny in the bridge's eyes."""
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                await pending.answered.wait()
        finally:
            self._open.pop(pending.number, None)
        if not pending.answered.is_set():
            return {"verdict": "deny", "by": "deadline", "expired": True}
        return {"verdict": pending.verdict, "by": pending.by}

    def answer(self, number: int, verdict: str, by: str) -> bool:
        """Answer an open question. False when it is not open (any more)."""
        pending = self._open.get(number)
        if pending is None or verdict not in ("allow", "deny"):
            return False
        pending.verdict, pending.by = verdict, by
        pending.answered.set()
        return True
