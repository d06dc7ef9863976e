"""One run, from the request to the branch: the story that everything else serves.

    prepare   what can be refused is refused before anything starts: repository, role, script
    work      clone in, start the container, connect, prompt, stream
    finish    end what still runs, bring the result out, write the last record

Above: `supervisor`. Below: the bridge and the gateway by their links, `supervisor.repo`, a sandbox, a driver. The run decides
nothing about calls; it walks `lifecycle`'s table and keeps the books.
"""

import logging
import os
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, cast

import anyio

from bridge.client import connect
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from sandboxes.sandbox import RunningSandbox, SandboxError
from sandboxes.sandbox_spec import SandboxLimits, SandboxSpec
from supervisor.approvals import ANSWER_TIMEOUT_MS
from supervisor.clock import utc_now
from supervisor.configure_worker_tools import configure_worker_tool_projection, projection_from_wire
from supervisor.lifecycle import Event, next_state
from supervisor.mediation import BridgeMediation
from supervisor.pinned_folder import PinnedFiles
from supervisor.repo import RepositoryError
from supervisor.run_changes import NO_RESULT, RunChanges
from supervisor.run_gateway import RunCallbacks, RunGateway
from supervisor.run_parts import RunParts
from supervisor.run_totals import Ending, RunTotals
from supervisor.worker_spec import RunRequest, WorkerRecord
from supervisor.worker_store import EventStream
from supervisor.workers.worker import LaunchPlan, TurnResult, WorkerEvent, WorkerTask

FINISH_TIMEOUT_S: Final = 120.0
"""Bringing out a large result takes seconds; past this the run ends without its branch and says so."""

