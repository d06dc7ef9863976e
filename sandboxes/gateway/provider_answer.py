"""What a model provider answered, real or scripted: status, headers, and the body as it comes. Leaf."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Self

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.request_policy import Headers


@dataclass(frozen=True)
class ProviderAnswer:
    """Header names are lower-case. `body` can be read once; whoever passes it on uses `redact` on it."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    redact: Callable[[bytes], bytes] = bytes  # takes the provider's key out of what it answered

    @classmethod
    def of_json(cls, status: int, value: JsonObject) -> Self:
        """A whole JSON answer."""
        return cls(status, (("content-type", "application/json"),), in_pieces(iter([json.dumps(value).encode()])))

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return any(name == "content-type" and value.startswith("text/event-stream") for name, value in self.headers)


async def in_pieces(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces as a body."""
    for piece in pieces:
        yield piece
