"""From a failure's code to the `outcome` of its `tool.result` (contracts.md, section 7). Pure."""

from collections.abc import Mapping
from typing import Final

from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import Outcome

_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "MX_AGENT_MALFORMED_NAME": "denied",
    "MX_AGENT_OUT_OF_SUBTREE": "denied",
    "MX_AGENT_COMMAND_NOT_ALLOWED": "denied",
    "MX_AGENT_APPROVAL_DENIED": "denied",
    "MX_AGENT_APPROVAL_EXPIRED": "denied",
    "MX_AGENT_BUDGET_SPENT": "denied",
    "MX_AGENT_LIMIT": "denied",
    "MX_AGENT_INVALID_ARGUMENTS": "invalid",
    "MX_AGENT_TOOL_TIMEOUT": "timedOut",
    "MX_AGENT_INTROSPECT_TIMEOUT": "timedOut",
    "MX_AGENT_PROMPT_TIMEOUT": "timedOut",
    "MX_AGENT_INFER_TIMEOUT": "timedOut",
    "MX_AGENT_CANCELLED": "cancelled",
    "MX_AGENT_BRIDGE_RESTARTED": "unknown",
}


def outcome_of(error: MatrixError) -> Outcome:
    """How a call that ended in `error` is recorded; whatever is not listed has failed."""
    return _OUTCOMES.get(error.code, "failed")
