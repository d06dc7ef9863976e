"""Passes a model's answer on, and lets each tool call in it through only after it was witnessed, or judged.

Below: an `AnswerReader` of one protocol. Above: `inference`. Nothing of a call reaches the worker before `on_call` has
returned. What it refuses to know: which calls are judged, and by whom.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import anyio

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.sse import SseEvent, SseSplitter
from sandboxes.gateway.tool_call import AnswerReader, ToolCall, Verdict

KEEP_ALIVE_S: Final = 10.0
"""How often a worker hears something while a verdict is awaited: well below any client's patience with a stream."""

OnCall = Callable[[ToolCall], Awaitable[Verdict]]
Send = Callable[[bytes], Awaitable[None]]
Redact = Callable[[bytes], bytes]


class AnswerIdleError(Exception):
    """No complete event came within the time limit."""


async def pass_stream(
    source: AsyncIterator[bytes], reader: AnswerReader, on_call: OnCall, send: Send, redact: Redact, idle_s: float
) -> None:
    """Send the events of `source` on, calls held for their verdicts. Raises `AnswerIdleError`, `EventTooLargeError`.

    A rest that no blank line ends is dropped: no client acts on half an event.
    """
    splitter = SseSplitter()
    while True:
        try:
            with anyio.fail_after(idle_s):
                events = await _next_events(source, splitter)
        except TimeoutError:
            raise AnswerIdleError from None
        if events is None:
            return
        outbox = bytearray()
        for event in events:
            await _step(SseEvent(redact(event.raw)), reader, on_call, send, outbox)
        await _flush(outbox, send)


async def _next_events(source: AsyncIterator[bytes], splitter: SseSplitter) -> list[SseEvent] | None:
    """The next complete events, or None at the end of the stream."""
    async for data in source:
        events = splitter.feed(data)
        if events:
            return events
    return None


async def _step(event: SseEvent, reader: AnswerReader, on_call: OnCall, send: Send, outbox: bytearray) -> None:
    """Put what goes on after `event` into `outbox`; it is flushed before a verdict is awaited."""
    pending = deque([event])
    while pending:
        step = reader.step(pending.popleft())
        outbox += step.forward
        if step.call is not None:
            await _flush(outbox, send)
            outbox += reader.settle(await _patiently(step.call, reader, on_call, send))
            pending.extendleft(reversed(reader.waiting()))


async def _flush(outbox: bytearray, send: Send) -> None:
    if outbox:
        await send(bytes(outbox))
        outbox.clear()


async def _patiently(call: ToolCall, reader: AnswerReader, on_call: OnCall, send: Send) -> Verdict:
    """The verdict on `call`, with a sign of life for the worker every `KEEP_ALIVE_S`."""

    async def keep_alive() -> None:
        while True:
            await anyio.sleep(KEEP_ALIVE_S)
            await send(reader.keep_alive())

    async with anyio.create_task_group() as group:
        group.start_soon(keep_alive)
        verdict = await on_call(call)
        group.cancel_scope.cancel()
    return verdict


async def pass_whole(answer: JsonObject, reader: AnswerReader, on_call: OnCall) -> JsonObject | None:
    """Witness and judge an answer that is not streamed: None if it may go on as it is, else the mended answer."""
    refusals: dict[int, str] = {}
    for place, call in reader.read_whole(answer):
        verdict = await on_call(call)
        if not verdict.allow:
            refusals[place] = verdict.message
    return reader.replace_whole(answer, refusals) if refusals else None