EXIT_WAIT_S: Final = 2.0
FIRST_UID: Final = 200_000

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Run:
    """One worker and its one prompt. `prepare`, then `work`; `stop` at any time."""

    def __init__(self, request: RunRequest, record: WorkerRecord, parts: RunParts) -> None:
        self.request = request
        self.record = record
        self.totals = RunTotals()
        self.folder = parts.home.worker(record.id)
        self.folder.root.mkdir(mode=0o700, parents=True)
        self.events = EventStream(self.folder.events, record.id)
        self.ended = anyio.Event()
        self._parts = parts
        self._scope = anyio.CancelScope()
        self._ending: Ending | None = None
        self._grants: JsonObject = {}
        self.changes = RunChanges(Path(request.repo), self.folder.repo, record.id, self.append_record)
        callbacks = RunCallbacks(self.append_record, self.events.append, self.end)
        driver = parts.drivers[record.kind]
        self.gateway = RunGateway(request, record.id, self.folder, parts.gateway, driver, self.totals, callbacks)
        self._user = worker_user(record.id)
        self.mediation: BridgeMediation | None = None
        self._started_s = anyio.current_time()

    # prepare

    async def prepare(self) -> None:
        """Check everything a person can mend. Raises `Refusal`, `RepositoryError` or `MatrixError`; leaves nothing open."""
        try:
            await self.changes.inspect()
            self._grants = await self._parts.bridge.request("caller.open", self._caller())
            self.record = self.record.model_copy(update={"role": str(self._grants["role"])})
            self.mediation = BridgeMediation(
                self._parts.bridge, self._capability, self.changes.record_after, ANSWER_TIMEOUT_MS
            )
            await self.gateway.open(self._grants, self._user[0])
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._close_channels()
            raise
        self._parts.store.save(self.record)
        await self.append_record("worker.state", {"state": "preparing", "kind_of_worker": self.record.kind})
        for notice in self.changes.notices():
            self.events.append("notice", {"text": notice})

    def _caller(self) -> JsonObject:
        return {
            "kind": "worker",
            "worker": self.record.id,
            "run": self.record.run,
            "role": self.request.role,
            "policy": self.request.policy,
            "workspace": str(self.changes.workspace),
        }

    @property
    def _capability(self) -> str:
        return str(self._grants["capability"])

    # work

    async def work(self) -> None:
        """Everything after `prepare`. Never raises: each failure becomes the run's ending."""
        limit_s = self._time_limit_s()
        try:
            with self._scope, anyio.move_on_after(limit_s) as limit:
                await self._guarded_work()
            if limit.cancelled_caught:
                self.end(Ending("timedOut", "MX_AGENT_PROMPT_TIMEOUT", f"The run took longer than {limit_s:g} s."))
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish()

    async def _guarded_work(self) -> None:
        try:
            await self._work()
        except Exception as fault:  # noqa: BLE001 - a run ends with a typed error whatever happened in it
            self.end(ending_of(fault))

    async def _work(self) -> None:
        driver = self._parts.drivers[self.record.kind]
        image = self.request.image or await self._parts.worker_image()
        paths = cast("JsonObject", self._grants["paths"])
        for left_out in await self._phase("clone", self.changes.clone(self._user, paths)):
            self.events.append("notice", {"text": left_out})
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(self._parts.home.bridge_socket, self._capability))
            projections = tuple(projection_from_wire(form) for form in cast("list[JsonObject]", self._grants["tools"]))
            task = configure_worker_tool_projection(self._task(), projections, client)
            plan = driver.launch_plan(task, PinnedFiles(self.folder.pinned))
            self.gateway.expect(driver.expected_surface(task))
            await self._step("prepared")
            spec = self._sandbox_spec(plan, image)
            sandbox = await self._phase("start", stack.enter_async_context(self._parts.sandboxes.start(spec)))
            assert self.mediation is not None
            try:
                connecting = stack.enter_async_context(driver.connect(sandbox.stdio, task, self.mediation))
                worker = await self._phase("connect", connecting)
                await self._step("connected")
                async for item in worker.prompt(self.request.prompt):
                    self._take(item)
            except MatrixError as fault:
                raise await _true_cause(fault, sandbox) from fault
            if self._ending is not None and self._ending.code == "MX_AGENT_WORKER_EXITED":
                cause = await _true_cause(MatrixError("MX_AGENT_WORKER_EXITED", self._ending.message), sandbox)
                self._ending = Ending("failed", cause.code, cause.message)

    def _take(self, item: WorkerEvent | TurnResult) -> None:
        if isinstance(item, WorkerEvent):
            self.events.append(item.type, item.data)
        elif item.ok:
            self.end(Ending("completed"))
        else:
            self.end(Ending("failed", item.error or "MX_AGENT_WORKER_EXITED", item.message))

    def _task(self) -> WorkerTask:
        native = cast("dict[str, list[str]]", self._grants["native"])
        return WorkerTask(
            worker_id=self.record.id,
            model=self.gateway.opened.model or self.request.model,
            tools=(),
            instructions=self.changes.instructions(),
            allowed_native_ops=frozenset([*native["allow"], *native["ask"]]),
            surface=self.gateway.opened.codex_surface,
        )

    def _sandbox_spec(self, plan: LaunchPlan, image: str) -> SandboxSpec:
        asked = self.request.limits
        limits = replace(SandboxLimits(), memory_bytes=asked.memory_bytes, cpus=asked.cpus, pids=asked.pids)
        return SandboxSpec(
            worker_id=self.record.id,
            owner=str(self._parts.home.root),
            image=image,
            argv=plan.argv,
            uid=self._user[0],
            gid=self._user[1],
            workspace=self.changes.workspace,
            gateway_socket=self.folder.socket,
            env=plan.env,
            mounts=plan.mounts,
            limits=limits,
            runtime=self.request.runtime,
        )

    def _time_limit_s(self) -> float | None:
        budget = cast("JsonObject", self._grants.get("budget") or {}).get("seconds")
        limits = [limit for limit in (self.request.timeout_s, budget) if isinstance(limit, int | float)]
        return min(limits, default=None)

    # ending

    def end(self, ending: Ending) -> None:
        """Settle how the run ends, once, and end it. Later causes are consequences of the first."""
        if self._ending is None:
            self._ending = ending
            if ending.status != "completed":
                self._scope.cancel()

    def stop(self) -> None:
        """End the run as stopped."""
        self.end(Ending("stopped", "MX_AGENT_CANCELLED", "The run was stopped."))

    async def _finish(self) -> None:
        ending = self._ending or Ending("failed", "MX_AGENT_WORKER_EXITED", "The worker ended without a result.")
        await self._step("worked" if ending.status == "completed" else _event_of(ending))
        if self.mediation is not None:
            await self.mediation.finish_all("unknown")
        branch = dict(NO_RESULT)
        try:
            with anyio.fail_after(FINISH_TIMEOUT_S):
                branch = await self.changes.hand_over()
        except (RepositoryError, TimeoutError, OSError) as fault:
            what = (
                fault.message if isinstance(fault, RepositoryError) else f"the hand-over failed: {type(fault).__name__}"
            )
            text = f"{what} The work is kept in {self.folder.repo} until `mxs rm {self.record.id}`."
            self.events.append("notice", {"text": text})
            ending = (
                Ending("failed", ending.code or "MX_AGENT_ACTOR_ERROR", text)
                if ending.status == "completed"
                else ending
            )
        ending = await self._settle_gateway(ending)
        await self._close_channels()
        await self._write_result(ending, branch)

    async def _settle_gateway(self, ending: Ending) -> Ending:
        """The script's own failure explains a run that ended for any other reason but a person's."""
        error = await self.gateway.close()
        if error is None or ending.status in ("stopped", "timedOut", "refused"):
            return ending
        return Ending("failed", str(error.get("code")), str(error.get("message")))

    async def _write_result(self, ending: Ending, branch: JsonObject) -> None:
        state = next_state(self.record.state, "handedOver") if self.record.state == "finishing" else "ended"
        unmediated = self.gateway.unmediated(self.mediation.decided if self.mediation else set())
        await self.append_record(
            "worker.state",
            {"state": state, "status": ending.status, "error": ending.error(), **branch, "unmediated": unmediated},
        )
        result: JsonObject = {
            "kind": self.record.kind,
            "status": ending.status,
            **branch,
            "calls": self.totals.calls(),
            "inferences": self.totals.inferences,
            "tokens": {"input": self.totals.tokens_in, "output": self.totals.tokens_out},
            "durationMs": round((anyio.current_time() - self._started_s) * 1000),
            "audit": {"first": self.totals.first_record, "last": self.totals.last_record},
            "error": ending.error(),
        }
        self.record = self.record.model_copy(update={"state": state, "ended_at": utc_now(), "result": result})
        self._parts.store.save(self.record)
        self.events.append("result", result)
        self.events.close()
        self.ended.set()

    async def _close_channels(self) -> None:
        await self.gateway.close()
        if self._grants:
            try:
                await self._parts.bridge.request("caller.close", {"capability": self._capability})
            except MatrixError:
                return  # a bridge that is gone has no open capability

    # books

    async def append_record(self, kind: str, fields: JsonObject) -> None:
        """One record of this run, by way of the outbox."""
        identity: JsonObject = {"worker": self.record.id, "run": self.record.run}
        self.totals.note_record(await self._parts.outbox.append(kind, {**identity, **fields}))

    async def _step(self, event: Event) -> None:
        state = next_state(self.record.state, event)
        if state == self.record.state or state == "ended":
            return
        self.record = self.record.model_copy(update={"state": state})
        self._parts.store.save(self.record)
        self.events.append("state", {"state": state})
        await self.append_record("worker.state", {"state": state})

    async def _phase(self, name: str, work: Awaitable[_T]) -> _T:
        began = anyio.current_time()
        done = await work
        self.events.append("phase", {"phase": name, "ms": round((anyio.current_time() - began) * 1000)})
        return done


