"""The sink of the specification: records start and end times, and emits `tool.call` and `tool.result` frames.

A frame is a record of the audit log. `tool_call` returns when its record is on disk, before anything may happen; each
call that was recorded ends in exactly one `tool_result`. Decides nothing and executes nothing. Above:
`mcp_bridge_actor` and the admin channel. Below: `audit_log`, `frames`.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from bridge.audit.audit_log import AuditLog
from bridge.audit.frames import Source, caller_fields, decision_value, result_fields
from bridge.audit.group_commit import Appended, rfc3339
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Caller, Decision, Outcome


@dataclass(frozen=True)
class CallFrame:
    """What both records of one call say about it. `tool` is the canonical name, or the worker's own tool.

    `details`: further fields of both records, such as `agent` and `workerCall`.
    """

    call: str
    caller: Caller
    source: Source
    target: str
    op: str
    tool: str
    details: JsonObject | None = None

    def fields(self) -> JsonObject:
        """The common fields, in stored order."""
        return {
            **caller_fields(self.caller),
            "call": self.call,
            "source": self.source,
            "target": self.target,
            "op": self.op,
            "tool": self.tool,
            **(self.details or {}),
        }


@dataclass(frozen=True)
class StartedCall:
    """A call whose `tool.call` is on disk: where it stands there, and when it started on two clocks."""

    frame: CallFrame
    appended: Appended
    started_at: datetime
    started_s: float


class OracleSink:
    """Emits the frames of calls into one log."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def tool_call(
        self, frame: CallFrame, payload: JsonValue, decision: Decision, *, payload_error: str | None = None
    ) -> StartedCall:
        """Records the call with its decision, durable on return; nothing of the call may happen before.

        `payload_error`: why `payload` (then None) is not what came. Raises `MatrixError` `MX_AGENT_AUDIT_UNAVAILABLE`.
        """
        fields = frame.fields() | {"payload": payload, "decision": decision_value(decision)}
        if payload_error is not None:
            fields["payloadError"] = payload_error
        started_at, started_s = datetime.now(UTC), time.monotonic()
        appended = await self._log.append("tool.call", fields)
        return StartedCall(frame, appended, started_at, started_s)

    async def tool_result(
        self,
        started: StartedCall,
        outcome: Outcome,
        *,
        result: JsonValue = None,
        error: MatrixError | None = None,
        duration_ms: float | None = None,
        durable: bool = False,
    ) -> Appended:
        """Records how the call ended; a second result of the same call is the first one.

        `duration_ms`: the worker's own figure for a native call; else the time since `tool_call`. Shielded from
        cancellation. Raises `MatrixError` `MX_AGENT_AUDIT_UNAVAILABLE`.
        """
        elapsed_ms = round((time.monotonic() - started.started_s) * 1000, 3)
        fields = started.frame.fields() | {
            "outcome": outcome,
            "startedAt": rfc3339(started.started_at),
            "endedAt": rfc3339(datetime.now(UTC)),
            "durationMs": elapsed_ms if duration_ms is None else duration_ms,
            **result_fields(self._log.redact(result)),
            "error": None if error is None else {"code": error.code, "message": error.message},
        }
        key = f"result:{started.frame.call}"
        return await self._log.append("tool.result", fields, durable=durable, key=key)

    async def approval(self, started: StartedCall, state: str, *, details: JsonObject | None = None) -> Appended:
        """Records a step of an approval, durable: `state` is `asked`, `allowed`, `denied` or `expired`.

        The last one holds the verdict; `details` may hold `by` and `deadlineMs`.
        """
        verdict: JsonObject = {} if state == "asked" else {"verdict": "allow" if state == "allowed" else "deny"}
        fields = started.frame.fields() | {"state": state} | verdict | (details or {})
        return await self._log.append("approval", fields)

    async def unknown_outcome(self, call: JsonObject, error: MatrixError) -> Appended:
        """Ends a call of an earlier life of the bridge (`AuditLog.unfinished`) with the outcome `unknown`."""
        kept = ("worker", "run", "call", "caller", "source", "target", "op", "tool", "agent", "workerCall")
        fields: JsonObject = {name: call[name] for name in kept if name in call}
        fields |= {
            "outcome": "unknown",
            "startedAt": call.get("at"),
            "error": {"code": error.code, "message": error.message},
        }
        return await self._log.append("tool.result", fields, key=f"result:{call.get('call')}")
