"""Settles the verdict `ask`: puts the question to a person, waits no longer than its deadline, records both ends.

Below: the sink. Above: `mcp_bridge_actor` and `native_calls`. Who answers is an `Approver` given from outside; where
nobody listens, or the answer is nonsense, the call is denied.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

import anyio

from bridge.audit.oracle_sink import OracleSink, StartedCall
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Decision

APPROVAL_TIMEOUT_MS: Final = 120_000
"""Pains, 4: a question that nobody answers ends in a refusal, not in a hung worker."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApprovalRequest:
    """The question. `payload` is redacted as the log would store it."""

    worker: str | None
    call: str
    target: str
    op: str
    tool: str
    payload: JsonValue
    reason: str
    deadline_ms: int

    def to_json(self) -> JsonObject:
        """The parameters of `approval.ask` (docs/wires.md)."""
        return {
            "worker": self.worker,
            "call": self.call,
            "target": self.target,
            "op": self.op,
            "tool": self.tool,
            "payload": self.payload,
            "reason": self.reason,
            "deadlineMs": self.deadline_ms,
        }


@dataclass(frozen=True)
class ApprovalAnswer:
    """The answer, and whose it is."""

    verdict: Literal["allow", "deny"]
    by: str


Approver = Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]]
Redact = Callable[[JsonValue], JsonValue]


class Approvals:
    """Asks, one question per call."""

    def __init__(
        self, sink: OracleSink, approver: Approver, redact: Redact, timeout_ms: int = APPROVAL_TIMEOUT_MS
    ) -> None:
        self._sink = sink
        self._approver = approver
        self._redact = redact
        self._timeout_ms = timeout_ms

    async def settle(self, started: StartedCall, decision: Decision, payload: JsonValue) -> None:
        """Returns when a person allowed the call. Raises `MatrixError`: APPROVAL_DENIED, APPROVAL_EXPIRED."""
        request = self._request(started, decision, payload)
        await self._sink.approval(started, "asked", details={"deadlineMs": self._timeout_ms})
        answer: ApprovalAnswer | None = None
        with anyio.move_on_after(self._timeout_ms / 1000):
            answer = await self._ask(request)
        if answer is None:
            await self._sink.approval(started, "expired")
            raise MatrixError("MX_AGENT_APPROVAL_EXPIRED", f"{_asked(request)} Nobody answered in time. {_RETRY}")
        state = "allowed" if answer.verdict == "allow" else "denied"
        await self._sink.approval(started, state, details={"by": answer.by})
        if answer.verdict != "allow":
            raise MatrixError("MX_AGENT_APPROVAL_DENIED", f"{_asked(request)} It was denied. {_RETRY}")

    async def _ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        try:
            return await self._approver(request)
        except Exception as error:  # noqa: BLE001 - a question that cannot be put is answered with no
            _log.error("the approval of call %s could not be asked for: %s", request.call, type(error).__name__)
            return ApprovalAnswer("deny", "nobody could be asked")

    def _request(self, started: StartedCall, decision: Decision, payload: JsonValue) -> ApprovalRequest:
        frame = started.frame
        return ApprovalRequest(
            worker=frame.caller.worker,
            call=frame.call,
            target=frame.target,
            op=frame.op,
            tool=frame.tool,
            payload=self._redact(payload),
            reason=f"{decision.rule or 'the role'} asks before {frame.op!r} at {frame.target!r}",
            deadline_ms=self._timeout_ms,
        )


_RETRY: Final = "Asking again at once will not help; go on without it, or say that you need it."


def _asked(request: ApprovalRequest) -> str:
    return f"{request.op!r} at {request.target!r} needs a person's approval."
