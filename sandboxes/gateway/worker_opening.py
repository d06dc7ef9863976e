"""What the supervisor asks for when it opens a worker's socket, and what it gets (docs/wires.md, "Gateway control").

Leaf, shared by both ends of the control socket. JSON is camelCase; unknown fields are refused.
"""

from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sandboxes.gateway.key_ring import Provider
from sandboxes.gateway.refusal import WorkerKind
from sandboxes.gateway.script.script_model import CodexSurface

INFER_TIMEOUT_MS: Final = 120_000
"""`inferTimeoutMs` (contracts.md, section 8): how long an answer may be silent."""

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class WireForm(BaseModel):
    """A frozen value that goes over the control socket."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True)


class Limits(WireForm):
    """What one worker may spend. None is no limit."""

    tokens: int | None = Field(default=None, ge=0)
    requests: int | None = Field(default=None, ge=0)


class WorkerOpening(WireForm):
    """One worker. With `script` its model is scripted; else it asks the provider of its kind with the handle's key."""

    worker: Identifier
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
    tool_names: dict[str, str] = Field(default_factory=dict)  # canonical name -> alias on the surface
    infer_timeout_ms: int = Field(default=INFER_TIMEOUT_MS, gt=0)


class WorkerOpened(WireForm):
    """What the worker has to be started with so that a script meets the surface it is written for."""

    codex_surface: CodexSurface | None = None
    model: str | None = None


class Tokens(WireForm):
    """Counts of one worker so far."""

    input: int = 0
    output: int = 0


class Failure(WireForm):
    """A code of contracts.md, section 8, with its sentence."""

    code: str
    message: str


class ScriptState(WireForm):
    """How far the script is; `finished` is true where there is none."""

    finished: bool = True
    error: Failure | None = None


class WorkerFigures(WireForm):
    """What one worker has used."""

    inferences: int = 0
    tokens: Tokens = Tokens()
    script: ScriptState = ScriptState()


class KeyDelivery(WireForm):
    """A provider's key under a handle. Never printed."""

    handle: Identifier
    provider: Provider
    key: str = Field(repr=False)
    base_url: str | None = None
