"""One tool call in a model's answer, and the seam of the readers that find it there. Pure leaf.

Implemented by `anthropic_answer` and `openai_answer`, driven by `answer_judge`.
"""

import json
from dataclasses import dataclass, field
from typing import Final, Protocol

from sandboxes.gateway.json_types import JsonObject, JsonValue
from sandboxes.gateway.sse import SseEvent

MAX_ARGUMENTS: Final = 64 * 1024
"""Characters of a call's arguments that are reported; the worker gets them whole."""


@dataclass(frozen=True)
class ToolCall:
    """What the model wants done. `arguments` is its own text (JSON, or a custom tool's), cut for the report."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True)
class Verdict:
    """Whether the worker may see the call. `message` is what it reads instead when it may not."""

    allow: bool
    message: str = ""


@dataclass
class Usage:
    """Tokens of one answer. `input` counts what was read from and written to the provider's cache too."""

    input: int = 0
    output: int = 0


@dataclass(frozen=True)
class Step:
    """What one event of the stream leads to: bytes that may go on now, then perhaps a call that waits for a verdict."""

    forward: bytes = b""
    call: ToolCall | None = None


@dataclass
class AnswerFacts:
    """What a reader learns beside the calls."""

    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    error: str | None = None
    finished: bool = False


class AnswerReader(Protocol):
    """Reads one answer event by event; a call is held from its first event to its last."""

    facts: AnswerFacts

    def step(self, event: SseEvent) -> Step:
        """Take the next event. While a call is held, everything behind it waits."""

    def settle(self, verdict: Verdict) -> bytes:
        """Release the call of the last step: its own bytes, or the refusal in its place."""

    def waiting(self) -> list[SseEvent]:
        """Take the events that stood behind the settled call and belong to something else; step them next."""

    def read_whole(self, answer: JsonObject) -> list[tuple[int, ToolCall]]:
        """The calls in an answer that is not streamed, with their places; learns its usage."""

    def replace_whole(self, answer: JsonObject, refusals: dict[int, str]) -> JsonObject:
        """That answer with the calls at these places replaced by their refusals."""

    def failure(self, message: str, status: int) -> bytes:
        """The event that tells the worker in mid-stream that the answer failed."""

    def keep_alive(self) -> bytes:
        """An event without meaning, to send while a verdict is awaited."""


def shown_arguments(value: JsonValue) -> str:
    """The arguments of a call as text, cut to `MAX_ARGUMENTS` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:MAX_ARGUMENTS]