def ending_of(fault: BaseException) -> Ending:
    """The ending that a failure stands for; task groups wrap what was raised inside them."""
    while isinstance(fault, BaseExceptionGroup) and fault.exceptions:
        fault = fault.exceptions[0]
    if isinstance(fault, MatrixError):
        refused = fault.code == "MX_AGENT_GATE_REFUSED"
        return Ending("refused" if refused else "failed", fault.code, fault.message)
    if isinstance(fault, SandboxError):
        return Ending("failed", "MX_AGENT_SANDBOX_UNAVAILABLE", f"{fault.message} {fault.mend}")
    if isinstance(fault, RepositoryError):
        return Ending("failed", "MX_AGENT_WORKER_EXITED", f"{fault.message} {fault.mend}")
    _log.error("a run failed", exc_info=fault)
    return Ending(
        "failed", "MX_AGENT_WORKER_EXITED", f"The supervisor failed: {type(fault).__name__}; its log says more."
    )


def _event_of(ending: Ending) -> Event:
    return "stopped" if ending.status == "stopped" else "failed"


def worker_user(worker_id: str) -> tuple[int, int]:
    """uid and gid of a worker: as root one of its own, made from the 30 bits of its id; else the caller's."""
    if os.getuid() != 0:
        return os.getuid(), os.getgid()
    number = 0
    for letter in worker_id.rsplit("-", 1)[1]:
        number = number * 32 + "abcdefghijklmnopqrstuvwxyz234567".index(letter)
    return FIRST_UID + number, FIRST_UID + number


async def _true_cause(fault: MatrixError, sandbox: RunningSandbox) -> MatrixError:
    """Why a worker's channel ended: out of memory is told apart, and its last words are added."""
    if fault.code != "MX_AGENT_WORKER_EXITED":
        return fault
    with anyio.move_on_after(EXIT_WAIT_S):
        ended = await sandbox.wait()
        if ended.reason == "oom":
            return MatrixError(
                "MX_AGENT_SANDBOX_OOM", "The worker's container ran out of memory: raise [limits] memory."
            )
        words = (await sandbox.stderr_tail()).strip()
        said = f" Its last words: {words[-500:]}" if words else ""
        return MatrixError("MX_AGENT_WORKER_EXITED", f"The worker's process ended with code {ended.code}.{said}")
    return fault
