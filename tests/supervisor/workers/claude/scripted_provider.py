"""A provider that speaks the Anthropic Messages protocol from a list of answers, over a unix socket, for these tests.

It stands where the gateway's upstream stands; the worker that talks to it is the real one. Sub-agents, told apart by
the header that the worker sends, have a list of their own. The last answer of a list repeats.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

MAX_HEAD = 64 * 1024


@dataclass(frozen=True)
class Say:
    """A text block of an answer."""

    text: str


@dataclass(frozen=True)
class Use:
    """A tool call of an answer; `id` where the test needs to know it or to use it twice."""

    tool: str
    arguments: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True)
class Fail:
    """An answer that is an HTTP error."""

    status: int


@dataclass(frozen=True)
class Stall:
    """An answer that never comes."""


Answer = Sequence[Say | Use] | Fail | Stall


@dataclass
class ScriptedProvider:
    """What is answered, and what was asked."""

    main: Sequence[Answer]
    agent: Sequence[Answer] = ((Say("The agent is done."),),)
    requests: list[dict[str, Any]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    stalled: anyio.Event = field(default_factory=anyio.Event)

    @property
    def tools(self) -> frozenset[str]:
        """The true surface: the names in the first request's body."""
        return frozenset(tool["name"] for tool in self.requests[0]["tools"])

    def told(self) -> str:
        """All that the model was sent, as one text to search in."""
        return json.dumps(self.requests)

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        """Serve on `socket` until the context is left."""
        listener = await anyio.create_unix_listener(socket, mode=0o666)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self, client: SocketStream) -> None:
        async with client:
            stream = BufferedByteReceiveStream(client)
            head = (await stream.receive_until(b"\r\n\r\n", MAX_HEAD)).decode().split("\r\n")
            headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:])}
            body = await stream.receive_exactly(int(headers.get("content-length", "0")))
            if head[0].startswith("POST /v1/messages?") or head[0].startswith("POST /v1/messages "):
                await self._answer(client, json.loads(body), headers.get("x-claude-code-agent-id", "main"))
            else:
                await client.send(_response(404, "application/json", "{}"))

    async def _answer(self, client: SocketStream, request: dict[str, Any], thread: str) -> None:
        answers = self.main if thread == "main" else self.agent
        turn = self.asked[thread]
        self.asked[thread] += 1
        self.requests.append(request)
        answer = answers[min(turn, len(answers) - 1)]
        if isinstance(answer, Stall):
            self.stalled.set()
            await anyio.sleep_forever()
        elif isinstance(answer, Fail):
            error = {"type": "error", "error": {"type": "scripted", "message": "a scripted failure"}}
            await client.send(_response(answer.status, "application/json", json.dumps(error)))
        else:
            blocks = [_block(part, f"toolu_{thread}_{turn}_{index}") for index, part in enumerate(answer)]
            await client.send(_response(200, "text/event-stream", "".join(_events(blocks, request["model"]))))


def _response(status: int, kind: str, body: str) -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    return head.encode() + data


def _block(part: Say | Use, call: str) -> dict[str, Any]:
    if isinstance(part, Say):
        return {"type": "text", "text": part.text}
    return {"type": "tool_use", "id": part.id or call, "name": part.tool, "input": part.arguments}


def _events(blocks: list[dict[str, Any]], model: str) -> list[str]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, **empty}
    events = [_event("message_start", message=message)]
    for index, block in enumerate(blocks):
        text = block["type"] == "text"
        start = {**block, "text": ""} if text else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if text
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        events.append(_event("content_block_start", index=index, content_block=start))
        events.append(_event("content_block_delta", index=index, delta=delta))
        events.append(_event("content_block_stop", index=index))
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    events.append(_event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage))
    return [*events, _event("message_stop")]


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
