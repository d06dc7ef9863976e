"""What one worker may do at its socket: every request comes here first.

Route, body, budget, then the provider; or the hook, then the supervisor; or a tunnel to a listed host. What is refused
is answered in the shape of the worker's own provider and reported. Below: the policies, `inference`, `egress`. Above:
`peer_socket`.
"""

from typing import Final

import anyio
import anyio.to_thread

from sandboxes.gateway import strict_json
from sandboxes.gateway.body_policy import judge_body
from sandboxes.gateway.egress import Egress
from sandboxes.gateway.http_wire import Answer, HttpRequest
from sandboxes.gateway.inference import JSON_HEADERS, Inference
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.meter import Meter
from sandboxes.gateway.model_request import read_request
from sandboxes.gateway.providers import ModelProvider, ProviderError, Question, collected
from sandboxes.gateway.refusal import Refusal, error_body
from sandboxes.gateway.request_head import BadRequestError
from sandboxes.gateway.request_policy import Route, route
from sandboxes.gateway.worker_opening import WorkerOpening
from sandboxes.gateway.worker_reports import WorkerReports

CONCURRENT: Final = 16
"""Requests of one worker that are worked on at a time; further ones wait. Sub-agents of both kinds stay below it."""
HOOKS_AT_A_TIME: Final = 16
"""Hooks of one worker that wait for their answer; further ones wait at the socket, so that anything in the container
may call it without filling what the supervisor reads for all workers."""
REFUSAL_PAUSE_S: Final = 0.02
"""Refusals of one worker come at most this fast, so that a worker that floods slows only itself."""
LARGE_BODY_BYTES: Final = 256 * 1024
"""From here on a body is parsed in a thread, so that the other workers' streams go on."""
MAX_HOOK_BYTES: Final = 1024 * 1024
MAX_SIDE_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Of answers that are no inference: token counts and lists of models."""


class WorkerGate:
    """The gate of one worker."""

    def __init__(self, opening: WorkerOpening, provider: ModelProvider, reports: WorkerReports) -> None:
        """Raises `EgressEntryError`."""
        self._kind = opening.kind
        self._idle_s = opening.infer_timeout_ms / 1000
        self._provider = provider
        self._reports = reports
        self.meter = Meter(opening.limits)
        self._working = anyio.CapacityLimiter(CONCURRENT)
        self._asking = anyio.CapacityLimiter(HOOKS_AT_A_TIME)
        self._egress = Egress(opening.egress, reports)
        self._refusing = anyio.Lock()

    async def handle(self, request: HttpRequest, answer: Answer) -> None:
        """Answer one request."""
        if request.method == "CONNECT" and self._egress.offered:
            await self._connect(request, answer)
            return
        way = route(self._kind, request.method, request.target, request.headers)
        if isinstance(way, Refusal):
            await self._refuse(request.method, request.target, way, answer)
        elif not self._reports.possible:
            await self._refuse(request.method, request.target, _UNRECORDED, answer)
        elif way.name == "hook":
            async with self._asking:
                await self._hook(request, answer)
        else:
            async with self._working:
                await self._to_provider(way, request, answer)

    async def _connect(self, request: HttpRequest, answer: Answer) -> None:
        """Carry a tunnel; nothing is opened that could not be reported."""
        refusal = await self._egress.serve(request, answer) if self._reports.possible else _UNRECORDED
        if refusal is not None:
            await self._refuse(request.method, request.target, refusal, answer, (("connection", "close"),))

    async def reject(self, error: BadRequestError, answer: Answer) -> None:
        """Answer a request that could not be read, and let its connection be closed."""
        refusal = Refusal(error.status, error.why, "MX_AGENT_INVALID_ARGUMENTS")
        await self._refuse("?", "?", refusal, answer, (("connection", "close"),))

    async def _to_provider(self, way: Route, request: HttpRequest, answer: Answer) -> None:
        if request.method == "GET":
            if request.body:
                await self._refuse(request.method, request.target, Refusal(400, "A GET has no body."), answer)
                return
            await self._aside(Question(way, request, None), answer)
            return
        body = await self._body(request)
        refusal = body if isinstance(body, Refusal) else judge_body(self._kind, body)
        if isinstance(body, Refusal) or refusal is not None:
            await self._refuse(request.method, request.target, refusal or _UNRECORDED, answer)
        elif way.name == "count_tokens":
            await self._aside(Question(way, request, None), answer)
        else:
            await self._infer(way, request, body, answer)

    async def _infer(self, way: Route, request: HttpRequest, body: JsonObject, answer: Answer) -> None:
        model = read_request(self._kind, request.headers, body)
        self._reports.surface(model)
        spent = self.meter.admit()
        if spent is not None:
            await self._refuse(request.method, request.target, spent, answer)
            return
        inference = Inference(self._kind, model, self._provider, self._reports, self.meter, self._idle_s)
        await inference.run(Question(way, request, model), answer)

    async def _aside(self, question: Question, answer: Answer) -> None:
        """Pass on what is no inference."""
        try:
            async with self._provider.ask(question) as given:
                body = given.redact(await collected(given.body, MAX_SIDE_ANSWER_BYTES, self._idle_s))
                await answer.whole(given.status, body, given.headers)
        except ProviderError as error:
            body = error_body(self._kind, error.status, f"{error.code}: {error.message}", error.code)
            await answer.whole(error.status, body, JSON_HEADERS)

    async def _hook(self, request: HttpRequest, answer: Answer) -> None:
        """Bring a hook to the supervisor. Whatever goes wrong is not status 200, which the hook takes as no."""
        body = await self._body(request, MAX_HOOK_BYTES)
        if isinstance(body, Refusal):
            await self._refuse(request.method, request.target, body, answer)
            return
        reply = await self._reports.hook(body)
        if reply is None:
            late = Refusal(
                504, "The hook was not answered in time, so the call is refused.", "MX_AGENT_APPROVAL_EXPIRED"
            )
            await self._refuse(request.method, request.target, late, answer)
            return
        await answer.whole(200, strict_json.dumps(reply), JSON_HEADERS)

    async def _body(self, request: HttpRequest, limit: int | None = None) -> JsonObject | Refusal:
        if limit is not None and len(request.body) > limit:
            return Refusal(413, f"The body is over {limit} bytes.", "MX_AGENT_TOO_LARGE")
        try:
            if len(request.body) < LARGE_BODY_BYTES:
                return strict_json.load_object(request.body)
            return await anyio.to_thread.run_sync(strict_json.load_object, request.body)
        except strict_json.JsonRefusedError as error:
            return Refusal(400, str(error), "MX_AGENT_INVALID_ARGUMENTS")

    async def _refuse(
        self,
        method: str,
        target: str,
        refusal: Refusal,
        answer: Answer,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        async with self._refusing:
            if self._reports.possible:
                self._reports.refused(method, target, refusal.status, f"{refusal.code}: {refusal.why}")
            await anyio.sleep(REFUSAL_PAUSE_S)
        body = error_body(self._kind, refusal.status, f"{refusal.code}: {refusal.why}", refusal.code)
        await answer.whole(refusal.status, body, (*JSON_HEADERS, *headers))


_UNRECORDED: Final = Refusal(
    503, "The supervisor does not take reports at the moment, so nothing is let through. Ask again.", "MX_AGENT_LIMIT"
)
