"""What a run does with the gateway: opens its worker's socket, takes its events, and is told what was used.

Each event of the gateway about this worker is taken here: inferences become records, questions go to the driver, a
wrong tool surface or a failed script ends the run. Reports are taken one after the other, as they came; a question
waits for nothing but its own answer. Above: `run`, `supervisor`. Below: `gateway_link`.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import anyio

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from sandboxes.gateway.client import GatewayError
from sandboxes.gateway.worker_opening import Limits, WorkerOpened, WorkerOpening
from supervisor.gate import judge_surface
from supervisor.gateway_link import GatewayLink
from supervisor.home import WorkerFolder
from supervisor.run_totals import Ending, RunTotals
from supervisor.worker_spec import RunRequest
from supervisor.workers.worker import WorkerDriver

_log = logging.getLogger(__name__)

LAST_EVENTS_TIMEOUT_S: Final = 15.0
"""For the reports that are on their way when the socket is closed: each is a record, which takes milliseconds."""

_Handle = Callable[[JsonObject], Awaitable[None]]

CODE_MODE_TOOLS: Final = frozenset({"exec", "wait"})
"""Codex's scripts in code mode: what they call is asked about call by call."""

GONE: Final[JsonObject] = {"allow": False, "message": "The worker is not connected; nothing was executed."}


@dataclass(frozen=True)
class RunCallbacks:
    """How the gateway's side of a run reaches the rest of it."""

    append_record: Callable[[str, JsonObject], Awaitable[None]]
    show: Callable[[str, JsonObject], None]
    end: Callable[[Ending], None]


