"""A script as frozen data: what a scripted model says and calls, in neutral terms. Leaf of `script`.

Made by `script_file` from YAML; played by `script_player`; put into a worker's own tools by `claude_voice` and
`codex_voice`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from sandboxes.gateway.json_types import JsonObject

CodexSurface = Literal["plain", "patch", "code"]

NEUTRAL_TOOLS: Final[Mapping[str, frozenset[str]]] = {
    "shell": frozenset({"command"}),
    "read": frozenset({"path"}),
    "write": frozenset({"path", "content"}),
    "edit": frozenset({"path", "old", "new"}),
    "fetch": frozenset({"url"}),
    "spawn": frozenset({"agent", "prompt"}),
}
"""Neutral tool -> its arguments, all of them texts and mandatory."""

MATRIX_INVOKE: Final = "matrix_invoke"


@dataclass(frozen=True)
class ScriptCall:
    """One call: a neutral tool, `matrix_invoke`, or a Matrix tool by its canonical name."""

    tool: str
    args: JsonObject = field(default_factory=dict, hash=False)

    def text(self, name: str) -> str:
        """An argument of a neutral tool (checked to be text when the script was read)."""
        return str(self.args[name])


@dataclass(frozen=True)
class WireFault:
    """What the provider answers instead of a turn: an error status, or raw bytes of an answer."""

    status: int
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    raw: str | None = None


@dataclass(frozen=True)
class Step:
    """One answer of the model. Either a turn (`say`, `calls`) or a `fault`."""

    say: str = ""
    calls: tuple[ScriptCall, ...] = ()
    expect: str | None = None
    delay_ms: int = 0
    fault: WireFault | None = None


@dataclass(frozen=True)
class Script:
    """The whole script."""

    steps: tuple[Step, ...]
    agents: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    codex_surface: CodexSurface = "patch"


class ScriptError(Exception):
    """The script cannot go on: `code` is `MX_SCRIPT_EXPECTATION` or `MX_SCRIPT_UNSUPPORTED`."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")
