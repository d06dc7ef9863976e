"""The seam between a script's neutral calls and one kind of worker's own tools.

Implemented by `claude_voice` and `codex_voice`, used by `script_player`. A voice is pure: it looks at the request,
which says what tools the worker has, and knows nothing of steps.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.script.model_turn import ModelTurn, WireCall
from sandboxes.gateway.script.script_model import ScriptCall, ScriptError


class Voice(Protocol):
    """How one kind of worker is spoken to."""

    def preparation(self, call: ScriptCall, request: ModelRequest, read_paths: frozenset[str]) -> ScriptCall | None:
        """A call that has to come before `call` (an edit's read), unless its path is among `read_paths`."""

    def remedy(self, call: ScriptCall, result: str) -> ScriptCall | None:
        """A call that has to come before `call` is made once more, if `result` says that it was not carried out."""

    def phrase(self, call: ScriptCall, request: ModelRequest, identifier: str, prepared: str | None) -> WireCall:
        """`call` in the worker's own terms; `prepared` is what the preparation gave. Raises `ScriptError`."""

    def gather(self, calls: Sequence[WireCall], request: ModelRequest, identifier: str) -> Sequence[WireCall]:
        """All calls of one answer as the surface wants them: as they are, or nested in one script."""

    def stream(self, turn: ModelTurn, model: str, identifier: str) -> Iterator[bytes]:
        """The answer as the provider's events."""

    def whole(self, turn: ModelTurn, model: str, identifier: str) -> JsonObject:
        """The answer as the provider's one object."""


def unsupported(call: ScriptCall, request: ModelRequest) -> ScriptError:
    """The refusal of a call that this worker has no tool for."""
    tools = ", ".join(sorted(request.tool_names)) or "none"
    return ScriptError("MX_SCRIPT_UNSUPPORTED", f"The worker has no tool for {call.tool!r}. Its tools are: {tools}.")
