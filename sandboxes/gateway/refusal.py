"""Refusals and faults in the shape of the provider the worker believes it talks to, so that the worker shows them.

Pure leaf. A refusal is a value: who refuses decides, this file only gives it a body.
"""

import json
from dataclasses import dataclass
from typing import Final, Literal

WorkerKind = Literal["claude", "codex"]

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True)
class Refusal:
    """What the worker is answered. `why` says what was refused, why, and what would be accepted."""

    status: int
    why: str
    code: str = "MX_AGENT_COMMAND_NOT_ALLOWED"


def error_type(kind: WorkerKind, status: int) -> str:
    """The provider's own word for a failure with this HTTP status."""
    if kind == "claude":
        return _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def error_body(kind: WorkerKind, status: int, message: str, code: str | None = None) -> bytes:
    """The JSON error body of the provider of `kind`."""
    kind_of_error = error_type(kind, status)
    if kind == "claude":
        return json.dumps({"type": "error", "error": {"type": kind_of_error, "message": message}}).encode()
    error = {"message": message, "type": kind_of_error, "param": None, "code": code}
    return json.dumps({"error": error}).encode()
