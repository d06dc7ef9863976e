"""What a person asks for and what is kept of it: one run as data. Leaf of `supervisor`."""

import secrets
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from bridge.contract.json_types import JsonObject
from sandboxes.gateway.egress_list import parse_egress
from supervisor.lifecycle import State
from supervisor.workers.worker import WorkerKind

ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"  # base32, lower case
ID_LENGTH: Final = 6

Status = Literal["completed", "failed", "stopped", "timedOut", "refused"]


def new_worker_id(kind: WorkerKind) -> str:
    """Kind and six base32 characters (contracts.md, section 1)."""
    return f"{kind}-{''.join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))}"


class Wire(BaseModel):
    """JSON in camelCase on the wire, snake_case here; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]),
    )

    def to_json(self) -> JsonObject:
        """The form that is sent and stored."""
        return self.model_dump(mode="json", by_alias=True)


class Limits(Wire):
    """Bounds of the container. Memory in bytes."""

    memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 2 * 1024**3
    cpus: Annotated[float, Field(gt=0)] = 2.0
    pids: Annotated[int, Field(ge=16)] = 512


class Timeouts(Wire):
    """`AgentActorProps`: bounds of one tool call and of one `$introspect`, and of a silent model, in milliseconds."""

    tool_ms: Annotated[int, Field(gt=0)] = 15_000
    introspect_ms: Annotated[int, Field(gt=0)] = 5_000
    infer_ms: Annotated[int, Field(gt=0)] = 120_000


class RunRequest(Wire):
    """Body of `POST /runs`. Paths are absolute: the client resolved them and settled what is trusted."""

    kind: WorkerKind
    prompt: Annotated[str, Field(max_length=1_000_000)]
    repo: str
    role: str | None = None
    policy: str | None = None
    model: str | None = None
    script: str | None = None
    script_name: str = ""
    image: str | None = None
    runtime: str | None = None
    name: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")] = None
    egress: tuple[str, ...] = ()
    timeout_s: Annotated[float | None, Field(gt=0)] = None
    key_handle: str | None = None
    interactive: bool = False  # somebody at a terminal answers what is asked
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()

    @field_validator("egress")
    @classmethod
    def _names_hosts_and_ports(cls, listed: tuple[str, ...]) -> tuple[str, ...]:
        parse_egress(listed)  # raises a ValueError that says what to write
        return listed


class WorkerRecord(Wire):
    """`worker.json`: what `ps`, `show`, `diff` and `apply` need after the supervisor that ran it is gone."""

    id: str
    kind: WorkerKind
    name: str | None
    run: str
    prompt: str
    repo: str
    role: str
    state: State
    created_at: str
    ended_at: str | None = None
    result: dict[str, JsonValue] | None = None
    applied: bool = False
