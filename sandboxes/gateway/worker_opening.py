"""What the supervisor asks for when it opens a worker's socket, and what it gets (docs/wires.md, "Gateway control").

Leaf, shared by both ends of the control socket. JSON is camelCase; unknown fields are refused.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sandboxes.gateway.key_ring import Provider
from sandboxes.gateway.refusal import WorkerKind
from sandboxes.gateway.script.script_model import CodexSurface

INFER_TIMEOUT_MS: Final = 120_000
"""`inferTimeoutMs` (contracts.md, section 8): how long an answer may be silent."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """What one worker may spend. None is no limit."""

    tokens: int | None = None
    requests: int | None = None

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 0 for limit in (self.tokens, self.requests)):
            raise ValueError("A limit is 0 or more; leave it out for none.")


@dataclass(frozen=True)
class WorkerOpening:
    """One worker. With `script` its model is scripted; else it asks the provider of its kind with the handle's key."""

    worker: str
    kind: WorkerKind
    socket: Path
    uid: int
    key_handle: str | None = None
    script: str | None = None
    script_name: str = "script"
    expected_tools: tuple[str, ...] | None = None
    judge_tools: tuple[str, ...] = ()
    limits: Limits = Limits()
    egress: tuple[str, ...] = ()
    tool_names: dict[str, str] = field(default_factory=dict)  # canonical name -> alias on the surface
    infer_timeout_ms: int = INFER_TIMEOUT_MS

    def __post_init__(self) -> None:
        _check_identifier("worker", self.worker)
        if self.infer_timeout_ms <= 0:
            raise ValueError("'inferTimeoutMs' must be over 0.")


@dataclass(frozen=True)
class WorkerOpened:
    """What the worker has to be started with so that a script meets the surface it is written for."""

    codex_surface: CodexSurface | None = None
    model: str | None = None


@dataclass(frozen=True)
class Tokens:
    """Counts of one worker so far."""

    input: int = 0
    output: int = 0


@dataclass(frozen=True)
class Failure:
    """A code of contracts.md, section 8, with its sentence."""

    code: str
    message: str


@dataclass(frozen=True)
class ScriptState:
    """How far the script is; `finished` is true where there is none."""

    finished: bool = True
    error: Failure | None = None


@dataclass(frozen=True)
class WorkerFigures:
    """What one worker has used."""

    inferences: int = 0
    tokens: Tokens = Tokens()
    script: ScriptState = ScriptState()


@dataclass(frozen=True)
class KeyDelivery:
    """A provider's key under a handle. Never printed."""

    handle: str
    provider: Provider
    key: str = field(repr=False)
    base_url: str | None = None

    def __post_init__(self) -> None:
        _check_identifier("handle", self.handle)


def _check_identifier(name: str, text: str) -> None:
    if not _IDENTIFIER.match(text):
        raise ValueError(f"{name!r} must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'.")
