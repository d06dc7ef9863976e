"""The failures of Matrix tools, as codes and as one exception.

Leaf: imports nothing of ours. Everything that refuses, times out or breaks on the way of a call raises `MatrixError`
with one of the codes below; what leaves a process is `to_wire()`, never a traceback or `str()` of a foreign exception.

    Exception
      MatrixError               code, message, data; safe to show to a model and to write into the log
        ActorError              what an actor raises on purpose (bridge.bus.actor); carries the actor's own code in data
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MX_AGENT_ERRORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MX_AGENT_TOOL_TIMEOUT": "The tool did not answer within its time limit.",
        "MX_AGENT_INTROSPECT_TIMEOUT": "The actor did not describe itself within the time limit.",
        "MX_AGENT_INFER_TIMEOUT": "The model provider was silent for longer than the time limit.",
        "MX_AGENT_PROMPT_TIMEOUT": "The prompt did not finish within its time limit.",
        "MX_AGENT_CANCELLED": "The call was cancelled before it had a result.",
        "MX_AGENT_TOOL_NOT_FOUND": "No tool has this name.",
        "MX_AGENT_TARGET_NOT_FOUND": "No actor is mounted at this target.",
        "MX_AGENT_OP_NOT_FOUND": "The actor does not accept this op.",
        "MX_AGENT_MALFORMED_NAME": "The name is outside the grammar of names.",
        "MX_AGENT_INVALID_ARGUMENTS": "The arguments do not fit the op's schema.",
        "MX_AGENT_INVALID_RESULT": "The actor's answer does not fit the op's declared result.",
        "MX_AGENT_OUT_OF_SUBTREE": "No grant of the role holds this target.",
        "MX_AGENT_COMMAND_NOT_ALLOWED": "The role's grants do not allow this op here.",
        "MX_AGENT_APPROVAL_DENIED": "A person denied the call.",
        "MX_AGENT_APPROVAL_EXPIRED": "Nobody answered the request for approval in time.",
        "MX_AGENT_ACTOR_ERROR": "The actor failed.",
        "MX_AGENT_ACTOR_UNAVAILABLE": "The actor's host is not running.",
        "MX_AGENT_TOO_LARGE": "The message is over its size or depth limit.",
        "MX_AGENT_LIMIT": "A limit of the bridge was reached.",
        "MX_AGENT_BUDGET_SPENT": "The role's budget is spent.",
        "MX_AGENT_AUDIT_UNAVAILABLE": "The audit log cannot be written, so nothing is executed.",
        "MX_AGENT_BRIDGE_UNAVAILABLE": "The bridge cannot be reached.",
        "MX_AGENT_BRIDGE_RESTARTED": "The bridge restarted while the call was running; its outcome is unknown.",
        "MX_AGENT_WORKER_EXITED": "The worker's process ended before its work did.",
        "MX_AGENT_SANDBOX_UNAVAILABLE": "The container engine or the worker's image is not available.",
        "MX_AGENT_SANDBOX_OOM": "The worker's container ran out of its memory limit.",
        "MX_AGENT_GATE_REFUSED": "The worker failed a check of the start gate.",
        "MX_AGENT_INFERENCE_FAILED": "The model provider refused or failed.",
        "MX_SCRIPT_EXPECTATION": "A result did not match what the script expects.",
        "MX_SCRIPT_UNSUPPORTED": "The script asks for a tool that this worker does not have.",
    }
)


class MatrixError(Exception):
    """A typed failure: `code` is a key of `MX_AGENT_ERRORS`, `message` a sentence that a model or person can act on.

    `data` holds further JSON fields (reason, rule, nearest, path …); nothing secret may be in any of the three.
    """

    def __init__(self, code: str, message: str = "", /, **data: object) -> None:
        self.code = code
        self.message = message or MX_AGENT_ERRORS.get(code, code)
        self.data = data
        super().__init__(f"{code}: {self.message}")

    def to_wire(self) -> dict[str, object]:
        """The JSON form `{"code", "message", …data}` used between processes and in records."""
        return {**self.data, "code": self.code, "message": self.message}

    @classmethod
    def from_wire(cls, error: Mapping[str, object]) -> "MatrixError":
        """The inverse of `to_wire`; a form without a known code becomes `MX_AGENT_ACTOR_ERROR`."""
        code = str(error.get("code", ""))
        data = {key: value for key, value in error.items() if key not in ("code", "message")}
        known = code if code in MX_AGENT_ERRORS else "MX_AGENT_ACTOR_ERROR"
        return cls(known, str(error.get("message", "")), **data)
