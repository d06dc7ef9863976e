"""The seam between the supervisor and one kind of worker.

Implemented by `claude_code` and `codex`. A driver speaks the worker's own control channel over the container's stdio,
puts Matrix tools on its native tool surface, and asks `NativeMediation` before each of the worker's own tools runs. It
knows no Docker, no bridge and no policy: whatever it cannot get an answer for, it refuses.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from anyio.abc import ByteStream

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import NativeCall, Outcome
from sandboxes.sandbox_spec import ReadOnlyMount

WorkerKind = Literal["claude", "codex"]


@dataclass(frozen=True)
class NativeToolDef:
    """One Matrix tool as the worker's surface shows it (spec: `NativeToolDef`); `handler` is one judged call."""

    name: str  # the alias, or "matrix_invoke"
    description: str
    input_schema: JsonObject
    handler: "ToolHandler"
    title: str = ""  # the canonical name
    output_schema: JsonObject | None = None


@dataclass(frozen=True)
class ToolAnswer:
    """What goes back to the model. `content` is the JSON result, or `{"error": {"code", "message"}}` when `is_error`.

    `text` equals the JSON of `content` on success; on an error it is the sentence with its code.
    """

    text: str
    content: JsonObject
    is_error: bool


ToolHandler = Callable[[JsonObject, str | None], Awaitable[ToolAnswer]]
"""(arguments, the worker's own id of the call or None) -> answer. Never raises but for cancellation."""


@dataclass(frozen=True)
class NativeVerdict:
    """The bridge's word on one native call: `message` is what the model reads when it is refused."""

    call: str
    allowed: bool
    message: str


class NativeMediation(Protocol):
    """Asks the bridge about the worker's own tools and reports how they ended. Every fault is a refusal."""

    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        """Judge and record `native` before it runs. `worker_call` is the worker's id of it. Idempotent per id:
        the second line (approval after hook) gets the first's verdict, and only one record is written."""

    async def finish(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        """Record how the call that `decide` allowed has ended. `result` is text, cut by the bridge."""


@dataclass(frozen=True)
class LaunchPlan:
    """What the container must hold for this kind: the program, its environment, its pinned configuration."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[ReadOnlyMount, ...]


@dataclass(frozen=True)
class WorkerTask:
    """What a driver is told besides the prompt. `instructions` is the text of CLAUDE.md / AGENTS.md, as text."""

    worker_id: str
    model: str | None
    tools: tuple[NativeToolDef, ...]
    instructions: str = ""
    allowed_native_ops: frozenset[str] = frozenset()  # ops the role could ever allow: others are left off the surface
    resume: str | None = None
    surface: str | None = None  # Codex: "plain", "patch" or "code" (contracts.md, section 6); None = as the model's


@dataclass(frozen=True)
class WorkerEvent:
    """Something to show live. `type`: `text` {text}, `thinking` {}, `native.started` / `native.ended` {tool, call},
    `retry` {reason, attempt}, `notice` {text}, `agent.started` / `agent.ended` {agent}, `surface` {matrix, native}
    (names as the model sees them, what the worker itself says it has)."""

    type: str
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class TurnResult:
    """How one prompt ended, once nothing of it runs any more. `error` is a code of `MX_AGENT_ERRORS` or None."""

    ok: bool
    text: str
    error: str | None = None
    message: str = ""
    session: str | None = None  # what `resume` needs


class ConnectedWorker(Protocol):
    """A worker that answered its handshake."""

    def prompt(self, text: str) -> AsyncIterator[WorkerEvent | TurnResult]:
        """Run one prompt. The last item is the `TurnResult`; ends only when no sub-agent or command of it runs."""

    async def interrupt(self) -> None:
        """Stop the running prompt, its commands and pending calls. Bounded; the prompt then ends as not ok."""


class WorkerDriver(Protocol):
    """One kind of worker."""

    kind: WorkerKind

    def launch_plan(self, task: WorkerTask, pinned: "PinnedFolder") -> LaunchPlan:
        """What to start. Files the worker must not change are written through `pinned` and mounted read-only."""

    def expected_surface(self, task: WorkerTask) -> frozenset[str]:
        """The tools that a request body of this worker may name, as it names them; the gateway compares.
        Empty where it cannot be foretold."""

    def connect(
        self, stdio: ByteStream, task: WorkerTask, mediation: NativeMediation
    ) -> AbstractAsyncContextManager[ConnectedWorker]:
        """Do the handshake over `stdio`. Raises `MatrixError` (WORKER_EXITED, …) within a bound."""

    @property
    def judged_at_gateway(self) -> frozenset[str]:
        """The tools that no hook of this kind covers: the gateway holds their calls back until `answer_witnessed`."""

    async def answer_witnessed(
        self, worker_id: str, call: str, tool: str, arguments: JsonObject, agent: str | None = None
    ) -> JsonObject:
        """Judge a call of `judged_at_gateway` that stands in a model's answer: `{"allow": bool, "message": str}`."""

    async def answer_hook(self, worker_id: str, body: JsonObject) -> JsonObject:
        """Answer a hook of the worker that arrived through its own socket of the gateway (Codex): `{"allow": bool,
        "message": str}`. `worker_id` is the socket's, never read from `body`; refuses what it does not know."""


class PinnedFolder(Protocol):
    """A folder on the host, outside every workspace, whose files the container sees read-only."""

    def write(self, name: str, content: str, *, executable: bool = False) -> ReadOnlyMount:
        """Write `content` and return the mount whose target is the absolute path `name` in the container."""
