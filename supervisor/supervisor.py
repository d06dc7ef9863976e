"""The supervisor: one per state folder. Holds the bridge, the gateway and every run, and answers the control API.

Bridge and gateway start before runs, and end after them. Above: `daemon`, `control.api`. It decides
nothing about calls: it starts, watches, asks and ends.
"""

import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

import supervisor
from bridge.client import connect
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from sandboxes import SandboxError
from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_sandbox import DockerSandboxes
from supervisor.actor_sources import ActorSources
from supervisor.approvals import ANSWER_TIMEOUT_MS, Approvals
from supervisor.bridge_link import BridgeCallbacks, BridgeLink
from supervisor.clock import utc_now
from supervisor.drivers import driver_of, import_all
from supervisor.first_cause import first_cause
from supervisor.gateway_link import GatewayCallbacks, GatewayLink
from supervisor.home import StateFolder
from supervisor.leftovers import close_leftovers
from supervisor.outbox import Outbox
from supervisor.refusal import EXIT_FAILED, EXIT_UNAVAILABLE, Refusal
from supervisor.removal import remove_worker
from supervisor.repo import RepositoryError
from supervisor.run import Run
from supervisor.run_ending import ending_of
from supervisor.run_parts import RunParts
from supervisor.run_totals import Ending
from supervisor.worker_image import WorkerImage
from supervisor.worker_spec import RunRequest, WorkerRecord, new_worker_id
from supervisor.worker_store import WorkerStore, read_lines

STOP_TIMEOUT_S: Final = 30.0
"""Stopping a run: the container's grace, the hand-over of what it did, the last record."""

DELIVER_TIMEOUT_MS: Final = 10_000
"""For one record: a bridge that hangs must not hold up the end of a run. The record waits in the outbox."""


