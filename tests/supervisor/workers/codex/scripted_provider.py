"""A provider that speaks the OpenAI Responses protocol from a list of answers, over a unix socket, for these tests.

It stands where the gateway stands, hook road included; the worker that talks to it is the real one. A sub-agent's
thread, told apart by a word in its prompt, has a list of its own. The last answer of a list repeats.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

MAX_HEAD = 64 * 1024
FOR_AGENTS = "FOR-AN-AGENT"
"""A prompt with this word is a sub-agent's."""

AnswerHook = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Say:
    """A text block of an answer."""

    text: str


@dataclass(frozen=True)
class Use:
    """A tool call of an answer."""

    tool: str
    arguments: dict[str, Any]
    id: str
    namespace: str | None = None


@dataclass(frozen=True)
class Write:
    """A call of a tool that takes plain text: a patch, or a script in code mode."""

    tool: str
    text: str
    id: str
    namespace: str | None = None


@dataclass(frozen=True)
class Fail:
    """An answer that is an HTTP error."""

    status: int
    message: str = "no"


@dataclass(frozen=True)
class Stall:
    """An answer that never comes."""


Answer = Sequence[Say | Use | Write] | Fail | Stall


@dataclass
class ScriptedProvider:
    """What is answered, and what was asked. `answer_hook` None = the road of hooks is a 404."""

    main: Sequence[Answer]
    agent: Sequence[Answer] = ((Say("The agent is done."),),)
    answer_hook: AnswerHook | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)

    def surface(self) -> frozenset[str]:
        """The names of the first request's tools, as the gateway reads them."""
        body = self.requests[0]
        added = [tool for item in body["input"] if item.get("type") == "additional_tools" for tool in item["tools"]]
        flat = [inner for tool in [*body.get("tools", []), *added] for inner in tool.get("tools", [tool])]
        return frozenset(tool.get("name") or tool["type"] for tool in flat)

    def outputs(self) -> str:
        """What the model of the main thread was last told, as JSON."""
        mains = [body for body in self.requests if not is_agent(body)]
        return json.dumps([item for item in mains[-1]["input"] if "output" in item.get("type", "")])

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        """Serve on `socket` for as long as the context lives."""
        listener = await anyio.create_unix_listener(socket, mode=0o777)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while True:
                    await self._serve_one(stream, reader)
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return

    async def _serve_one(self, stream: SocketStream, reader: BufferedByteReceiveStream) -> None:
        head = (await reader.receive_until(b"\r\n\r\n", MAX_HEAD)).decode()
        sizes = [line.split(":")[1] for line in head.lower().splitlines() if line.startswith("content-length:")]
        body = await reader.receive_exactly(int(sizes[0])) if sizes else b"{}"
        path = head.split(" ")[1]
        if path == "/mxs/hook" and self.answer_hook is not None:
            self.hooks.append(json.loads(body))
            await stream.send(_http(200, "application/json", json.dumps(await self.answer_hook(self.hooks[-1]))))
            raise anyio.EndOfStream  # the helper reads to the end
        if path != "/v1/responses":
            await stream.send(_http(404, "application/json", "{}"))
            raise anyio.EndOfStream
        self.headers.append(head)
        self.requests.append(json.loads(body))
        await self._answer(stream, self.requests[-1])

    async def _answer(self, stream: SocketStream, body: dict[str, Any]) -> None:
        kind = "agent" if is_agent(body) else "main"
        answers = self.agent if kind == "agent" else self.main
        answer = answers[min(self.asked[kind], len(answers) - 1)]
        self.asked[kind] += 1
        match answer:
            case Fail(status, message):
                await stream.send(_http(status, "application/json", json.dumps({"error": {"message": message}})))
            case Stall():
                await anyio.sleep_forever()
            case _:
                await stream.send(_http(200, "text/event-stream", _events(answer, f"{kind}-{self.asked[kind]}")))


def is_agent(body: dict[str, Any]) -> bool:
    """Whether a request is a sub-agent's. Its parent's history holds the word too, after a prompt of its own."""
    users = [item for item in body["input"] if item.get("role") == "user" or item.get("type") == "agent_message"]
    return any(FOR_AGENTS in json.dumps(item) for item in users)


def _http(status: int, kind: str, body: str) -> bytes:
    raw = body.encode()
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def _events(answer: Sequence[Say | Use | Write], number: str) -> str:
    parts = [_event("response.created", response={"id": f"resp-{number}"})]
    for index, block in enumerate(answer):
        item = _item(block, f"{number}-{index}")
        if isinstance(block, Say):
            parts.append(_event("response.output_item.added", output_index=index, item={**item, "content": []}))
            delta = {"item_id": item["id"], "output_index": index, "content_index": 0, "delta": block.text}
            parts.append(_event("response.output_text.delta", **delta))
        parts.append(_event("response.output_item.done", output_index=index, item=item))
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None}
    parts.append(_event("response.completed", response={"id": "r", "usage": {**usage, "total_tokens": 2}}))
    return "".join(parts)


def _item(block: Say | Use | Write, number: str) -> dict[str, Any]:
    if isinstance(block, Say):
        content = [{"type": "output_text", "text": block.text}]
        return {"type": "message", "id": f"msg-{number}", "role": "assistant", "content": content}
    space = {"namespace": block.namespace} if block.namespace else {}
    if isinstance(block, Use):
        arguments = json.dumps(block.arguments)
        call = {"type": "function_call", "id": f"fc-{number}", "arguments": arguments}
    else:
        call = {"type": "custom_tool_call", "id": f"ctc-{number}", "input": block.text}
    return {**call, "call_id": block.id, "name": block.tool, **space}
