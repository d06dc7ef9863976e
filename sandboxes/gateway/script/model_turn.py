"""What a scripted model answers, in a form that both wire formats can write. Leaf of `script`."""

from dataclasses import dataclass
from typing import Literal

from sandboxes.gateway.json_types import JsonObject

INPUT_TOKENS = 10
OUTPUT_TOKENS = 5
"""What every scripted answer is said to have cost, so that budgets can be tried without a provider."""


@dataclass(frozen=True)
class WireCall:
    """One call in the worker's own terms. A `custom` call has free text, the others a JSON object."""

    id: str
    name: str
    arguments: JsonObject | str
    kind: Literal["function", "custom", "tool_search"] = "function"
    namespace: str | None = None


@dataclass(frozen=True)
class ModelTurn:
    """One answer: what is said, then what is called. Without calls it ends the worker's turn."""

    say: str = ""
    calls: tuple[WireCall, ...] = ()
