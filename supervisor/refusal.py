"""A request that the supervisor turns down before anything was started: what, why, the mend, and the exit code.

Leaf. Made wherever a request is checked, sent by the control API, printed by the command line.
"""

from typing import Final

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 3
EXIT_REFUSED: Final = 4
EXIT_TIMED_OUT: Final = 5
EXIT_BUDGET: Final = 6
EXIT_ASK: Final = 7
EXIT_INTERRUPTED: Final = 130

_UNAVAILABLE = frozenset({"MX_AGENT_SANDBOX_UNAVAILABLE", "MX_AGENT_BRIDGE_UNAVAILABLE", "MX_AGENT_BRIDGE_RESTARTED"})


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """`code` is a key of `MX_AGENT_ERRORS` or empty for plain usage; `message` says what and why, `mend` what to do."""

    def __init__(self, message: str, mend: str = "", *, exit_code: int = EXIT_USAGE, code: str = "") -> None:
        self.message = message
        self.mend = mend
        self.exit_code = exit_code
        self.code = code
        super().__init__(message)

    def to_json(self) -> JsonObject:
        """The control API's error body."""
        return {"code": self.code, "message": self.message, "mend": self.mend, "exit": self.exit_code}

    @classmethod
    def from_json(cls, form: JsonObject) -> "Refusal":
        """The inverse of `to_json`."""
        exit_code = form.get("exit")
        return cls(
            str(form.get("message", "")),
            str(form.get("mend", "")),
            exit_code=exit_code if isinstance(exit_code, int) else EXIT_FAILED,
            code=str(form.get("code", "")),
        )

    @classmethod
    def from_error(cls, error: MatrixError, exit_code: int = EXIT_USAGE) -> "Refusal":
        """A typed error of the bridge as a refusal; an unavailable part has its own exit code."""
        mend = str(error.data.get("mend", ""))
        return cls(
            error.message,
            mend,
            exit_code=EXIT_UNAVAILABLE if error.code in _UNAVAILABLE else exit_code,
            code=error.code,
        )


def exit_code_of(status: str, code: str) -> int:
    """The exit code of `mxs run` for a result's status and error code (contracts.md, section 2)."""
    by_status = {
        "completed": EXIT_DONE,
        "stopped": EXIT_INTERRUPTED,
        "timedOut": EXIT_TIMED_OUT,
        "refused": EXIT_REFUSED,
    }
    if status in by_status:
        return by_status[status]
    if code == "MX_AGENT_BUDGET_SPENT":
        return EXIT_BUDGET
    return EXIT_UNAVAILABLE if code in _UNAVAILABLE else EXIT_FAILED


def exit_code_of_call(code: str) -> int:
    """The exit code of `mxs invoke` for an error code (contracts.md, section 2)."""
    if code in _UNAVAILABLE or code == "MX_AGENT_AUDIT_UNAVAILABLE":
        return EXIT_UNAVAILABLE
    return _EXIT_OF_CALL.get(code, EXIT_FAILED)


_EXIT_OF_CALL: Final = {
    "MX_AGENT_INVALID_ARGUMENTS": EXIT_USAGE,
    "MX_AGENT_TOO_LARGE": EXIT_USAGE,
    "MX_AGENT_MALFORMED_NAME": EXIT_REFUSED,
    "MX_AGENT_OUT_OF_SUBTREE": EXIT_REFUSED,
    "MX_AGENT_COMMAND_NOT_ALLOWED": EXIT_REFUSED,
    "MX_AGENT_APPROVAL_DENIED": EXIT_REFUSED,
    "MX_AGENT_APPROVAL_EXPIRED": EXIT_REFUSED,
    "MX_AGENT_TOOL_TIMEOUT": EXIT_TIMED_OUT,
    "MX_AGENT_INTROSPECT_TIMEOUT": EXIT_TIMED_OUT,
    "MX_AGENT_PROMPT_TIMEOUT": EXIT_TIMED_OUT,
    "MX_AGENT_BUDGET_SPENT": EXIT_BUDGET,
}
