"""One run, from the request to the branch: the story that everything else serves.

    prepare   what can be refused is refused before anything starts: repository, role, script
    work      clone in, start the container, connect, prompt, stream
    finish    end what still runs, bring the result out, write the last record

Above: `supervisor`. Below: the bridge and the gateway by their links, `run_changes` for the repository, a sandbox, a
driver. The run decides nothing about calls.
"""

from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import anyio

from bridge.client import connect
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from sandboxes.gateway.egress_list import proxy_variables
from sandboxes.sandbox import RunningSandbox
from sandboxes.sandbox_spec import SandboxLimits, SandboxSpec
from supervisor.approvals import ANSWER_TIMEOUT_MS
from supervisor.configure_worker_tools import configure_worker_tool_projection, projection_from_wire
from supervisor.lifecycle import Event
from supervisor.mediation import BridgeMediation
from supervisor.pinned_folder import PinnedFiles
from supervisor.repo import RepositoryError
from supervisor.run_books import RunBooks
from supervisor.run_changes import NO_RESULT, RunChanges
from supervisor.run_ending import ending_of, true_cause
from supervisor.run_gateway import RunCallbacks, RunGateway
from supervisor.run_parts import RunParts
from supervisor.run_totals import Ending
from supervisor.worker_spec import RunRequest, Status, WorkerRecord
from supervisor.worker_user import worker_user
from supervisor.workers.worker import LaunchPlan, TurnResult, WorkerEvent, WorkerTask

FINISH_TIMEOUT_S: Final = 120.0
"""Bringing out a large result takes seconds; past this the run ends without its branch and says so."""


_EVENT_OF_STATUS: Final[dict[Status, Event]] = {
    "completed": "worked",
    "stopped": "stopped",
    "failed": "failed",
    "refused": "failed",
    "timedOut": "failed",
}


