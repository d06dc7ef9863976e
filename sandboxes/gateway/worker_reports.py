"""What is reported about one worker: its events, in the words of docs/wires.md, and the questions that wait.

Below: `event_feed`. Above: `inference` and `worker_gate`. A question without an answer in time is a refusal.
"""

from typing import Final

from sandboxes.gateway.egress_list import Destination
from sandboxes.gateway.event_feed import EventFeed
from sandboxes.gateway.json_types import JsonObject, as_text
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.tool_call import ToolCall, Usage, Verdict
from sandboxes.gateway.worker_opening import Failure, WorkerOpening

ANSWER_S: Final = 280.0
"""How long a verdict may take. Below the 300 s after which Codex gives up on a silent stream."""


class WorkerReports:
    """The reports of one worker."""

    def __init__(self, opening: WorkerOpening, feed: EventFeed) -> None:
        self._worker = opening.worker
        self._expected = None if opening.expected_tools is None else frozenset(opening.expected_tools)
        self._judged = frozenset(opening.judge_tools)
        self._feed = feed
        self._seen: frozenset[str] | None = None

    @property
    def possible(self) -> bool:
        """Whether further events can be kept; if not, nothing may happen that would need one."""
        return not self._feed.full

    def surface(self, request: ModelRequest) -> None:
        """Compare the main agent's tools with the expected ones; report the first time and when they change."""
        if request.auxiliary or request.agent is not None or request.tool_names == self._seen:
            return
        self._seen = request.tool_names
        expected = self._seen if self._expected is None else self._expected
        self._emit(
            "surface",
            {
                "expected": [*sorted(expected)],
                "seen": [*sorted(self._seen)],
                "missing": [*sorted(expected - self._seen)],
                "unexpected": [*sorted(self._seen - expected)],
            },
        )

    async def call(self, call: ToolCall, agent: str | None) -> Verdict:
        """Report a call of the model, and have it judged if its tool is one of those that are judged here."""
        fields: JsonObject = {"id": call.id, "tool": call.tool, "arguments": call.arguments, "agent": agent}
        self._emit("witness", fields)
        if call.tool not in self._judged:
            return Verdict(True)
        answer = await self._feed.ask(self._worker, "judge", fields, ANSWER_S)
        if answer is None:
            return Verdict(False, f"The call of {call.tool!r} was refused: nobody judged it within {ANSWER_S:g} s.")
        reason = as_text(answer.get("message")) or f"The call of {call.tool!r} was refused."
        return Verdict(answer.get("allow") is True, reason)

    async def hook(self, body: JsonObject) -> JsonObject | None:
        """Bring a hook of the worker to the supervisor; None if it was not answered in time."""
        return await self._feed.ask(self._worker, "hook", {"body": body}, ANSWER_S)

    def inference(
        self, request: ModelRequest, status: int, usage: Usage, duration_ms: int, error: Failure | None
    ) -> None:
        """Report one request to the model, however it ended."""
        fields: JsonObject = {
            "model": request.model,
            "status": status,
            "tokens": {"input": usage.input, "output": usage.output},
            "durationMs": duration_ms,
            "auxiliary": request.auxiliary,
        }
        if error is not None:
            fields["error"] = {"code": error.code, "message": error.message}
        self._emit("inference", fields)

    def refused(self, method: str, path: str, status: int, why: str) -> None:
        """Report a request that was not let through."""
        self._emit("refusedRequest", {"method": method[:32], "path": path[:512], "status": status, "why": why})

    def egress(
        self, destination: Destination, bytes_in: int, bytes_out: int, duration_ms: int, error: Failure | None
    ) -> None:
        """Report one tunnel, opened or not, once it is over. `bytes_in` reached the worker, `bytes_out` the host."""
        fields: JsonObject = {
            "host": destination.host,
            "port": destination.port,
            "bytesIn": bytes_in,
            "bytesOut": bytes_out,
            "durationMs": duration_ms,
        }
        if error is not None:
            fields["error"] = {"code": error.code, "message": error.message}
        self._emit("egress", fields)

    def script_failed(self, error: Failure) -> None:
        """Report that the run has to end."""
        self._emit("script", {"error": {"code": error.code, "message": error.message}})

    def waiting_for_key(self) -> None:
        """Report that a request waits until somebody supplies the key."""
        self._emit("waitingForKey", {})

    def _emit(self, kind: str, fields: JsonObject) -> None:
        self._feed.emit(self._worker, kind, fields)
