"""How much of Claude Code's questions (control requests) may wait for an answer at once: a count and a size. Pure.

The SDK handles each question in a task of its own and keeps it until its answer was read, and everything in the
container can write to the program's output: without these bounds one worker could fill the supervisor's memory and
the bridge's channel. Knows of the control protocol only which message is a question, an answer or a withdrawal.
Above: `claude_code_transport`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

MAX_OPEN_QUESTIONS: Final = 256
"""A model asks for a few calls at a time, and each of its sub-agents for as many."""
MAX_OPEN_BYTES: Final = 64 * 1024 * 1024
_ANSWER: Final = '{"type": "control_response"'


class TooManyQuestionsError(Exception):
    """The worker asks faster than it reads its answers, or one question twice."""


class OpenQuestions:
    """The questions that have come and were not answered, each with its size in bytes."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def note_arrived(self, message: Mapping[str, Any], size: int) -> None:
        """Take in a message of `size` bytes from the worker. Raises `TooManyQuestionsError` over a bound."""
        kind, name = message.get("type"), repr(message.get("request_id"))
        if kind == "control_cancel_request":
            self._close(name)
        if kind != "control_request":
            return
        if name in self._sizes:
            raise TooManyQuestionsError("the worker asked a second question under the id of an open one")
        self._sizes[name] = size
        self._bytes += size
        if len(self._sizes) > MAX_OPEN_QUESTIONS or self._bytes > MAX_OPEN_BYTES:
            raise TooManyQuestionsError(
                f"the worker has more than {MAX_OPEN_QUESTIONS} questions or {MAX_OPEN_BYTES} bytes of them open"
            )

    def note_sent(self, line: str) -> None:
        """Take in a line that the worker was sent."""
        if line.startswith(_ANSWER):
            self._close(repr(json.loads(line)["response"]["request_id"]))

    def _close(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name, 0)
