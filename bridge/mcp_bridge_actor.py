"""McpBridgeActor (spec), mounted at `system.tools.mcpBridge`: the one way from a caller to the bus.

`invoke` is the story: freeze, decide and validate, record durably, execute, record again in every case. Below: policy
(a session's judge), validation, audit (the sink) and bus (`RequestReply`). Above: the channels of `assembly` and the
MCP server. It knows no process, no socket and no worker kind. A caller that reaches it over the bus, by `tool.invoke`,
is judged again under its own rights.
"""

from dataclasses import dataclass, field

import anyio

from bridge.approvals import Approvals
from bridge.audit.oracle_sink import CallFrame, OracleSink, StartedCall
from bridge.bus.actor import Actor
from bridge.bus.actor_bus import CallContext, Progress
from bridge.bus.request_reply import RequestReply
from bridge.call_events import CallEvents
from bridge.callers import CallerSession, new_call_id
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Decision, ToolInvoke
from bridge.frozen_invoke import FrozenInvoke, freeze
from bridge.outcomes import outcome_of
from bridge.policy.refusal import refusal
from bridge.validation import OpValidator, ValidatorCache


@dataclass(frozen=True)
class InvokeOptions:
    """What a channel knows about a call beside what is asked."""

    worker_call: str | None = None  # the worker's own id of it
    progress: Progress | None = None


@dataclass(frozen=True)
class InvokeAnswer:
    """The call's id in the log, and its result."""

    call: str
    result: JsonValue


@dataclass(frozen=True)
class _Judged:
    """A frozen call with its decision: `refusal` is why it is not executed, `payload` what is sent when it is."""

    invoke: FrozenInvoke
    decision: Decision
    refusal: MatrixError | None = None
    payload: JsonObject = field(default_factory=dict)
    validator: OpValidator | None = None


