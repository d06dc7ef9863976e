"""One request of a worker to its model, from the judged body to the last byte of the answer.

Ask the provider; pass the answer on with its calls witnessed; count; report, however it ends. Below: `providers`,
`answer_judge`. Above: `worker_gate`. It does not know whether a script answers.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import anyio

from sandboxes.gateway import strict_json
from sandboxes.gateway.answer_judge import AnswerIdleError, pass_stream, pass_whole
from sandboxes.gateway.anthropic_answer import AnthropicAnswer
from sandboxes.gateway.http_wire import Answer
from sandboxes.gateway.json_types import as_object, as_text
from sandboxes.gateway.meter import Meter
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.openai_answer import OpenAiAnswer
from sandboxes.gateway.provider_answer import ProviderAnswer
from sandboxes.gateway.providers import ModelProvider, ProviderError, Question, collected
from sandboxes.gateway.refusal import WorkerKind, error_body
from sandboxes.gateway.script.script_model import ScriptError
from sandboxes.gateway.sse import EventTooLargeError
from sandboxes.gateway.tool_call import AnswerReader, ToolCall, Verdict
from sandboxes.gateway.worker_opening import Failure
from sandboxes.gateway.worker_reports import WorkerReports

WHOLE_S: Final = 1800.0
"""The longest that one answer may take, dribbled or not."""
MAX_ERROR_BYTES: Final = 256 * 1024
MAX_WHOLE_BYTES: Final = 32 * 1024 * 1024
CLIENT_LEFT: Final = 499
"""The status reported when the worker left before its answer was complete."""
JSON_HEADERS: Final = (("content-type", "application/json"),)
_SHOWN: Final = 500


@dataclass
class _Ending:
    """How the request ended, as far as is known. Until something else is known the worker has left."""

    status: int = CLIENT_LEFT
    error: Failure | None = field(
        default_factory=lambda: Failure(
            code="MX_AGENT_CANCELLED", message="The worker left before the answer was complete."
        )
    )


class Inference:
    """One request; `run` once."""

    def __init__(
        self,
        kind: WorkerKind,
        model: ModelRequest,
        provider: ModelProvider,
        reports: WorkerReports,
        meter: Meter,
        idle_s: float,
    ) -> None:
        self._kind: WorkerKind = kind
        self._model = model
        self._provider = provider
        self._reports = reports
        self._meter = meter
        self._idle_s = idle_s
        self._reader: AnswerReader = AnthropicAnswer() if kind == "claude" else OpenAiAnswer()
        self._ending = _Ending()

    async def run(self, question: Question, answer: Answer) -> None:
        """Answer the worker. Reports exactly one `inference`, also when this is cancelled."""
        started = time.monotonic()
        try:
            with anyio.fail_after(WHOLE_S):
                await self._ask(question, answer)
        except TimeoutError:
            await self._fail(answer, 504, "MX_AGENT_INFER_TIMEOUT", f"The answer took longer than {WHOLE_S:g} s.")
        finally:
            usage = self._reader.facts.usage
            if usage.input or usage.output or self._ending.status == 200:
                self._meter.count(usage)
            duration_ms = round((time.monotonic() - started) * 1000)
            self._reports.inference(self._model, self._ending.status, usage, duration_ms, self._ending.error)

    async def _ask(self, question: Question, answer: Answer) -> None:
        try:
            async with self._provider.ask(question) as given:
                await self._pass_on(given, answer)
        except ScriptError as error:
            self._reports.script_failed(Failure(code=error.code, message=error.message))
            await self._fail(answer, 400, error.code, error.message)
        except ProviderError as error:
            await self._fail(answer, error.status, error.code, error.message)
        except AnswerIdleError:
            silent = f"The provider was silent for {self._idle_s:g} s in the middle of its answer."
            await self._fail(answer, 504, "MX_AGENT_INFER_TIMEOUT", silent)
        except EventTooLargeError as error:
            await self._fail(answer, 502, "MX_AGENT_INFERENCE_FAILED", str(error))

    async def _pass_on(self, given: ProviderAnswer, answer: Answer) -> None:
        if given.status >= 400:
            await self._pass_error(given, answer)
        elif given.is_stream:
            await answer.start(given.status, given.headers)
            await pass_stream(given.body, self._reader, self._on_call, answer.send, given.redact, self._idle_s)
            await answer.finish()
            self._ended(given.status)
        else:
            await self._pass_whole(given, answer)

    async def _pass_error(self, given: ProviderAnswer, answer: Answer) -> None:
        """The provider's own error, so that the worker's own retry works; without the key if it holds it."""
        body = given.redact(await collected(given.body, MAX_ERROR_BYTES, self._idle_s))
        self._ending = _Ending(given.status, Failure(code="MX_AGENT_INFERENCE_FAILED", message=_message(body)))
        await answer.whole(given.status, body, given.headers)

    async def _pass_whole(self, given: ProviderAnswer, answer: Answer) -> None:
        body = given.redact(await collected(given.body, MAX_WHOLE_BYTES, self._idle_s))
        try:
            value = strict_json.load_object(body)
        except strict_json.JsonRefusedError as error:
            raise ProviderError(
                502, "MX_AGENT_INFERENCE_FAILED", f"The provider's answer is unreadable: {error}"
            ) from None
        mended = await pass_whole(value, self._reader, self._on_call)
        self._reader.facts.finished = True
        body = body if mended is None else strict_json.dumps(mended)
        self._ended(given.status)
        await answer.whole(given.status, body, given.headers)

    async def _on_call(self, call: ToolCall) -> Verdict:
        return await self._reports.call(call, self._model.agent)

    def _ended(self, status: int) -> None:
        facts = self._reader.facts
        message = facts.error or (None if facts.finished else "The answer ended before it was complete.")
        error = Failure(code="MX_AGENT_INFERENCE_FAILED", message=message[:_SHOWN]) if message else None
        self._ending = _Ending(status, error)

    async def _fail(self, answer: Answer, status: int, code: str, message: str) -> None:
        """Tell worker and supervisor that there is no answer, or no rest of one."""
        self._ending = _Ending(status, Failure(code=code, message=message))
        if not answer.started:
            await answer.whole(status, error_body(self._kind, status, f"{code}: {message}", code), JSON_HEADERS)
            return
        await answer.send(self._reader.failure(f"{code}: {message}", status))
        await answer.finish()


def _message(body: bytes) -> str:
    """The sentence in a provider's error body."""
    try:
        value = as_object(strict_json.loads(body))
    except strict_json.JsonRefusedError:
        return body[:_SHOWN].decode("utf-8", "replace")
    return as_text(as_object(value.get("error")).get("message"))[:_SHOWN] or "The provider gave no reason."
