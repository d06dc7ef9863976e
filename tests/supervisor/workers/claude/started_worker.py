"""A real Claude Code in a real container, driven by the real driver, with a mediation that the test writes."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

import anyio
from watchfiles import awatch

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import NativeCall, Outcome
from sandboxes import ReadOnlyMount, RunningSandbox
from supervisor.workers.claude_code import ClaudeCodeDriver
from supervisor.workers.claude_code_session import ClaudeSession
from supervisor.workers.worker import (
    NativeMediation,
    NativeToolDef,
    NativeVerdict,
    ToolAnswer,
    TurnResult,
    WorkerEvent,
    WorkerTask,
)
from tests.supervisor.workers.claude.scripted_provider import ScriptedProvider

REFUSAL = "MX_AGENT_COMMAND_NOT_ALLOWED: the test's role does not grant this."
ALL_OPS = frozenset({"shell.exec", "file.read", "file.write", "agent.spawn"})


@dataclass
class RecordingMediation:
    """Allows what `allows` allows, and remembers what it was asked and told."""

    allows: Callable[[NativeCall], bool] = lambda _call: True
    asked: list[tuple[NativeCall, str, str | None]] = field(default_factory=list)
    ended: dict[str, tuple[Outcome, str]] = field(default_factory=dict)

    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        self.asked.append((native, worker_call, agent))
        return NativeVerdict(f"call-{len(self.asked)}", self.allows(native), REFUSAL)

    async def finish(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        assert worker_call not in self.ended, "one end for each call"
        self.ended[worker_call] = (outcome, result)

    def ops(self) -> list[str]:
        return [native.op for native, _, _ in self.asked]


@dataclass(frozen=True)
class FolderOfPins:
    """`PinnedFolder` in a temporary folder."""

    folder: Path

    def write(self, name: str, content: str, *, executable: bool = False) -> ReadOnlyMount:
        path = self.folder / name.strip("/").replace("/", "+")
        path.write_text(content)
        path.chmod(0o755 if executable else 0o644)
        return ReadOnlyMount(path, PurePosixPath(name))


async def answer_stock(arguments: JsonObject, _worker_call: str | None) -> ToolAnswer:
    """The handler of the tests' one Matrix tool."""
    if arguments.get("sku") == "REFUSED":
        message = "MX_AGENT_OUT_OF_SUBTREE: 'demo.other' lies in no grant."
        error: JsonObject = {"error": {"code": "MX_AGENT_OUT_OF_SUBTREE", "message": message}}
        return ToolAnswer(message, error, is_error=True)
    return ToolAnswer('{"available":147}', {"available": 147}, is_error=False)


STOCK = NativeToolDef(
    name="demo_inventory__inventory_check",
    description="How many items of a SKU are in stock.",
    input_schema={"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
    handler=answer_stock,
    title="acme.com/demo.inventory/inventory.check",
)
STOCK_ON_SURFACE = "mcp__matrix__demo_inventory__inventory_check"


async def appears(path: Path) -> None:
    """Wait until there is a file at `path`, which a worker makes."""
    async for _ in awatch(path.parent, yield_on_timeout=True, rust_timeout=100):
        if await anyio.Path(path).exists():
            return


@dataclass
class StartedWorker:
    """What a test holds of a worker that answered its handshake."""

    session: ClaudeSession
    task: WorkerTask
    workspace: Path
    provider: ScriptedProvider
    sandbox: RunningSandbox
    events: list[WorkerEvent] = field(default_factory=list)

    async def prompt(
        self, text: str = "Go on.", on_event: Callable[[WorkerEvent], None] = lambda _: None
    ) -> TurnResult:
        """Run one prompt to its end; its events are kept."""
        result: TurnResult | None = None
        async for item in self.session.prompt(text):
            assert result is None, "the result is the last item"
            if isinstance(item, TurnResult):
                result = item
            else:
                self.events.append(item)
                on_event(item)
        assert result is not None
        return result

    def shown(self, kind: str) -> list[JsonObject]:
        """The data of the events of one type."""
        return [event.data for event in self.events if event.type == kind]


class Start(Protocol):
    """`start(provider, mediation, …)` of the fixture: a worker that answered its handshake."""

    def __call__(
        self,
        provider: ScriptedProvider,
        mediation: NativeMediation,
        driver: ClaudeCodeDriver | None = None,
        *,
        ops: frozenset[str] = ALL_OPS,
        instructions: str = "",
        resume: str | None = None,
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        reachable: bool = True,
    ) -> AbstractAsyncContextManager[StartedWorker]: ...
