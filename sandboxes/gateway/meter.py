"""Counts what one worker spends and says when its budget is spent. Pure."""

from sandboxes.gateway.refusal import Refusal
from sandboxes.gateway.tool_call import Usage
from sandboxes.gateway.worker_opening import Limits, Tokens


class Meter:
    """`inferences` are requests to a model that were answered; `requests` those that were let through at all."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests = 0
        self.inferences = 0
        self.tokens = Tokens()

    def admit(self) -> Refusal | None:
        """Count one request, or refuse it."""
        spent = self.tokens.input + self.tokens.output
        if self._limits.tokens is not None and spent >= self._limits.tokens:
            return _spent("tokens", spent, self._limits.tokens)
        if self._limits.requests is not None and self._requests >= self._limits.requests:
            return _spent("requests", self._requests, self._limits.requests)
        self._requests += 1
        return None

    def count(self, usage: Usage) -> None:
        """Count one answered request."""
        self.inferences += 1
        self.tokens = Tokens(input=self.tokens.input + usage.input, output=self.tokens.output + usage.output)


def _spent(what: str, used: int, limit: int) -> Refusal:
    why = f"The budget of {limit} {what} is spent ({used} used). Asking again does not help; a person can raise it."
    return Refusal(403, why, "MX_AGENT_BUDGET_SPENT")