class Supervisor:
    """Everything that lives as long as the daemon."""

    def __init__(self, home: StateFolder, root: str) -> None:
        self._home = home
        self._root = root
        self._runs: dict[str, Run] = {}
        self._ending = anyio.Event()
        self.stopped = anyio.Event()
        """Every run has ended: the control API has only to send what is left to say."""
        self.store = WorkerStore(home)
        self.approvals = Approvals()
        callbacks = BridgeCallbacks(
            self._ask_approval, self._on_call_event, self._on_bridge_lost, self._on_bridge_ready
        )
        self._bridge = BridgeLink(home, root, callbacks)
        self._gateway = GatewayLink(home, GatewayCallbacks(self._on_gateway_event, self._on_gateway_lost))
        self._outbox = Outbox(home.outbox, self._deliver)
        self._sources = ActorSources(self.store, self._bridge.request)
        self._tasks: TaskGroup | None = None
        self._engine = DockerEngine()
        self._image = WorkerImage(home.logs / "image.log")

    # life

    async def run(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the children, close what an earlier supervisor left, serve until the end is requested.

        `serve` is to return soon after `stopped`.
        """
        async with anyio.create_task_group() as children:
            async with anyio.create_task_group() as starting:
                starting.start_soon(children.start, self._bridge.run)
                starting.start_soon(children.start, self._gateway.run)
            await close_leftovers(self._engine, self._home, self.store, self._outbox)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(serve)
                tasks.start_soon(anyio.to_thread.run_sync, import_all)
                await self._ending.wait()
                await self._stop_all()
                self.stopped.set()
            children.cancel_scope.cancel()
        await self._engine.aclose()

    def request_end(self) -> None:
        """Begin to end: runs are stopped, then children, then the process."""
        self._ending.set()

    async def _stop_all(self) -> None:
        for run in self._runs.values():
            run.stop()
        with anyio.move_on_after(STOP_TIMEOUT_S):
            for run in list(self._runs.values()):
                await run.ended.wait()

    def status(self) -> JsonObject:
        """What `mxs status` shows."""
        return {
            "version": supervisor.__version__,
            "pid": os.getpid(),
            "home": str(self._home.root),
            "root": self._root,
            "bus": "local",
            "bridge": {"pid": self._bridge.pid},
            "gateway": {"pid": self._gateway.pid},
            "workers": {"running": len(self._runs)},
            "recordsWaiting": len(self._outbox.waiting()),
        }

    # runs

    async def start_run(self, request: RunRequest) -> WorkerRecord:
        """Check the request and start its run. Raises `Refusal`; then nothing of it is left."""
        if self._ending.is_set():
            raise Refusal("The supervisor is ending.", "Try again in a moment.", exit_code=EXIT_UNAVAILABLE)
        self._refuse_taken_name(request.name)
        record = WorkerRecord(
            id=new_worker_id(request.kind),
            kind=request.kind,
            name=request.name,
            run=f"run-{secrets.token_hex(8)}",
            prompt=request.prompt,
            repo=request.repo,
            role=request.role or "",
            state="preparing",
            created_at=utc_now(),
        )
        try:
            run = self._runs[record.id] = Run(request, record, self._parts())
            await run.prepare()
        except BaseException as fault:
            if (failed := self._runs.pop(record.id, None)) is not None:
                failed.ended.set()
            self.store.remove(record.id)
            raise _as_refusal(fault) from fault
        assert self._tasks is not None
        self._tasks.start_soon(self._work, run)
        return run.books.record

    async def _work(self, run: Run) -> None:
        try:
            await self._sources.guard()
        except MatrixError as fault:
            run.end(ending_of(fault))  # before anything of it has started
        try:
            await run.work()
        finally:
            self._runs.pop(run.id, None)

    def _parts(self) -> RunParts:
        return RunParts(
            home=self._home,
            store=self.store,
            bridge=self._bridge,
            gateway=self._gateway,
            sandboxes=DockerSandboxes(self._engine),
            outbox=self._outbox,
            driver_of=driver_of,
            worker_image=self._image.ready,
        )

    def _refuse_taken_name(self, name: str | None) -> None:
        if name is not None and any(name in (record.name, record.id) for record in self.store.all()):
            raise Refusal(f"The name {name!r} is taken.", "Choose another, or remove that worker with `mxs rm`.")

    async def stop(self, word: str) -> None:
        """Stop a running worker and wait for its end. A worker that has ended is left as it is.

        Raises `Refusal` where its end takes longer; it ends all the same.
        """
        record = self.store.find(word)
        run = self._runs.get(record.id)
        if run is not None:
            run.stop()
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await run.ended.wait()
            if not run.ended.is_set():
                mend = f"Nothing is lost: `mxs logs -f {record.id}` shows its end."
                raise Refusal(f"{record.id} is still bringing out its work.", mend, exit_code=EXIT_FAILED)

    async def remove(self, word: str, *, force: bool) -> None:
        """Forget an ended worker. Raises `Refusal`: it runs, or its result is nowhere else and not `force`."""
        await remove_worker(self._home, self.store.find(word), force=force)

    async def follow(self, word: str) -> AsyncIterator[str]:
        """A worker's events from its beginning; of an ended worker, what was kept. Raises `UnknownWorkerError`."""
        record = self.store.find(word)
        run = self._runs.get(record.id)
        return run.books.events.follow() if run is not None else _kept(self._home, record.id)

    # the bridge

    async def ask_bridge(self, method: str, params: JsonObject) -> JsonObject:
        """A method of the bridge on behalf of the command line. Actors given once stay until `down`."""
        if method == "actors.add":
            return await self._sources.add(str(params.get("path", "")))
        return await self._bridge.request(method, params)

    async def invoke(self, caller: JsonObject, target: str, op: str, payload: str) -> JsonObject:
        """One call as a person: `{"result"}` or `{"error"}`. `caller` has role, policy and timeouts."""
        person: JsonObject = {"kind": "person", "worker": None, "run": None, "workspace": None}
        grants = await self._bridge.request("caller.open", {**caller, **person})
        capability = str(grants["capability"])
        try:
            async with connect(self._home.bridge_socket, capability) as client:
                call, result = await client.invoke_text(target, op, payload)
                return {"call": call, "result": result}
        except MatrixError as error:
            return {"error": cast("JsonObject", error.to_wire())}
        finally:
            with suppress(MatrixError):  # a bridge that is gone has no open capability
                await self._bridge.request("caller.close", {"capability": capability})

    async def _deliver(self, record: JsonObject) -> int:
        answer = await self._bridge.request("record.append", record, DELIVER_TIMEOUT_MS)
        return int(cast("int", answer["seq"]))

    async def _ask_approval(self, question: JsonObject) -> JsonObject:
        worker = str(question.get("worker") or "")
        run = self._runs.get(worker)
        if run is None or not run.request.interactive:
            return {"verdict": "deny", "by": "nobody is there to ask"}
        pending = self.approvals.ask(worker, question)
        run.books.show("approval", {"number": pending.number, **question})
        deadline = question.get("deadlineMs")
        bound = deadline if isinstance(deadline, int) else ANSWER_TIMEOUT_MS
        return await self.approvals.wait_answer(pending, min(bound, ANSWER_TIMEOUT_MS))

    async def _on_call_event(self, event: JsonObject) -> None:
        run = self._runs.get(str(event.get("worker")))
        if run is not None:
            run.books.take_call(event)

    def _on_bridge_lost(self) -> None:
        lost = Ending(
            "failed", "MX_AGENT_BRIDGE_UNAVAILABLE", "The bridge ended while the worker ran; nothing runs without it."
        )
        for run in self._runs.values():
            run.end(lost)

    async def _on_bridge_ready(self) -> None:
        await self._outbox.flush()
        await self._sources.give_again()

    # the gateway

    async def _on_gateway_event(self, event: JsonObject) -> None:
        run = self._runs.get(str(event.get("worker")))
        if run is not None and self._tasks is not None:
            self._tasks.start_soon(run.gateway.take, event)

    def _on_gateway_lost(self) -> None:
        lost = Ending("failed", "MX_AGENT_INFERENCE_FAILED", "The model gateway ended while the worker ran.")
        for run in self._runs.values():
            run.end(lost)


def _as_refusal(fault: BaseException) -> BaseException:
    fault = first_cause(fault)
    if isinstance(fault, MatrixError):
        return Refusal.from_error(fault)
    if isinstance(fault, RepositoryError):
        return Refusal(fault.message, fault.mend, exit_code=fault.exit_code)
    if isinstance(fault, SandboxError):
        return Refusal(fault.message, fault.mend, exit_code=EXIT_UNAVAILABLE, code="MX_AGENT_SANDBOX_UNAVAILABLE")
    if isinstance(fault, OSError):
        what = f"The state folder cannot be written: {fault.strerror}."
        return Refusal(what, "Free some space, and check the rights of $MXS_HOME.", exit_code=EXIT_UNAVAILABLE)
    return fault


async def _kept(home: StateFolder, worker_id: str) -> AsyncIterator[str]:
    lines, _ = read_lines(home.worker(worker_id).events, 0)
    for line in lines:
        yield line