class RunGateway:
    """The gateway side of one run."""

    def __init__(
        self, request: RunRequest, worker_id: str, folder: WorkerFolder, link: GatewayLink, driver: WorkerDriver,
        totals: RunTotals, callbacks: RunCallbacks,
    ) -> None:  # fmt: skip
        self._request = request
        self._worker_id = worker_id
        self._folder = folder
        self._link = link
        self._driver = driver
        self._totals = totals
        self._callbacks = callbacks
        self._expected: frozenset[str] | None = None
        self._script_error: JsonObject | None = None
        self._open = False
        self._in_order = anyio.Lock()
        self._all_taken = anyio.Event()
        self.opened = WorkerOpened()

    async def open(self, grants: JsonObject, uid: int) -> None:
        """Open the worker's socket. Raises `MatrixError`: a bad script with its line, no key, no gateway."""
        budget = cast("JsonObject", grants.get("budget") or {})
        tools = cast("list[JsonObject]", grants["tools"])
        opening = WorkerOpening(
            worker=self._worker_id,
            kind=self._request.kind,
            socket=self._folder.socket,
            uid=uid,
            key_handle=self._request.key_handle,
            script=self._request.script,
            script_name=self._request.script_name or "script",
            judge_tools=tuple(sorted(self._driver.judged_at_gateway)),
            limits=Limits(tokens=cast("int | None", budget.get("tokens"))),
            egress=self._request.egress,
            infer_timeout_ms=self._request.timeouts.infer_ms,
            tool_names={str(tool["canonical"]): str(tool["name"]) for tool in tools},
        )
        try:
            self.opened = await self._link.client.open_worker(opening)
        except GatewayError as fault:
            where = f"{self._request.script_name}:{fault.line}: " if fault.line else ""
            raise MatrixError(fault.code, f"{where}{fault.message}") from fault
        self._open = True

    def expect(self, surface: frozenset[str]) -> None:
        """The tools that the worker's requests may name; empty where they cannot be foretold."""
        self._expected = surface or None

    async def take(self, event: JsonObject) -> None:
        """Handle one event of the gateway about this worker. Never raises: an unanswered question refuses itself.

        May be called side by side: what is no question is handled in the order of the calls.
        """
        kind = str(event.get("type"))
        try:
            if (answer := self._questions().get(kind)) is not None:
                await answer(event)
            elif (handle := self._reports().get(kind)) is not None:
                async with self._in_order:
                    await handle(event)
        except Exception as fault:  # noqa: BLE001 - one event must not end the others
            _log.error("an event of the gateway was not handled: %s", type(fault).__name__, exc_info=fault)

    async def close(self) -> JsonObject | None:
        """Close the socket and wait until its last event was taken; the script's error, if it has one. Idempotent."""
        if self._open:
            self._open = False
            with anyio.move_on_after(LAST_EVENTS_TIMEOUT_S) as waiting:
                await self._close_socket()
            if waiting.cancelled_caught:
                _log.error("the last events of worker %s did not come in time", self._worker_id)
        return self._script_error

    async def _close_socket(self) -> None:
        try:
            figures = await self._link.client.close_worker(self._worker_id)
        except (GatewayError, MatrixError):
            async with self._in_order:  # the gateway is gone: what came of it is taken
                return
        error = figures.script.error
        if self._script_error is None and error is not None:
            self._script_error = {"code": error.code, "message": error.message}
        await self._all_taken.wait()

    def unmediated(self, decided: set[str]) -> list[JsonValue]:
        """Calls in the model's answers that the bridge was not asked about, neither as native nor as its own."""
        asked = decided | self._totals.judged
        return [
            {"id": call, "tool": tool}
            for call, tool in self._totals.witnessed.items()
            if call not in asked and tool not in CODE_MODE_TOOLS
        ]

    def _questions(self) -> Mapping[str, _Handle]:
        return {"judge": self._answer_judge, "hook": self._answer_hook}

    def _reports(self) -> Mapping[str, _Handle]:
        return {
            "inference": self._take_inference,
            "surface": self._take_surface,
            "witness": self._take_witness,
            "script": self._take_script_error,
            "waitingForKey": self._show,
            "egress": self._show,
            "refusedRequest": self._take_refused_request,
            "closed": self._take_closed,
        }

    async def _take_closed(self, _: JsonObject) -> None:
        self._all_taken.set()

    async def _show(self, event: JsonObject) -> None:
        self._callbacks.show(str(event["type"]), {k: v for k, v in event.items() if k not in ("type", "worker", "at")})

    async def _take_refused_request(self, event: JsonObject) -> None:
        await self._show(event)
        if str(event.get("why", "")).startswith("MX_AGENT_BUDGET_SPENT"):
            text = "The role's budget of tokens is spent; the work so far is kept."
            self._callbacks.end(Ending("failed", "MX_AGENT_BUDGET_SPENT", text))

    async def _take_inference(self, event: JsonObject) -> None:
        names = ("model", "status", "tokens", "durationMs", "auxiliary", "error")
        fields: JsonObject = {name: event[name] for name in names if name in event}
        self._totals.count_inference(fields)
        await self._callbacks.append_record("inference", fields)
        self._callbacks.show("inference", fields)

    async def _take_surface(self, event: JsonObject) -> None:
        """The gate: the tools in the request are those that were projected, no more; the evidence is a record."""
        seen = frozenset(str(name) for name in cast("list[str]", event.get("seen") or []))
        verdict = judge_surface(self._request.kind, self._expected, seen)
        if verdict.refusal is not None:  # ended first: it waits for no record
            self._callbacks.end(Ending("refused", "MX_AGENT_GATE_REFUSED", verdict.refusal))
        await self._callbacks.append_record("gate", verdict.to_record())

    async def _take_witness(self, event: JsonObject) -> None:
        self._totals.witnessed[str(event["id"])] = str(event["tool"])

    async def _answer_judge(self, event: JsonObject) -> None:
        agent = event.get("agent")
        arguments = _object(event.get("arguments"))
        call, tool = str(event["id"]), str(event["tool"])
        answer = await self._driver.answer_witnessed(
            self._worker_id, call, tool, arguments, agent if isinstance(agent, str) else None
        )
        await self._link.client.answer(str(event["ask"]), answer)

    async def _answer_hook(self, event: JsonObject) -> None:
        body = event.get("body")
        answer = await self._driver.answer_hook(self._worker_id, body) if isinstance(body, dict) else GONE
        await self._link.client.answer(str(event["ask"]), answer)

    async def _take_script_error(self, event: JsonObject) -> None:
        error = cast("JsonObject", event["error"])
        self._script_error = error
        self._callbacks.end(Ending("failed", str(error.get("code")), str(error.get("message"))))


def _object(arguments: JsonValue) -> JsonObject:
    """A call's arguments as the model wrote them: JSON text of an object, or free text."""
    try:
        parsed = json.loads(str(arguments))
    except ValueError:
        return {"input": arguments}
    return parsed if isinstance(parsed, dict) else {"input": parsed}