class McpBridgeActor(Actor):
    """Judges, records and carries out calls of actors."""

    mount = "system.tools.mcpBridge"
    description = "Invokes an op of any actor for its caller, within the caller's permissions, and records it."
    accepts = {  # noqa: RUF012 - declarations are data, in the specification's own shape
        "tool.invoke": {
            "description": "Invoke one op of one actor. It is permitted and recorded as if it were called directly.",
            "schema": {
                "target": {"type": "string", "description": "The actor's mount, for example 'system.catalog'"},
                "op": {"type": "string", "description": "The op, for example 'catalog.search'"},
                "payload": {"type": "object", "description": "The op's arguments by name", "optional": True},
            },
            "returns": {
                "call": {"type": "string", "description": "The id of the call in the audit log"},
                "result": {"type": "any", "description": "What the op answered"},
            },
        }
    }

    def __init__(
        self, root: str, bus: RequestReply, sink: OracleSink, approvals: Approvals, events: CallEvents
    ) -> None:
        self._root = root
        self._bus = bus
        self._sink = sink
        self._approvals = approvals
        self._events = events
        self._validators = ValidatorCache()
        self._executing: dict[str, CallerSession] = {}

    async def invoke(
        self, session: CallerSession, asked: JsonObject, options: InvokeOptions = InvokeOptions()
    ) -> InvokeAnswer:
        """One call of `session`: `asked` is `{"target", "op", "payload"}`, from wherever it came.

        Exactly one `tool.call` is durable before anything happens, and exactly one `tool.result` follows it. Raises
        `MatrixError` with the call's id in `data["call"]`; AUDIT_UNAVAILABLE where nothing could be recorded.
        """
        judged = self._judge(session, freeze(asked))
        started = await self._record_call(session, judged, options)
        call = started.frame.call
        try:
            with session.running():
                result = await self._carry_out(session, judged, started, options)
        except MatrixError as error:
            await self._record_error(started, judged.decision, error)
            raise MatrixError(error.code, error.message, **{**error.data, "call": call}) from None
        except BaseException as error:
            cancelled = isinstance(error, anyio.get_cancelled_exc_class())
            failure = MatrixError("MX_AGENT_CANCELLED" if cancelled else "MX_AGENT_ACTOR_ERROR")
            await self._record_error(started, judged.decision, failure)
            raise
        await self._sink.tool_result(started, "ok", result=result)
        self._events.ended(started, judged.decision, "ok", result)
        return InvokeAnswer(call, result)

    def may_use(self, call: str, target: str, op: str) -> bool:
        """Whether the caller of the running call `call` may use an op, asking included."""
        session = self._executing.get(call)
        return session is not None and session.delegate().decide(ToolInvoke(target, op)).verdict != "deny"

    async def tool_invoke(self, target: str, op: str, payload: JsonObject | None = None) -> JsonObject:
        """The op of the same name: the inner call runs under the session of the outer one."""
        session = self._executing[self.ctx.call]
        answer = await self.invoke(session, {"target": target, "op": op, "payload": payload})
        return {"call": answer.call, "result": answer.result}

    def _judge(self, session: CallerSession, invoke: FrozenInvoke) -> _Judged:
        """Decide and validate: pure, but for the count of the budget."""
        if invoke.name_error is not None:
            return _Judged(invoke, Decision("deny", "MALFORMED_NAME"), invoke.name_error)
        call = ToolInvoke(invoke.target, invoke.op)
        decision = session.delegate().decide(call)
        if decision.verdict == "deny":
            return _Judged(invoke, decision, refusal(call, decision, session.caller.role))
        if not session.budget.spend():
            return _Judged(invoke, *session.budget_refusal(decision))
        if invoke.payload_error is not None:
            return _Judged(invoke, decision, invoke.payload_error)
        try:
            op = self._bus.op(invoke.target, invoke.op)
            changed = session.pinned.refusal(invoke.target, op)
            if changed is not None:
                return _Judged(invoke, Decision("deny", "COMMAND_NOT_ALLOWED", policy=decision.policy), changed)
            validator = self._validators.of(invoke.target, op)
            return _Judged(invoke, decision, None, validator.arguments(invoke.payload()), validator)
        except MatrixError as error:
            return _Judged(invoke, decision, error)

    async def _carry_out(
        self, session: CallerSession, judged: _Judged, started: StartedCall, options: InvokeOptions
    ) -> JsonValue:
        if judged.refusal is not None:
            raise judged.refusal
        target, op = judged.invoke.target, judged.invoke.op
        if judged.decision.verdict == "ask":
            await self._approvals.settle(started, judged.decision, judged.payload)
        call = started.frame.call
        ctx = CallContext(session.caller, call, session.timeouts.of(op), options.progress)
        self._executing[call] = session
        try:
            result = await self._bus.execute(ctx, target, op, judged.payload)
        finally:
            del self._executing[call]
        assert judged.validator is not None
        judged.validator.result(result)
        return result

    async def _record_call(self, session: CallerSession, judged: _Judged, options: InvokeOptions) -> StartedCall:
        invoke, unfit = judged.invoke, judged.invoke.payload_error
        frame = CallFrame(
            call=new_call_id(),
            caller=session.caller,
            source="bus",
            target=invoke.target,
            op=invoke.op,
            tool=f"{self._root}/{invoke.target}/{invoke.op}",
            details=None if options.worker_call is None else {"workerCall": options.worker_call},
        )
        payload = None if unfit is not None else judged.payload or invoke.payload()
        started = await self._sink.tool_call(
            frame, payload, judged.decision, payload_error=None if unfit is None else unfit.message
        )
        self._events.judged(started, judged.decision, payload)
        return started

    async def _record_error(self, started: StartedCall, decision: Decision, error: MatrixError) -> None:
        outcome = outcome_of(error)
        await self._sink.tool_result(started, outcome, error=error)
        self._events.failed(started, decision, outcome, error)
