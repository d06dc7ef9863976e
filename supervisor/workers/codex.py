"""The driver for Codex: the real program in a container, driven over its stdio as `codex app-server`.

Where the parts meet: `codex_launch` (what to start), `codex_app_server` (what is asked of the program),
`codex_tools` (Matrix tools), `codex_mediation` (its own tools), `codex_turn` (what one prompt shows and when it is
over). Knows no Docker, no bridge and no policy. Above: the supervisor, through `WorkerDriver`.
"""

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream

from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import method_not_found
from bridge.contract.json_types import JsonObject, JsonValue
from sandboxes.sandbox_spec import HELPER
from supervisor.workers import codex_launch
from supervisor.workers.codex_app_server import MAX_HELD_BYTES, MAX_LINE_BYTES, AppServer
from supervisor.workers.codex_mediation import UNAVAILABLE, CodexMediation
from supervisor.workers.codex_tools import CodexTools
from supervisor.workers.codex_turn import Turn
from supervisor.workers.native_codex import GATEWAY_JUDGED_TOOLS, judge_witnessed
from supervisor.workers.worker import (
    LaunchPlan,
    NativeMediation,
    NativeVerdict,
    PinnedFolder,
    TurnResult,
    WorkerEvent,
    WorkerKind,
    WorkerTask,
)

STOP_TIMEOUT_S: Final = 5.0
"""An interrupted turn ends in milliseconds; one that does not is left to the end of its container."""
LAST_ITEMS_S: Final = 0.5
"""Killed commands report their end at once; what stays silent is recorded as cancelled."""

logger = logging.getLogger(__name__)


class CodexDriver:
    """`WorkerDriver` for Codex. One object serves many workers; each has its own channel and its own calls."""

    kind: WorkerKind = "codex"

    def __init__(self) -> None:
        self._connected: dict[str, CodexWorker] = {}

    @property
    def judged_at_gateway(self) -> frozenset[str]:
        """The tools that no hook of Codex covers."""
        return GATEWAY_JUDGED_TOOLS

    def launch_plan(self, task: WorkerTask, pinned: PinnedFolder) -> LaunchPlan:
        """What to start. Raises `MatrixError` where the wheel brings no program."""
        return codex_launch.launch_plan(task, pinned)

    def expected_surface(self, task: WorkerTask) -> frozenset[str]:
        """The names in each request of the main thread; empty where the model's metadata decides."""
        return codex_launch.expected_surface(task)

    @asynccontextmanager
    async def connect(
        self, stdio: ByteStream, task: WorkerTask, mediation: NativeMediation
    ) -> AsyncIterator["CodexWorker"]:
        """Do the handshake over `stdio`. Raises `MatrixError` within a bound: WORKER_EXITED, or GATE_REFUSED where the
        program did not take its pins."""
        worker = CodexWorker(stdio, task, mediation)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.serve)
            fault: MatrixError | None = None
            try:
                await worker.handshake(task)
                self._connected[task.worker_id] = worker
                yield worker
            except MatrixError as error:  # carried out of the group as itself, not as a group of one
                fault = error
            finally:
                self._connected.pop(task.worker_id, None)
                await worker.aclose()
                tasks.cancel_scope.cancel()
        if fault is not None:
            raise fault

    async def answer_hook(self, worker_id: str, body: JsonObject) -> JsonObject:
        """Judge what the managed hook of `worker_id` is about: `{"allow": bool, "message": str}`. Any fault refuses."""
        worker = self._connected.get(worker_id)
        verdict = NativeVerdict("", False, UNAVAILABLE) if worker is None else await worker.calls.answer_hook(body)
        return _answer(verdict)

    async def answer_witnessed(
        self, worker_id: str, call: str, tool: str, arguments: JsonObject, agent: str | None = None
    ) -> JsonObject:
        """Judge a call of `GATEWAY_JUDGED_TOOLS` that the gateway saw in a model's answer, before the worker sees it.

        `call` is the id in that answer; a hook that asks about the same call later gets the same verdict.
        """
        worker, native = self._connected.get(worker_id), judge_witnessed(tool, arguments)
        if native is None:
            return {"allow": True, "message": ""}
        if worker is None:
            return _answer(NativeVerdict("", False, UNAVAILABLE))
        return _answer(await worker.calls.decide(native, call, agent))


