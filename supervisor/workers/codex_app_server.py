"""The Codex app-server's protocol: what is asked of it, with its own words, and nothing of what it asks.

Each method is one request or its shape over a `JsonRpcPeer`; no state but the channel. Knows no tools, no mediation
and no container. Above: `codex`. The protocol writes itself down with `codex app-server generate-json-schema
--experimental`.
"""

from dataclasses import dataclass
from typing import Final

from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject, JsonValue
from sandboxes.sandbox_spec import WORKSPACE
from supervisor.workers.codex_launch import APPROVAL_POLICY, PROVIDER, SANDBOX_MODE, model_of
from supervisor.workers.codex_tools import dynamic_tools
from supervisor.workers.worker import WorkerTask

HANDSHAKE_TIMEOUT_MS: Final = 30_000
"""A cold start on a busy machine takes about a second; past this something is broken."""
REQUEST_TIMEOUT_MS: Final = 10_000
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""The program's own cap on what a command prints is 1 MiB, but an item repeats a whole patch."""

MAX_HELD_BYTES: Final = 64 * 1024 * 1024
"""Of lines that are still being handled: everything in the container can write to the program's output, and a flood
has to wait there and not in the supervisor's memory."""

UNWANTED: Final[list[JsonValue]] = [
    "turn/diff/updated",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/plan/delta",
    "account/rateLimits/updated",
    "thread/tokenUsage/updated",
    "thread/readState/changed",
    "remoteControl/status/changed",
    "hook/started",
    "hook/completed",
]
"""Notifications that nobody here reads, some of them with a whole diff each time."""


@dataclass(frozen=True)
class AppServer:
    """The requests that a client makes. Each raises `MatrixError`: the program's refusal, a time-out, WORKER_EXITED."""

    peer: JsonRpcPeer

    async def initialize(self) -> None:
        """The first exchange of the channel."""
        client: JsonObject = {"name": "matrix-supervisor", "title": "matrix-supervisor", "version": "1"}
        capabilities: JsonObject = {"experimentalApi": True, "optOutNotificationMethods": UNWANTED}
        await self._ask("initialize", {"clientInfo": client, "capabilities": capabilities}, HANDSHAKE_TIMEOUT_MS)
        await self.peer.notify("initialized")

    async def open_thread(self, task: WorkerTask) -> str:
        """Start a thread, or resume `task.resume`; its id. Refuses (GATE_REFUSED) where the pins did not take."""
        pins = _thread_pins(task)
        if task.resume is None:
            start: JsonObject = {"ephemeral": False, "dynamicTools": dynamic_tools(task.tools)}
            opened = await self._ask("thread/start", {**pins, **start}, HANDSHAKE_TIMEOUT_MS)
        else:  # a resumed thread keeps its tools, and its policy in a file that the worker could have edited
            opened = await self._ask("thread/resume", {**pins, "threadId": task.resume}, HANDSHAKE_TIMEOUT_MS)
        _check_pins(opened)
        thread = opened.get("thread")
        return str(thread.get("id", "")) if isinstance(thread, dict) else ""

    async def require_hook(self, command_part: str) -> None:
        """Refuse (GATE_REFUSED) unless the managed hook that asks us is the one hook of the program."""
        listed = await self._ask("hooks/list", {"cwds": [str(WORKSPACE)]}, REQUEST_TIMEOUT_MS)
        hooks = [hook for entry in _objects(listed.get("data")) for hook in _objects(entry.get("hooks"))]
        ours = [hook for hook in hooks if command_part in str(hook.get("command", ""))]
        if len(ours) != 1 or len(hooks) != 1:
            raise _not_pinned(f"it has {len(hooks)} hooks, of which {len(ours)} ask for permission")

    async def start_turn(self, thread: str, text: str) -> str:
        """Begin the work on one prompt; the turn's id."""
        given: list[JsonValue] = [{"type": "text", "text": text}]
        answer = await self._ask("turn/start", {"threadId": thread, "input": given}, HANDSHAKE_TIMEOUT_MS)
        turn = answer.get("turn")
        return str(turn.get("id", "")) if isinstance(turn, dict) else ""

    async def interrupt(self, thread: str, turn: str) -> None:
        """End a running turn; a command of it goes on until `clean_terminals`."""
        await self._ask("turn/interrupt", {"threadId": thread, "turnId": turn}, REQUEST_TIMEOUT_MS)

    async def clean_terminals(self, thread: str) -> None:
        """Kill the commands that a thread left running, with their children."""
        await self._ask("thread/backgroundTerminals/clean", {"threadId": thread}, REQUEST_TIMEOUT_MS)

    async def _ask(self, method: str, params: JsonObject, timeout_ms: int) -> JsonObject:
        try:
            answer = await self.peer.request(method, params, timeout_ms, timeout_code="MX_AGENT_WORKER_EXITED")
        except MatrixError as error:
            if error.code == "MX_AGENT_ACTOR_ERROR":  # the program's own refusal, in its words
                raise MatrixError("MX_AGENT_WORKER_EXITED", f"Codex refused {method!r}: {error.message}") from None
            raise
        return answer if isinstance(answer, dict) else {}


def _thread_pins(task: WorkerTask) -> JsonObject:
    pins: JsonObject = {
        "cwd": str(WORKSPACE),
        "approvalPolicy": APPROVAL_POLICY,
        "approvalsReviewer": "user",
        "sandbox": SANDBOX_MODE,
        "modelProvider": PROVIDER,
    }
    if (model := model_of(task)) is not None:
        pins["model"] = model
    if task.instructions:
        pins["developerInstructions"] = task.instructions
    return pins


def _check_pins(opened: JsonObject) -> None:
    expected: JsonObject = {"approvalPolicy": APPROVAL_POLICY, "approvalsReviewer": "user", "modelProvider": PROVIDER}
    for key, value in expected.items():
        if opened.get(key) != value:
            raise _not_pinned(f"{key!r} is {opened.get(key)!r} and not {value!r}")
    if opened.get("instructionSources"):
        raise _not_pinned(f"it read instructions from {opened['instructionSources']!r}")


def _not_pinned(what: str) -> MatrixError:
    message = f"Codex did not start as it was told: {what}. Its version may be one this program was not made for."
    return MatrixError("MX_AGENT_GATE_REFUSED", message)


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
