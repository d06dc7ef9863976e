"""The model providers by kind of worker, and the variables that hold their keys. Leaf."""

from dataclasses import dataclass
from typing import Final, Literal

from supervisor.workers.worker import WorkerKind


@dataclass(frozen=True)
class Provider:
    """A model provider, and the variables that hold its key and another base URL."""

    name: Literal["anthropic", "openai"]
    key_variable: str
    url_variable: str


PROVIDERS: Final[dict[WorkerKind, Provider]] = {
    "claude": Provider("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "codex": Provider("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
}