class CodexWorker:
    """A Codex that was started; after `handshake` it takes prompts, one at a time."""

    def __init__(self, stdio: ByteStream, task: WorkerTask, mediation: NativeMediation) -> None:
        self.calls = CodexMediation(mediation, frozenset(tool.name for tool in task.tools), self._emit)
        self._tools = CodexTools(task.tools)
        self._peer = JsonRpcPeer(
            stdio,
            self._on_request,
            self._on_notification,
            MAX_LINE_BYTES,
            version_member=False,
            closed_code="MX_AGENT_WORKER_EXITED",
            max_held_bytes=MAX_HELD_BYTES,
        )
        self._server = AppServer(self._peer)
        self._thread = ""
        self._turn: Turn | None = None

    # life

    async def serve(self) -> None:
        """Read the channel until it ends; a prompt that runs then ends with it."""
        await self._peer.run()
        if self._turn is not None:
            self._turn.give_up("MX_AGENT_WORKER_EXITED", "The worker's process ended before its work did.")

    async def handshake(self, task: WorkerTask) -> None:
        """Initialize, prove the hook, open the thread. Raises `MatrixError`."""
        await self._server.initialize()
        await self._server.require_hook(str(HELPER))
        self._thread = await self._server.open_thread(task)

    async def aclose(self) -> None:
        """Close the channel, which ends the program. Idempotent."""
        self._tools.cancel_all()
        await self._peer.aclose()

    # one prompt

    async def prompt(self, text: str) -> AsyncIterator[WorkerEvent | TurnResult]:
        """Run one prompt, live; the last item is the `TurnResult`. How long it may take is the caller's to bound."""
        if self._turn is not None:
            raise MatrixError("MX_AGENT_LIMIT", "A prompt is running on this worker already: wait for its end.")
        turn = self._turn = Turn(self._thread)
        try:
            await self._begin(turn, text)
            async for event in turn.live():
                yield event
            await self._end(turn)
            for event in turn.rest():
                yield event
            yield turn.result()
        finally:
            self._turn = None
            turn.close()

    async def _begin(self, turn: Turn, text: str) -> None:
        try:
            await self._server.start_turn(self._thread, text)
        except MatrixError as error:
            turn.give_up(error.code, error.message)
        if self._peer.closed:
            turn.give_up("MX_AGENT_WORKER_EXITED", "The worker's process ended before its work did.")

    async def _end(self, turn: Turn) -> None:
        """Nothing of the prompt runs on: its commands are killed, and every call's record is closed."""
        with anyio.CancelScope(shield=True):
            await self._clean(turn)
            with anyio.move_on_after(0 if self._peer.closed else LAST_ITEMS_S):
                await self.calls.wait_until_ended()
            await self.calls.end_open_calls("unknown" if self._peer.closed else "cancelled")

    async def _clean(self, turn: Turn) -> None:
        for thread in turn.threads:
            await _bounded(self._server.clean_terminals(thread))

    async def interrupt(self) -> None:
        """Stop the running prompt, its commands and pending calls. Bounded; the prompt then ends as not ok."""
        turn = self._turn
        if turn is None:
            return
        self._tools.cancel_all()
        for thread, number in turn.running.items():
            await _bounded(self._server.interrupt(thread, number))
        await self._clean(turn)
        with anyio.move_on_after(STOP_TIMEOUT_S):
            await turn.over.wait()
        turn.give_up("MX_AGENT_CANCELLED", "The prompt was interrupted.")

    # what the program says

    def _emit(self, event: WorkerEvent) -> None:
        if self._turn is not None:
            self._turn.emit(event)

    async def _on_notification(self, method: str, params: JsonObject) -> None:
        item = params.get("item")
        if isinstance(item, dict) and method == "item/started":
            self.calls.item_started(item)
        if isinstance(item, dict) and method == "item/completed":
            await self.calls.item_completed(item)
        if self._turn is not None:
            self._turn.take(method, params)

    async def _on_request(self, method: str, params: JsonObject) -> JsonValue:
        """Every request of the program is answered: what only a person could answer is refused at once."""
        match method:
            case "item/tool/call":
                return await self._tools.call(params)
            case "item/commandExecution/requestApproval":
                return _decision(await self.calls.approve_command(params, self._agent(params)))
            case "item/fileChange/requestApproval":
                return _decision(await self.calls.approve_patch(params, self._agent(params)))
            case "item/permissions/requestApproval":
                return {"permissions": {}, "scope": "turn"}
            case "item/tool/requestUserInput":
                return {"answers": {}}
            case "mcpServer/elicitation/request":
                return {"action": "decline"}
            case "execCommandApproval" | "applyPatchApproval":
                return {
                    "decision": {"denied": {"rejection": "This request is of an older protocol and is not judged."}}
                }
            case _:
                raise method_not_found(method)

    def _agent(self, params: JsonObject) -> str | None:
        thread = params.get("threadId")
        return thread if isinstance(thread, str) and thread != self._thread else None


async def _bounded(asking: Awaitable[None]) -> None:
    """Ask the program to stop something; where it cannot, the end of its container does."""
    try:
        with anyio.fail_after(STOP_TIMEOUT_S):
            await asking
    except (MatrixError, TimeoutError) as error:
        logger.warning("the program did not stop what it was told to stop: %s", type(error).__name__)


def _decision(allowed: bool) -> JsonObject:
    return {"decision": "accept" if allowed else "decline"}


def _answer(verdict: NativeVerdict) -> JsonObject:
    return {"allow": verdict.allowed, "message": verdict.message if verdict.allowed else verdict.message or UNAVAILABLE}
