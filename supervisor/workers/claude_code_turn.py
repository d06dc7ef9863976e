"""One prompt of Claude Code: what of its messages is shown, and when nothing of it runs any more.

Pure: messages of the SDK go in, events and a state come out; no clock, no channel. A `ResultMessage` ends a turn of the
model, not the prompt: sub-agents and background commands work on and wake further turns, so the prompt is over when the
program says `idle`, lists no background task, and owes no turn for one that has ended. Above: `claude_code`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ToolUseBlock,
)

from supervisor.workers.claude_code_tools import TOOL_PREFIX
from supervisor.workers.worker import TurnResult, WorkerEvent

AGENT_TASK: Final = "local_agent"
RENAMED: Final = {"Task": "Agent"}
"""The first message calls this tool by its older name; the model and the request body know the newer one."""
KEY_REFUSED: Final = frozenset({401, 403})
"""Statuses of a provider that no second attempt mends; the program would try again all the same."""

LONGEST_LINE: Final = 16 * 1024
"""Characters of a line of text that wait for its end; more is shown at once, so that nothing endless is kept."""
MAX_OPEN_USES: Final = 256
LARGEST_USE: Final = 1024 * 1024
"""Characters of a tool call's arguments that are kept until its result; hooks report the end of larger ones too."""


@dataclass
class Turn:
    """What is known of the running prompt. `observe` each message, then ask `over`, `shells` and `outcome`."""

    interrupted: bool = False
    stopping: bool = False  # its background commands were told to end
    refused: str = ""  # why the provider will not answer, however often it is asked
    tasks: dict[str, str] = field(default_factory=dict)  # background tasks that run: id to type
    result: ResultMessage | None = None
    session: str | None = None
    uses: dict[str, ToolUseBlock] = field(default_factory=dict)  # tool calls without a result as yet
    follow_up_owed: bool = False
    _idle: bool = False
    _failure: str = ""
    _line: str = ""
    _said: str = ""

    @property
    def settled(self) -> bool:
        """The model has answered and no turn runs. Background tasks may."""
        return self._idle and self.result is not None

    @property
    def over(self) -> bool:
        """Nothing of the prompt runs, and nothing more is owed."""
        return self.settled and not self.tasks and (self.interrupted or bool(self.refused) or not self.follow_up_owed)

    @property
    def only_commands_left(self) -> bool:
        """Only background commands run, which may never end by themselves."""
        return self.settled and bool(self.tasks) and AGENT_TASK not in self.tasks.values()

    def observe(self, message: Message) -> Iterator[WorkerEvent]:
        """Take in one message; yield what it shows."""
        if isinstance(message, StreamEvent):
            if message.parent_tool_use_id is None:
                yield from self._stream(message.event)
        elif isinstance(message, AssistantMessage):
            self._assistant(message)
        elif isinstance(message, ResultMessage):
            self.result, self.session = message, message.session_id
            yield from self._flush()
        elif isinstance(message, SystemMessage):
            yield from self._system(message.subtype, message.data)

    def outcome(self) -> TurnResult:
        """How the prompt ended. Its text is what the model said last."""
        result = self.result
        text = (result.result if result else None) or self._said
        if self.refused:
            return TurnResult(False, text, "MX_AGENT_INFERENCE_FAILED", self.refused, self.session)
        if self.interrupted or result is None:
            return TurnResult(False, text, "MX_AGENT_CANCELLED", "The prompt was interrupted.", self.session)
        if not result.is_error:
            return TurnResult(True, text, session=self.session)
        message = "; ".join(result.errors or ()) or result.result or result.subtype
        provider = bool(self._failure) or result.api_error_status is not None
        code = "MX_AGENT_INFERENCE_FAILED" if provider else "MX_AGENT_WORKER_EXITED"
        return TurnResult(False, text, code, message, self.session)

    def _assistant(self, message: AssistantMessage) -> None:
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                self._keep_use(block)
        if message.parent_tool_use_id is not None:
            return
        self._failure = message.error or ""
        said = "".join(block.text for block in message.content if isinstance(block, TextBlock))
        self._said = said or self._said

    def _keep_use(self, block: ToolUseBlock) -> None:
        """Remember a call until its result; of a flood the last ones."""
        if len(json.dumps(block.input)) > LARGEST_USE:
            return
        self.uses[block.id] = block
        if len(self.uses) > MAX_OPEN_USES:
            del self.uses[next(iter(self.uses))]

    def _stream(self, event: dict[str, Any]) -> Iterator[WorkerEvent]:
        kind = event.get("type")
        if kind == "content_block_start" and event.get("content_block", {}).get("type") == "thinking":
            yield WorkerEvent("thinking")
        elif kind == "content_block_delta" and event.get("delta", {}).get("type") == "text_delta":
            yield from self._text(event["delta"]["text"])
        elif kind == "content_block_stop":
            yield from self._flush()

    def _text(self, delta: str) -> Iterator[WorkerEvent]:
        """Text is shown in whole lines, as soon as they are there; a line without end in pieces."""
        lines, newline, rest = (self._line + delta).rpartition("\n")
        self._line = rest
        if newline:
            yield WorkerEvent("text", {"text": lines + newline})
        if len(rest) > LONGEST_LINE:
            yield from self._flush()

    def _flush(self) -> Iterator[WorkerEvent]:
        if self._line:
            yield WorkerEvent("text", {"text": self._line})
        self._line = ""

    def _system(self, subtype: str, data: dict[str, Any]) -> Iterator[WorkerEvent]:
        if subtype == "init":
            self.session = data.get("session_id")
            yield _surface(data)
        elif subtype == "session_state_changed":
            self._idle = data.get("state") == "idle"
            self.follow_up_owed = self.follow_up_owed and not self._idle
        elif subtype == "api_retry":
            yield self._retry(data)
        elif subtype == "background_tasks_changed":
            yield from self._tasks_changed({task["task_id"]: task["task_type"] for task in data["tasks"]})

    def _retry(self, data: dict[str, Any]) -> WorkerEvent:
        status = data.get("error_status")
        reason = f"{data.get('error')} (HTTP {status})" if status else str(data.get("error"))
        if status in KEY_REFUSED:
            self.refused = (
                f"The model provider refused the key: {reason}. Check the provider key that the gateway holds."
            )
        return WorkerEvent("retry", {"reason": reason, "attempt": data.get("attempt")})

    def _tasks_changed(self, now: dict[str, str]) -> Iterator[WorkerEvent]:
        """The list is complete each time. A task that ended wakes the model for one more turn."""
        for task in now.keys() - self.tasks.keys():
            if now[task] == AGENT_TASK:
                yield WorkerEvent("agent.started", {"agent": task})
        for task in self.tasks.keys() - now.keys():
            self.follow_up_owed = self._idle
            if self.tasks[task] == AGENT_TASK:
                yield WorkerEvent("agent.ended", {"agent": task})
        self.tasks = now
        self.stopping = self.stopping and bool(now)


def _surface(data: dict[str, Any]) -> WorkerEvent:
    names = [RENAMED.get(name, name) for name in data.get("tools", [])]
    matrix = sorted(name for name in names if name.startswith(TOOL_PREFIX))
    native = sorted(name for name in names if not name.startswith(TOOL_PREFIX))
    return WorkerEvent("surface", {"matrix": [*matrix], "native": [*native]})
