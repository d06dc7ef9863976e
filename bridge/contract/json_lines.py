"""Lines out of a byte stream, bounded, and a second reading of those that the strict one refused. Below: the stream."""

import json
from typing import Final

import anyio
from anyio.abc import ByteStream

from bridge.contract.json_types import JsonObject

RECEIVE_BYTES: Final = 65_536
STREAM_ENDS: Final = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
"""However the other end went away."""


class LineReader:
    """Cuts what `stream` brings into lines; never holds more than one line's limit."""

    def __init__(self, stream: ByteStream, max_line_bytes: int) -> None:
        self._stream = stream
        self._max_line_bytes = max_line_bytes
        self._tail = bytearray()

    async def next_lines(self) -> list[bytes] | None:
        """The complete lines of the next chunk; None at the end. A line over the limit comes cut, one byte too long."""
        wanted = min(RECEIVE_BYTES, self._max_line_bytes + 1 - len(self._tail))
        try:
            chunk = await self._stream.receive(wanted)
        except STREAM_ENDS:
            return None
        if b"\n" not in chunk:
            self._tail += chunk
            return [bytes(self._tail)] if len(self._tail) > self._max_line_bytes else []
        first, *others, rest = chunk.split(b"\n")
        lines = [bytes(self._tail + first), *others]
        self._tail = bytearray(rest)
        return lines


def read_leniently(line: bytes) -> JsonObject | None:
    """The refused line as Python's own reader takes it, only to answer its sender and to record what was asked."""
    try:
        message = json.loads(line, parse_int=_small_int, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _small_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= 18 else None
