"""What was asked, frozen: the names and exactly the bytes that are decided on, recorded and sent.

Pure. Above: `mcp_bridge_actor`. Nothing is lost on the way in: what is malformed, too large or no JSON becomes a
`FrozenInvoke` too, with the error that it is refused with, so that it has a record like every other call.
"""

import json
from dataclasses import dataclass
from typing import Final

from bridge.contract import strict_json
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.names import parse_op, parse_target

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
MAX_PAYLOAD_DEPTH: Final = 64
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True)
class FrozenInvoke:
    """`target` and `op` as they are shown and recorded; `text` is the payload's JSON, the one that everybody reads."""

    target: str
    op: str
    text: str
    name_error: MatrixError | None = None
    payload_error: MatrixError | None = None

    def payload(self) -> JsonObject:
        """The payload, read anew from the frozen text."""
        value: JsonObject = json.loads(self.text)
        return value


def freeze(asked: JsonObject) -> FrozenInvoke:
    """Freeze `{"target", "op", "payload"?, "payloadError"?}`. Never raises.

    `payloadError` (`{"code", "message"}`) stands for a payload that its sender could not put into a line.
    """
    text, payload_error = _payload(asked)
    return FrozenInvoke(
        target=_shown(asked.get("target")),
        op=_shown(asked.get("op")),
        text=text,
        name_error=_name_error(asked),
        payload_error=payload_error,
    )


def _payload(asked: JsonObject) -> tuple[str, MatrixError | None]:
    told = asked.get("payloadError")
    if isinstance(told, dict):
        error = MatrixError.from_wire(told)
        known = error.code in ("MX_AGENT_TOO_LARGE", "MX_AGENT_INVALID_ARGUMENTS")
        return "{}", error if known else MatrixError("MX_AGENT_INVALID_ARGUMENTS", "The payload could not be sent.")
    payload = asked.get("payload")
    if payload is None:
        return "{}", None
    if not isinstance(payload, dict):
        return "{}", MatrixError("MX_AGENT_INVALID_ARGUMENTS", "The payload must be a JSON object.")
    try:
        return strict_json.dumps(payload, max_bytes=MAX_PAYLOAD_BYTES, max_depth=MAX_PAYLOAD_DEPTH), None
    except MatrixError as error:
        return "{}", MatrixError(error.code, f"The payload cannot be taken. {error.message}")


def _name_error(asked: JsonObject) -> MatrixError | None:
    try:
        parse_target(asked.get("target"))
        parse_op(asked.get("op"))
    except MatrixError as error:
        return error
    return None


def _shown(name: JsonValue) -> str:
    """A name inside the grammar as it is; anything else as short ASCII that no reader can trip over."""
    if not isinstance(name, str):
        return f"<{type(name).__name__}>"
    return (
        name
        if name.isascii() and name.isprintable() and len(name) <= _MAX_NAME
        else ascii(name)[1:-1][:_SHOWN_CHARACTERS]
    )


_MAX_NAME: Final = 32 * 65
"""A target of 32 full segments, with its dots."""
