"""Judges and records calls of a worker's own tools: `native.decide` before, `native.finish` after (source `native`).

The sibling of `mcp_bridge_actor` for what does not run on the bus: the worker executes, so all that the bridge can do
is to say no in time and to keep the record. One `workerCall` is one call: whichever line asks first (hook, approval,
gateway) is judged, the others get the same verdict. Knows no worker kind.
"""

from dataclasses import dataclass, field
from typing import Final

import anyio

from bridge.approvals import Approvals
from bridge.audit.oracle_sink import CallFrame, OracleSink, StartedCall
from bridge.call_events import CallEvents
from bridge.callers import CallerSession, new_call_id
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import parse_op
from bridge.contract.tool_invocation import Decision, NativeCall, Outcome
from bridge.outcomes import outcome_of
from bridge.policy.refusal import refusal

MAX_REMEMBERED: Final = 4096
"""Finished calls of one caller whose verdict a late line can still ask for."""


@dataclass(frozen=True)
class NativeAnswer:
    """The verdict as the worker's mediation gets it; an `ask` has been settled."""

    call: str
    allowed: bool
    decision: Decision
    message: str = ""

    def to_json(self) -> JsonObject:
        """The answer to `native.decide`."""
        return {
            "call": self.call,
            "verdict": "allow" if self.allowed else "deny",
            "reason": self.decision.reason,
            "rule": self.decision.rule,
            "message": self.message,
        }


@dataclass(eq=False)
class _Remembered:
    op: str
    settled: anyio.Event = field(default_factory=anyio.Event)
    answer: NativeAnswer | None = None
    started: StartedCall | None = None
    finished: bool = False


@dataclass(frozen=True)
class NativeAsk:
    """One question: what is about to run, under which id of the worker's, in which of its sub-agents."""

    native: NativeCall
    worker_call: str
    agent: str | None = None


class NativeCalls:
    """The native calls of all callers."""

    def __init__(self, sink: OracleSink, approvals: Approvals, events: CallEvents) -> None:
        self._sink = sink
        self._approvals = approvals
        self._events = events
        self._calls: dict[CallerSession, dict[str, _Remembered]] = {}

    async def decide(self, session: CallerSession, ask: NativeAsk) -> NativeAnswer:
        """Judge and record the call before it runs; idempotent per `worker_call`.

        Raises `MatrixError` (AUDIT_UNAVAILABLE, CANCELLED, …): whoever asks then has to refuse.
        """
        known = self._calls.setdefault(session, {})
        before = known.get(ask.worker_call)
        if before is not None and not _is_over(before):
            return await _same_answer(before, ask)
        remembered = known[ask.worker_call] = _Remembered(ask.native.op)
        _forget_oldest(known)
        try:
            with session.running():
                remembered.answer = await self._judge(session, ask, remembered)
        finally:
            remembered.settled.set()
            if remembered.answer is None:
                del known[ask.worker_call]
        return remembered.answer

    async def finish(
        self,
        session: CallerSession,
        worker_call: str,
        outcome: Outcome,
        result: JsonValue,
        duration_ms: float | None = None,
    ) -> None:
        """Record how an allowed call has ended; the second time is no other. Raises `MX_AGENT_INVALID_ARGUMENTS`."""
        remembered = self._calls.get(session, {}).get(worker_call)
        if remembered is None or remembered.answer is None:
            raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"No native call {worker_call!r} was decided here.")
        if not remembered.answer.allowed or remembered.finished:
            return
        remembered.finished = True
        await self._end(remembered, outcome, result, duration_ms)

    async def close(self, session: CallerSession) -> None:
        """The caller is gone: what it was allowed and did not report has an unknown outcome."""
        for remembered in self._calls.pop(session, {}).values():
            if remembered.answer is not None and remembered.answer.allowed and not remembered.finished:
                remembered.finished = True
                await self._end(remembered, "unknown", None, None)

    async def _judge(self, session: CallerSession, ask: NativeAsk, remembered: _Remembered) -> NativeAnswer:
        native, target = ask.native, workspace_target(session)
        decision, refusal = _decided(session, native)
        frame = CallFrame(
            call=new_call_id(),
            caller=session.caller,
            source="native",
            target=target,
            op=native.op,
            tool=native.tool,
            details={"workerCall": ask.worker_call, "agent": ask.agent},
        )
        started = remembered.started = await self._sink.tool_call(frame, native.payload, decision)
        self._events.judged(started, decision, native.payload)
        try:
            if refusal is not None:
                raise refusal
            if decision.verdict == "ask":
                await self._approvals.settle(started, decision, native.payload)
        except MatrixError as error:
            await self._refuse(started, decision, error)
            return NativeAnswer(frame.call, allowed=False, decision=decision, message=error.message)
        except anyio.get_cancelled_exc_class():
            await self._refuse(started, decision, MatrixError("MX_AGENT_CANCELLED"))
            raise
        return NativeAnswer(frame.call, allowed=True, decision=decision)

    async def _refuse(self, started: StartedCall, decision: Decision, error: MatrixError) -> None:
        outcome = outcome_of(error)
        await self._sink.tool_result(started, outcome, error=error)
        self._events.failed(started, decision, outcome, error)

    async def _end(
        self, remembered: _Remembered, outcome: Outcome, result: JsonValue, duration_ms: float | None
    ) -> None:
        started, answer = remembered.started, remembered.answer
        assert started is not None
        assert answer is not None
        await self._sink.tool_result(started, outcome, result=result, duration_ms=duration_ms)
        self._events.ended(started, answer.decision, outcome, result, duration_ms)


def workspace_target(session: CallerSession) -> str:
    """The target of a caller's native calls (contracts.md, section 3)."""
    return f"workers.{session.caller.worker or 'none'}.workspace"


def _decided(session: CallerSession, native: NativeCall) -> tuple[Decision, MatrixError | None]:
    try:
        parse_op(native.op)
    except MatrixError as error:
        return Decision("deny", "MALFORMED_NAME"), error
    decision = session.delegate().decide_native(native)
    if decision.verdict == "deny":
        return decision, refusal(native, decision, session.caller.role)
    if not session.budget.spend():
        return session.budget_refusal(decision)
    return decision, None


async def _same_answer(remembered: _Remembered, ask: NativeAsk) -> NativeAnswer:
    await remembered.settled.wait()
    answer = remembered.answer
    if answer is None:
        raise MatrixError("MX_AGENT_CANCELLED", "The question about this call was withdrawn.")
    if remembered.op != ask.native.op and answer.allowed:
        message = f"The call {ask.worker_call!r} was judged as {remembered.op!r} and now asks for {ask.native.op!r}."
        return NativeAnswer(answer.call, allowed=False, decision=answer.decision, message=message)
    return answer


def _is_over(remembered: _Remembered) -> bool:
    """An allowed call that has ended vouches for no further one under its id."""
    return remembered.finished


def _forget_oldest(known: dict[str, _Remembered]) -> None:
    if len(known) <= MAX_REMEMBERED:
        return
    for worker_call, remembered in list(known.items()):
        refused = remembered.answer is not None and not remembered.answer.allowed
        if remembered.finished or refused:
            del known[worker_call]
            return
