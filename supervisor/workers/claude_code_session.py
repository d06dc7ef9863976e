"""A connected Claude Code: runs one prompt after the other and shows what happens.

Owns the clock of a prompt, while `claude_code_turn` owns its meaning. One task takes in every message at once, so that
the control channel never waits for whoever reads the events. Above: `claude_code`, and the supervisor through
`ConnectedWorker`; below: the SDK client.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from math import inf
from typing import Final, Literal

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from claude_agent_sdk import ClaudeSDKClient, ClaudeSDKError, Message, ToolResultBlock, UserMessage

from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import Outcome
from supervisor.workers.claude_code_mediation import ClaudeMediation
from supervisor.workers.claude_code_turn import Turn
from supervisor.workers.worker import TurnResult, WorkerEvent

INTERRUPT_TIMEOUT_S: Final = 5.0
"""The program answers in milliseconds; past this the sandbox is what ends it."""
FOLLOW_UP_GRACE_S: Final = 3.0
"""How long a turn may take to begin that the end of a background task has announced; it begins at once."""
BACKGROUND_WAIT_S: Final = 120.0
"""Background commands that run on after the last answer get this long, then they are stopped: a server never ends."""
QUEUED_EVENTS: Final = 1024
_EXITED: Final = "Claude Code ended before its work did. Its standard error, shown by `mxs logs`, says why."

logger = logging.getLogger(__name__)
_Item = WorkerEvent | None  # None: look at the turn again
_Wait = Literal["work", "interrupt", "commands", "stopping", "followUp"]


class ClaudeSession:
    """`ConnectedWorker` of Claude Code."""

    def __init__(self, client: ClaudeSDKClient, gate: ClaudeMediation, background_wait_s: float) -> None:
        self._client = client
        self._gate = gate
        self._wait_s: dict[_Wait, float] = {
            "work": inf,
            "interrupt": INTERRUPT_TIMEOUT_S,
            "commands": background_wait_s,
            "stopping": INTERRUPT_TIMEOUT_S,
            "followUp": FOLLOW_UP_GRACE_S,
        }
        self._turn: Turn | None = None
        self._events: MemoryObjectSendStream[_Item] | None = None
        self._exited = False
        gate.emit = self._show

    async def receive(self) -> None:
        """Take in every message until the worker's output ends or is no longer understood."""
        try:
            async for message in self._client.receive_messages():
                await self._take_in(message)
        except (
            ClaudeSDKError,
            LookupError,
            TypeError,
            AttributeError,
        ):  # whatever a worker can send that is no message
            logger.warning("Claude Code's channel broke", exc_info=True)
        finally:
            self._exited = True
            self._show(None)

    async def prompt(self, text: str) -> AsyncIterator[WorkerEvent | TurnResult]:
        """Run one prompt; the last item is its `TurnResult`, once nothing of it runs any more."""
        if self._turn is not None:
            raise MatrixError("MX_AGENT_LIMIT", "This worker is at work on a prompt. Wait for its end or interrupt it.")
        turn = self._turn = Turn()
        self._events, events = anyio.create_memory_object_stream[_Item](QUEUED_EVENTS)
        try:
            with self._events, events:
                await self._send(text)
                async for item in self._until_over(turn, events):
                    yield item
                await self._gate.end_open_calls("cancelled" if turn.interrupted else "unknown")
                for item in _drained(events):
                    yield item
                yield self._result(turn)
        finally:
            self._turn = self._events = None

    async def interrupt(self) -> None:
        """Stop the running prompt, its sub-agents and its commands. Bounded; without a prompt nothing happens."""
        if self._turn is not None:
            self._turn.interrupted = True
            await self._stop(self._turn)
            self._show(None)

    async def _send(self, text: str) -> None:
        try:
            await self._client.query(text)
        except ClaudeSDKError:
            self._exited = True

    async def _until_over(self, turn: Turn, events: MemoryObjectReceiveStream[_Item]) -> AsyncIterator[WorkerEvent]:
        wait: _Wait = "work"
        deadline = inf
        while events.statistics().current_buffer_used or not (turn.over or self._exited):
            if (now := _wait_of(turn)) != wait:
                wait, deadline = now, anyio.current_time() + self._wait_s[now]
                if turn.refused:
                    await self._stop(turn)
            item = None
            with anyio.CancelScope(deadline=deadline) as scope:
                item = await events.receive()
            if item is not None:
                yield item
            if scope.cancelled_caught and wait != "commands":
                return
            if scope.cancelled_caught:
                yield WorkerEvent("notice", {"text": f"Stopping {len(turn.tasks)} background command(s) that run on."})
                turn.stopping = True
                await self._stop(turn)

    async def _stop(self, turn: Turn) -> None:
        """Ask for the end of the turn and of each background task. What does not end by that, the sandbox ends."""
        with anyio.move_on_after(INTERRUPT_TIMEOUT_S):
            try:
                if not turn.settled:
                    await self._client.interrupt()
                for task in list(turn.tasks):
                    await self._client.stop_task(task)
            except Exception:  # the SDK raises bare ones; a task that has just ended is one reason
                logger.info("Claude Code did not stop all it was asked to", exc_info=True)

    async def _take_in(self, message: Message) -> None:
        turn = self._turn
        if turn is None:
            return
        for event in turn.observe(message):
            self._show(event)
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            for block in message.content:
                if isinstance(block, ToolResultBlock) and (use := turn.uses.pop(block.tool_use_id, None)):
                    outcome: Outcome = "cancelled" if turn.interrupted else "failed" if block.is_error else "ok"
                    await self._gate.settle(use, block, outcome)
        self._show(None)

    def _show(self, item: _Item) -> None:
        """Queue for whoever reads the prompt. A reader that lags far behind misses events, never a call's record."""
        if self._events is not None:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._events.send_nowait(item)

    def _result(self, turn: Turn) -> TurnResult:
        result = turn.outcome()
        if turn.result is None and self._exited and not turn.refused:
            return TurnResult(False, result.text, "MX_AGENT_WORKER_EXITED", _EXITED, result.session)
        return result


def _wait_of(turn: Turn) -> _Wait:
    """What is waited for, which settles how long."""
    if turn.interrupted or turn.refused:
        return "interrupt"
    if turn.only_commands_left:
        return "stopping" if turn.stopping else "commands"
    return "followUp" if turn.settled and not turn.tasks else "work"


def _drained(events: MemoryObjectReceiveStream[_Item]) -> Iterator[WorkerEvent]:
    with suppress(anyio.WouldBlock):
        while True:
            item = events.receive_nowait()
            if item is not None:
                yield item
