"""Cuts a stream of server-sent events into whole events, and keeps their bytes. Pure.

Below: bytes in whatever pieces the network gave them. Above: the answer readers, which forward an event's `raw` bytes
untouched unless they must replace it. What it refuses to know: what any event means.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sandboxes.gateway.json_types import JsonObject, JsonValue

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""A whole response object stands in one event of the Responses protocol; more than this is no answer of a model."""

_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")


class EventTooLargeError(ValueError):
    """One event is over `MAX_EVENT_BYTES`."""


@dataclass(frozen=True)
class SseEvent:
    """One event with the blank line that ends it. A comment is an event without data."""

    raw: bytes

    @cached_property
    def data(self) -> JsonObject | None:
        """The data lines as one JSON object; None for comments, `[DONE]` and whatever else is no object."""
        lines = [line[5:].removeprefix(b" ") for line in self.raw.splitlines() if line.startswith(b"data:")]
        try:
            value: JsonValue = json.loads(b"\n".join(lines)) if lines else None
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class SseSplitter:
    """Collects bytes and gives the events that are complete. `rest` is what no blank line has ended yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes, in order."""
        self._buffer += data
        events: list[SseEvent] = []
        while (end := _BLANK_LINE.search(self._buffer, self._searched)) and not self._may_grow(end):
            events.append(SseEvent(bytes(self._buffer[: end.end()])))
            del self._buffer[: end.end()]
            self._searched = 0
        self._searched = max(0, len(self._buffer) - 3)
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise EventTooLargeError(f"An event of the model's answer is over {MAX_EVENT_BYTES} bytes.")
        return events

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return bytes(self._buffer)

    def _may_grow(self, end: "re.Match[bytes]") -> bool:
        """Whether the blank line ends in a CR at the buffer's end, whose LF may still come."""
        return end.end() == len(self._buffer) and end.group().endswith(b"\r")


def encode(kind: str, data: JsonObject) -> bytes:
    """One event as both providers write it: `event: kind`, then the JSON in one data line."""
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
