"""What one prompt shows while it runs, and when it is over: notifications of the program in, events and the end out.

A prompt is over when the main turn is and no sub-agent has one. Pure bookkeeping: asks nothing of the program, records
nothing. Above: `codex`.
"""

import re
from collections.abc import AsyncIterator, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import anyio

from bridge.contract.errors import MX_AGENT_ERRORS
from bridge.contract.json_types import JsonObject
from supervisor.workers.worker import TurnResult, WorkerEvent

_KNOWN_CODE: Final = re.compile(r"MX_[A-Z]+(?:_[A-Z]+)+")
_ATTEMPT: Final = re.compile(r"(\d+)/\d+")


class Turn:
    """One prompt on the thread `main`. Feed it with `take`; `over` is set once nothing of it runs."""

    def __init__(self, main: str) -> None:
        self.over = anyio.Event()
        self._main = main
        self._sender, self._receiver = anyio.create_memory_object_stream[WorkerEvent | None](inf)
        self._running: dict[str, str] = {}  # thread -> its running turn
        self._spawned: set[str] = set()  # sub-agents whose first turn has not begun
        self._agents: set[str] = set()
        self._text = ""
        self._ended: TurnResult | None = None

    @property
    def running(self) -> Mapping[str, str]:
        """Thread -> turn, of all that runs now."""
        return MappingProxyType(dict(self._running))

    @property
    def threads(self) -> frozenset[str]:
        """Every thread that this prompt has used."""
        return frozenset({self._main, *self._agents})

    def emit(self, event: WorkerEvent) -> None:
        """Show something of this prompt."""
        self._sender.send_nowait(event)

    async def live(self) -> AsyncIterator[WorkerEvent]:
        """What is shown, as it comes, until the prompt is over."""
        while (event := await self._receiver.receive()) is not None:
            yield event

    def rest(self) -> list[WorkerEvent]:
        """What was shown since then."""
        events: list[WorkerEvent] = []
        while self._receiver.statistics().current_buffer_used:
            if (event := self._receiver.receive_nowait()) is not None:
                events.append(event)
        return events

    def close(self) -> None:
        """Nobody looks any more."""
        self._sender.close()
        self._receiver.close()

    def result(self) -> TurnResult:
        """How it ended."""
        return self._ended or _failed("MX_AGENT_CANCELLED", "The prompt was interrupted.", self._text, self._main)

    def give_up(self, code: str, message: str) -> None:
        """End it here and now: the process is gone, or does not end what it was told to end."""
        self._ended = self._ended or _failed(code, message, self._text, self._main)
        self._running.clear()
        self._set_over()

    def take(self, method: str, params: JsonObject) -> None:
        """Take one notification of the program."""
        thread = params.get("threadId")
        if not isinstance(thread, str):
            return
        match method:
            case "turn/started":
                self._turn_started(thread, _object(params, "turn"))
            case "turn/completed":
                self._turn_completed(thread, _object(params, "turn"))
            case "item/started" | "item/completed":
                self._item(method, thread, _object(params, "item"))
            case "item/agentMessage/delta" if thread == self._main:
                self.emit(WorkerEvent("text", {"text": str(params.get("delta", ""))}))
            case "item/reasoning/summaryPartAdded" | "item/reasoning/textDelta" if thread == self._main:
                self.emit(WorkerEvent("thinking"))
            case "error" if params.get("willRetry"):
                self.emit(_retry(_object(params, "error")))
            case "warning":
                self.emit(WorkerEvent("notice", {"text": str(params.get("message", ""))}))
            case _:
                pass

    def _turn_started(self, thread: str, turn: JsonObject) -> None:
        self._running[thread] = str(turn.get("id", ""))
        self._spawned.discard(thread)
        if thread != self._main:
            self._note_agent(thread)

    def _turn_completed(self, thread: str, turn: JsonObject) -> None:
        self._running.pop(thread, None)
        if thread == self._main:
            self._ended = _result_of(turn, self._text, self._main)
        elif thread in self._agents:
            self.emit(WorkerEvent("agent.ended", {"agent": thread}))
        self._settle()

    def _item(self, method: str, thread: str, item: JsonObject) -> None:
        kind = item.get("type")
        if kind == "agentMessage" and method == "item/completed" and thread == self._main:
            self._text = str(item.get("text") or self._text)
        elif kind == "subAgentActivity" and item.get("kind") == "started":
            self._expect_agent(item.get("agentThreadId"))
        elif kind == "collabAgentToolCall" and item.get("tool") == "spawnAgent" and item.get("status") == "completed":
            receivers = item.get("receiverThreadIds")
            for receiver in receivers if isinstance(receivers, list) else []:
                self._expect_agent(receiver)

    def _expect_agent(self, thread: object) -> None:
        if isinstance(thread, str) and thread not in self._agents:
            self._spawned.add(thread)
            self._note_agent(thread)

    def _note_agent(self, thread: str) -> None:
        if thread not in self._agents:
            self._agents.add(thread)
            self.emit(WorkerEvent("agent.started", {"agent": thread}))

    def _settle(self) -> None:
        if self._ended is not None and not self._running and not self._spawned:
            self._set_over()

    def _set_over(self) -> None:
        if not self.over.is_set():
            self.over.set()
            self._sender.send_nowait(None)


def _result_of(turn: JsonObject, text: str, session: str) -> TurnResult:
    match turn.get("status"):
        case "completed":
            return TurnResult(ok=True, text=text, session=session)
        case "interrupted":
            return _failed("MX_AGENT_CANCELLED", "The prompt was interrupted.", text, session)
        case _:
            error = _object(turn, "error")
            message = str(error.get("message") or "The turn failed and the program does not say why.")
            return _failed(_code_of(message), message, text, session)


def _code_of(message: str) -> str:
    """A code of ours that the gateway put into its answer, else what the program's words say."""
    for code in _KNOWN_CODE.findall(message):
        if code in MX_AGENT_ERRORS:
            return str(code)
    return "MX_AGENT_INFER_TIMEOUT" if "idle timeout" in message else "MX_AGENT_INFERENCE_FAILED"


def _failed(code: str, message: str, text: str, session: str) -> TurnResult:
    return TurnResult(ok=False, text=text, error=code, message=message, session=session)


def _retry(error: JsonObject) -> WorkerEvent:
    shown = str(error.get("message", ""))
    attempt = _ATTEMPT.search(shown)
    reason = str(error.get("additionalDetails") or shown)
    return WorkerEvent("retry", {"reason": reason, "attempt": int(attempt[1]) if attempt else 1})


def _object(params: JsonObject, key: str) -> JsonObject:
    value = params.get(key)
    return value if isinstance(value, dict) else {}
