"""What the gateway reports to the supervisor, and the questions it waits for an answer to.

Above: the worker side emits and asks, `control` streams the events and brings the answers. Nothing is dropped silently:
events wait while nobody listens, and a listener that does not read is cut off, never skipped.
"""

import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sandboxes.gateway.json_types import JsonObject

BACKLOG: Final = 20_000
"""Events kept for a listener that is away or slow. A worker that fills it is refused further requests (`full`)."""


class _Question:
    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.answered = anyio.Event()
        self.answer: JsonObject | None = None


class EventFeed:
    """One feed for all workers."""

    def __init__(self) -> None:
        self._backlog: deque[JsonObject] = deque()
        self._listeners: set[MemoryObjectSendStream[JsonObject]] = set()
        self._questions: dict[str, _Question] = {}

    @property
    def full(self) -> bool:
        """Whether so much waits unread that nothing further can be reported: then nothing further may happen."""
        return len(self._backlog) >= BACKLOG

    def emit(self, worker: str, kind: str, fields: JsonObject) -> None:
        """Report one event of `worker`."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event: JsonObject = {"worker": worker, "type": kind, "at": at, **fields}
        reached = [self._offer(listener, event) for listener in tuple(self._listeners)]
        if not any(reached):
            self._backlog.append(event)

    async def ask(self, worker: str, kind: str, fields: JsonObject, timeout_s: float) -> JsonObject | None:
        """Report an event that asks, and wait for its answer; None if none came in time."""
        ask = secrets.token_hex(12)
        question = self._questions[ask] = _Question(worker)
        try:
            self.emit(worker, kind, {"ask": ask, **fields})
            with anyio.move_on_after(timeout_s):
                await question.answered.wait()
            return question.answer
        finally:
            del self._questions[ask]

    def answer(self, ask: str, answer: JsonObject) -> bool:
        """Bring the answer to a question; False if nobody waits for it (any more)."""
        question = self._questions.get(ask)
        if question is None or question.answered.is_set():
            return False
        question.answer = answer
        question.answered.set()
        return True

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[MemoryObjectReceiveStream[JsonObject], None]:
        """A stream of the events from now on, those first that nobody has heard."""
        send, receive = anyio.create_memory_object_stream[JsonObject](max_buffer_size=math.inf)
        while self._backlog:
            send.send_nowait(self._backlog.popleft())
        self._listeners.add(send)
        try:
            yield receive
        finally:
            self._listeners.discard(send)
            self._keep_unheard(receive)
            send.close()
            receive.close()

    def _keep_unheard(self, receive: MemoryObjectReceiveStream[JsonObject]) -> None:
        while not self._listeners:
            try:
                self._backlog.append(receive.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream):
                return

    def _offer(self, listener: MemoryObjectSendStream[JsonObject], event: JsonObject) -> bool:
        if listener.statistics().current_buffer_used >= BACKLOG:
            self._listeners.discard(listener)
            listener.close()
            return False
        try:
            listener.send_nowait(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._listeners.discard(listener)
            return False
        return True
