"""What the tests of both kinds of worker share: a mediation that remembers, pins in a folder, one Matrix tool, a prompt
run to its end. Each kind's `started_worker` adds its own connection and provider."""

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Generic, Protocol, TypeVar

from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import NativeCall, Outcome
from sandboxes import ReadOnlyMount, RunningSandbox
from supervisor.workers.worker import (
    NativeToolDef,
    NativeVerdict,
    ToolAnswer,
    TurnResult,
    WorkerEvent,
    WorkerKind,
    WorkerTask,
)

REFUSAL = "MX_AGENT_COMMAND_NOT_ALLOWED: the test's role does not grant this."
LIMIT_S = 60
UID = 1000
BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


def new_id(kind: WorkerKind) -> str:
    """An id like those of real workers, so that no two tests share a container's name."""
    return f"{kind}-" + "".join(secrets.choice(BASE32) for _ in range(6))


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


class Prompted(Protocol):
    """The part of `ConnectedWorker` that is driven here."""

    def prompt(self, text: str) -> AsyncIterator[WorkerEvent | TurnResult]: ...


Connection = TypeVar("Connection", bound=Prompted)
Provider = TypeVar("Provider")


@dataclass
class StartedWorker(Generic[Connection, Provider]):
    """What a test holds of a worker that answered its handshake."""

    worker: Connection
    task: WorkerTask
    workspace: Path
    provider: Provider
    sandbox: RunningSandbox
    events: list[WorkerEvent] = field(default_factory=list)

    async def prompt(
        self, text: str = "Go on.", on_event: Callable[[WorkerEvent], None] = lambda _: None
    ) -> TurnResult:
        """Run one prompt to its end; its events are kept."""
        result: TurnResult | None = None
        async for item in self.worker.prompt(text):
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