class Run:
    """One worker and its one prompt. `prepare`, then `work`; `stop` at any time."""

    def __init__(self, request: RunRequest, record: WorkerRecord, parts: RunParts) -> None:
        self.request = request
        self.id = record.id
        self.ended = anyio.Event()
        self._parts = parts
        self._folder = parts.home.worker(record.id)
        self._folder.root.mkdir(mode=0o700, parents=True)
        self._driver = parts.driver_of(record.kind)
        self._user = worker_user(record.id)
        self._scope = anyio.CancelScope()
        self._ending: Ending | None = None
        self._grants: JsonObject = {}
        self._mediation: BridgeMediation | None = None
        self.books = RunBooks(record, self._folder, parts.store, parts.outbox)
        self.books.on_unwritable = self.end
        self.changes = RunChanges(Path(request.repo), self._folder.repo, record.id, self.books.append)
        callbacks = RunCallbacks(self.books.append, self.books.show, self.end)
        self.gateway = RunGateway(
            request, record.id, self._folder, parts.gateway, self._driver, self.books.totals, callbacks
        )

    # prepare

    async def prepare(self) -> None:
        """Check what a person can mend. Raises `RepositoryError`, `MatrixError` or a group; leaves nothing open."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.changes.inspect)
                await self._open_channels()
            self.changes.make_workspace()
            await self.books.open(str(self._grants["role"]))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._close_channels()
            raise
        for notice in (*self.changes.notices(), *self._unenforced()):
            self._notify(notice)

    def _unenforced(self) -> list[str]:
        """What the policy asks for and this version does not hold: a rule that silently does not apply is worse."""
        budget = cast("JsonObject", self._grants.get("budget") or {})
        return ["The role's budget.usd is not enforced by this version."] if budget.get("usd") is not None else []

    async def _open_channels(self) -> None:
        self._grants = await self._parts.bridge.request("caller.open", self._caller())
        self._mediation = BridgeMediation(
            self._parts.bridge, self._capability, self.changes.record_after, ANSWER_TIMEOUT_MS
        )
        await self.gateway.open(self._grants, self._user[0])

    def _caller(self) -> JsonObject:
        timeouts = self.request.timeouts
        return {
            "kind": "worker",
            "worker": self.id,
            "run": self.books.record.run,
            "role": self.request.role,
            "policy": self.request.policy,
            "workspace": str(self.changes.workspace),
            "timeouts": {"toolMs": timeouts.tool_ms, "introspectMs": timeouts.introspect_ms},
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
                self.end(self._out_of_time())
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._finish()
                finally:
                    self.ended.set()

    async def _guarded_work(self) -> None:
        try:
            await self._work()
        except Exception as fault:  # noqa: BLE001 - a run ends with a typed error whatever happened in it
            self.end(ending_of(fault))

    async def _work(self) -> None:
        image = self.request.image
        if image is None:
            image = await self.books.phase("image", self._parts.worker_image(self._notify))
        async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
            cloned = anyio.Event()
            tasks.start_soon(self._clone, cloned)  # the engine makes the container meanwhile
            client = await stack.enter_async_context(connect(self._parts.home.bridge_socket, self._capability))
            projections = tuple(projection_from_wire(form) for form in cast("list[JsonObject]", self._grants["tools"]))
            task = configure_worker_tool_projection(await self._task(), projections, client)
            plan = self._driver.launch_plan(task, PinnedFiles(self._folder.pinned))
            self.gateway.expect(self._driver.expected_surface(task))
            await self.books.step("prepared")
            starting = self._parts.sandboxes.start(self._sandbox_spec(plan, image), cloned.wait)
            sandbox = await self.books.phase("start", stack.enter_async_context(starting))
            await self._converse(sandbox, task)

    def _notify(self, text: str) -> None:
        self.books.show("notice", {"text": text})

    async def _clone(self, cloned: anyio.Event) -> None:
        paths = cast("JsonObject", self._grants["paths"])
        for left_out in await self.books.phase("clone", self.changes.clone(self._user, paths)):
            self._notify(left_out)
        cloned.set()

    async def _converse(self, sandbox: RunningSandbox, task: WorkerTask) -> None:
        """Connect to the started worker and see its prompt to the end, while the container is there to be asked why."""
        assert self._mediation is not None
        try:
            async with AsyncExitStack() as stack:
                connecting = stack.enter_async_context(self._driver.connect(sandbox.stdio, task, self._mediation))
                worker = await self.books.phase("connect", connecting)
                await self.books.step("connected")
                async for item in worker.prompt(self.request.prompt):
                    if isinstance(item, WorkerEvent):
                        self.books.show(item.type, item.data)
                    else:
                        self.end(await true_cause(_ending_of_turn(item), sandbox))
        except Exception as fault:  # noqa: BLE001 - a run ends with a typed error whatever happened in it
            self.end(await true_cause(ending_of(fault), sandbox))

    async def _task(self) -> WorkerTask:
        native = cast("dict[str, list[str]]", self._grants["native"])
        return WorkerTask(
            worker_id=self.id,
            model=self.gateway.opened.model or self.request.model,
            tools=(),
            instructions=await self.changes.instructions(cast("JsonObject", self._grants["paths"])),
            allowed_native_ops=frozenset([*native["allow"], *native["ask"]]),
            surface=self.gateway.opened.codex_surface,
        )

    def _sandbox_spec(self, plan: LaunchPlan, image: str) -> SandboxSpec:
        asked = self.request.limits
        return SandboxSpec(
            worker_id=self.id,
            owner=str(self._parts.home.root),
            image=image,
            argv=plan.argv,
            uid=self._user[0],
            gid=self._user[1],
            workspace=self.changes.workspace,
            gateway_socket=self._folder.socket,
            env={**plan.env, **proxy_variables(self.request.egress)},
            mounts=plan.mounts,
            limits=replace(SandboxLimits(), memory_bytes=asked.memory_bytes, cpus=asked.cpus, pids=asked.pids),
            runtime=self.request.runtime,
        )

    def _time_limit_s(self) -> float | None:
        return min((limit for limit in (self.request.timeout_s, self._budget_s) if limit is not None), default=None)

    @property
    def _budget_s(self) -> float | None:
        return cast("dict[str, float | None]", self._grants.get("budget") or {}).get("seconds")

    def _out_of_time(self) -> Ending:
        """A spent budget is the role's limit, a time-out that of the command."""
        if self._budget_s is not None and self._budget_s == self._time_limit_s():
            text = f"The role's budget of {self._budget_s:g} s is spent; the work so far is kept."
            return Ending("failed", "MX_AGENT_BUDGET_SPENT", text)
        return Ending("timedOut", "MX_AGENT_PROMPT_TIMEOUT", f"The run took longer than {self.request.timeout_s:g} s.")

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
        """Bring out, close, and write the result, whatever went wrong before or goes wrong here."""
        ending = self._ending or Ending("failed", "MX_AGENT_WORKER_EXITED", "The worker ended without a result.")
        changes = dict(NO_RESULT)
        try:
            await self.books.step(_EVENT_OF_STATUS[ending.status])
            if self._mediation is not None:
                await self._mediation.finish_all("unknown")
            ending, changes = await self._hand_over(ending)
            ending = await self._settle_script(ending)
            await self._close_channels()
        except Exception as fault:  # noqa: BLE001 - the result is written whatever happened
            ending = ending_of(fault)
        decided = self._mediation.decided if self._mediation is not None else set()
        await self.books.close(ending, changes, self.gateway.unmediated(decided))

    async def _hand_over(self, ending: Ending) -> tuple[Ending, JsonObject]:
        """Bring the work so far out. A result that cannot come out fails the run and is kept."""
        try:
            with anyio.fail_after(FINISH_TIMEOUT_S):
                return ending, await self.changes.hand_over()
        except (RepositoryError, TimeoutError, OSError) as fault:
            what = str(getattr(fault, "message", "")) or f"The hand-over failed: {type(fault).__name__}."
            text = f"{what} The work is kept in {self._folder.repo} until `mxs rm --force {self.id}`."
            self._notify(text)
            failed = Ending("failed", "MX_AGENT_WORKER_EXITED", text)
            return failed if ending.status == "completed" else ending, dict(NO_RESULT)

    async def _settle_script(self, ending: Ending) -> Ending:
        """A script's own failure explains a run that ended for any other reason but a person's or the clock's."""
        error = await self.gateway.close()
        if error is None or ending.status in ("stopped", "timedOut", "refused"):
            return ending
        return Ending("failed", str(error.get("code")), str(error.get("message")))

    async def _close_channels(self) -> None:
        await self.gateway.close()
        if self._grants:
            with suppress(MatrixError):  # a bridge that is gone has no open capability, and nothing to tell
                closed = await self._parts.bridge.request("caller.close", {"capability": self._capability})
                await self.books.wait_for_calls(cast("int", closed["events"]))


def _ending_of_turn(turn: TurnResult) -> Ending:
    return Ending("completed") if turn.ok else Ending("failed", turn.error or "MX_AGENT_WORKER_EXITED", turn.message)
