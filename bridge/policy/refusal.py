"""A refusal in words: what was refused, why, the nearest thing that is allowed, and whether asking helps.

Below: `contract.tool_invocation`. Above: whoever turns a Decision into an answer for a model or a person.
"""

from typing import Final

from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import Decision, NativeCall, Reason, ToolInvoke

_CODES: Final[dict[Reason, str]] = {
    "OUT_OF_SUBTREE": "MX_AGENT_OUT_OF_SUBTREE",
    "COMMAND_NOT_ALLOWED": "MX_AGENT_COMMAND_NOT_ALLOWED",
    "PATH_DENIED": "MX_AGENT_COMMAND_NOT_ALLOWED",
    "SHELL_DENIED": "MX_AGENT_COMMAND_NOT_ALLOWED",
    "MALFORMED_NAME": "MX_AGENT_MALFORMED_NAME",
}
_SHOWN_CHARACTERS: Final = 120
_ASKING: Final = "Asking for approval or trying again does not change this; only the permission file does."


def refusal(call: ToolInvoke | NativeCall, decision: Decision, role: str) -> MatrixError:
    """The error for a decision that denies; its data are `reason`, `rule` and `nearest`."""
    assert decision.verdict == "deny", decision
    sentences = [f"{_what(call, decision)} was refused: {_why(call, decision, role)}."]
    if decision.nearest is not None:
        sentences.append(f"The nearest that is allowed is {_shown(decision.nearest)}.")
    sentences.append("Correct the name and call again." if decision.reason == "MALFORMED_NAME" else _ASKING)
    return MatrixError(
        _CODES[decision.reason],
        " ".join(sentences),
        reason=decision.reason,
        rule=decision.rule,
        nearest=decision.nearest,
    )


def _what(call: ToolInvoke | NativeCall, decision: Decision) -> str:
    if isinstance(call, ToolInvoke):
        return f"{_shown(call.op)} on {_shown(call.target)}"
    if decision.reason == "SHELL_DENIED":
        return f"The command {_shown(call.command or '')}"
    if decision.reason == "PATH_DENIED" and call.paths:
        return f"{_shown(call.op)} on {', '.join(_shown(path.shown) for path in call.paths[:3])}"
    return f"{_shown(call.op)} by the tool {_shown(call.tool)}"


def _why(call: ToolInvoke | NativeCall, decision: Decision, role: str) -> str:
    if decision.reason == "MALFORMED_NAME":
        return "the name is outside the grammar (segments of letters, digits, '_' and '-', joined by '.')"
    if decision.reason == "OUT_OF_SUBTREE":
        return f"no grant of the role {role!r} holds this target"
    if decision.reason == "PATH_DENIED":
        return _why_path(call, decision)
    if decision.rule is not None:
        return f"the rule {decision.rule} denies it"
    if decision.reason == "SHELL_DENIED":
        return (
            f"no rule of the role {role!r} allows every command of this line as it is written; plain commands, one by "
            "one, without variables in place of a command, can be judged"
        )
    return f"no rule of the role {role!r} allows this op here"


def _why_path(call: ToolInvoke | NativeCall, decision: Decision) -> str:
    if decision.rule is not None and decision.rule.endswith("]"):
        return f"the rule {decision.rule} denies it"
    outside = isinstance(call, NativeCall) and any(path.path is None for path in call.paths)
    return "the path leaves the workspace, or cannot be followed" if outside else f"it is not in {decision.rule}"


def _shown(text: str) -> str:
    """ASCII, quoted and short: it goes to models, logs and terminals."""
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
