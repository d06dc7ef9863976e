"""The agent SDK's `Transport` over a container's stdio: one JSON object a line, both ways.

Knows framing and bounds; `claude_code_questions` knows which messages wait for an answer. Below: the `ByteStream` of a
running sandbox. Above: `ClaudeSDKClient`. What arrives is made by the worker: a line is data, is never logged, and is
refused over a limit.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from claude_agent_sdk import CLIConnectionError, Transport

from supervisor.workers.claude_code_questions import OpenQuestions, TooManyQuestionsError

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""One message of the worker. A file it reads comes back inside one, as base64 where it is an image."""
CLOSE_TIMEOUT_S: Final = 2.0
"""The SDK closes inside a shield, so closing must end by itself."""
WRITE_TIMEOUT_S: Final = 30.0
"""A worker that does not read its input for this long is taken for dead."""
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class StdioTransport(Transport):
    """Speaks with a Claude Code process that somebody else has started. The end of its output is an error, so that
    nobody waits for an answer that cannot come."""

    def __init__(self, stdio: ByteStream) -> None:
        self._stdio = stdio
        self._lines = BufferedByteReceiveStream(stdio)
        self._questions = OpenQuestions()
        self._write_lock = anyio.Lock()
        self._open = False

    async def connect(self) -> None:
        self._open = True

    def is_ready(self) -> bool:
        return self._open

    async def write(self, data: str) -> None:
        """Send one line whole. Raises `CLIConnectionError` when the worker is gone or does not read."""
        async with self._write_lock:
            try:
                with anyio.fail_after(WRITE_TIMEOUT_S):
                    await self._stdio.send(data.encode())
                self._questions.note_sent(data)
            except TimeoutError:
                raise CLIConnectionError(f"the worker did not read its input for {WRITE_TIMEOUT_S:.0f} s") from None
            except _BROKEN:
                raise CLIConnectionError("the worker's input is closed") from None

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each object. Raises `CLIConnectionError` at the end of the output, at a line that is no message, and
        where too many questions wait for their answers."""
        while True:
            line = await self._next_line()
            if not line.startswith(b"{"):
                continue  # blank, or a debug line that some builds of the program print
            try:
                message = json.loads(line)
                self._questions.note_arrived(message, len(line))
            except (ValueError, RecursionError):
                raise CLIConnectionError("the worker sent a line that is not JSON") from None
            except TooManyQuestionsError as flood:
                raise CLIConnectionError(str(flood)) from None
            yield message

    async def _next_line(self) -> bytes:
        try:
            return await self._lines.receive_until(b"\n", MAX_LINE_BYTES)
        except anyio.DelimiterNotFound:
            raise CLIConnectionError(f"the worker sent a line of more than {MAX_LINE_BYTES} bytes") from None
        except (*_BROKEN, anyio.IncompleteRead):
            raise CLIConnectionError("the worker's output ended") from None

    async def end_input(self) -> None:
        """Nothing to do: the sandbox that owns the process ends it, and its input with it."""

    async def close(self) -> None:
        self._open = False
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            await self._stdio.aclose()
