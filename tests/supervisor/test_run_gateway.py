"""What a run takes of the gateway's events: in their order, all of them, and before it is closed."""

from typing import Any, cast

import anyio
import pytest

from bridge.contract.json_types import JsonObject
from sandboxes.gateway.client import GatewayError
from sandboxes.gateway.worker_opening import WorkerFigures, WorkerOpened
from supervisor.home import StateFolder
from supervisor.run_gateway import RunCallbacks, RunGateway
from supervisor.run_totals import RunTotals
from supervisor.worker_spec import RunRequest

pytestmark = pytest.mark.anyio

GRANTS: JsonObject = {"tools": [], "budget": {}}
REQUEST = RunRequest(kind="claude", prompt="do", repo="/r")


class Link:
    """A gateway whose last events come after its answer to `close_worker`, as they can on two connections."""

    def __init__(self):
        self.client = self
        self.late: list[JsonObject] = []
        self.gone = False
        self.tasks: Any = None
        self.take: Any = None

    async def open_worker(self, _opening):
        return WorkerOpened()

    async def close_worker(self, _worker):
        if self.gone:
            raise GatewayError("MX_AGENT_INFERENCE_FAILED", "gone")
        for event in self.late:
            self.tasks.start_soon(self.take, event)
        return WorkerFigures()


class Driver:
    judged_at_gateway: frozenset[str] = frozenset()


class Run:
    """The rest of the run: a log that takes its time, and what was shown and ended."""

    def __init__(self, tmp_path):
        self.link: Any = Link()
        driver: Any = Driver()
        self.records: list[Any] = []
        self.shown: list[Any] = []
        self.endings: list[Any] = []
        self.totals = RunTotals()
        self.slow = anyio.Event()
        callbacks = RunCallbacks(
            self.append, lambda kind, fields: self.shown.append((kind, fields)), self.endings.append
        )
        folder = StateFolder(tmp_path).worker("claude-aaaaaa")
        self.gateway = RunGateway(
            REQUEST, "claude-aaaaaa", folder, cast("Any", self.link), driver, self.totals, callbacks
        )
        self.link.take = self.gateway.take

    async def append(self, kind, fields):
        if not self.records:
            await self.slow.wait()
        self.records.append((kind, fields))


def inference(model):
    return {"type": "inference", "model": model, "status": 200, "tokens": {"input": 1, "output": 1}}


async def test_reports_become_records_in_the_order_they_came_however_long_one_takes(tmp_path):
    run = Run(tmp_path)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for model in "abc":
                tasks.start_soon(run.gateway.take, inference(model))
            await anyio.wait_all_tasks_blocked()
            run.slow.set()
    assert [fields["model"] for _, fields in run.records] == ["a", "b", "c"]


async def test_closing_waits_for_the_reports_that_are_still_on_their_way(tmp_path):
    run = Run(tmp_path)
    run.link.late = [inference("a"), inference("b"), {"type": "closed"}]
    run.slow.set()
    with anyio.fail_after(5):
        await run.gateway.open(GRANTS, 1000)
        async with anyio.create_task_group() as run.link.tasks:
            assert await run.gateway.close() is None
            assert [fields["model"] for _, fields in run.records] == ["a", "b"]
            assert run.totals.inferences == 2


async def test_a_gateway_that_is_gone_loses_no_report_that_had_come(tmp_path):
    run = Run(tmp_path)
    run.link.gone = True
    with anyio.fail_after(5):
        await run.gateway.open(GRANTS, 1000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.gateway.take, inference("a"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(run.gateway.close)
            await anyio.wait_all_tasks_blocked()
            run.slow.set()
    assert run.totals.inferences == 1
    assert len(run.records) == 1


async def test_a_wrong_tool_surface_ends_the_run_before_its_evidence_is_written(tmp_path):
    run = Run(tmp_path)
    run.gateway.expect(frozenset({"Bash"}))
    surface: JsonObject = {"type": "surface", "seen": ["Bash", "WebFetch"]}
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.gateway.take, surface)
            await anyio.wait_all_tasks_blocked()
            assert [ending.code for ending in run.endings] == ["MX_AGENT_GATE_REFUSED"]
            run.slow.set()
    assert run.records[0][0] == "gate"


async def test_a_call_is_unmediated_where_the_bridge_was_asked_neither_by_a_hook_nor_by_its_own_tool(tmp_path):
    run = Run(tmp_path)
    for call, tool in (
        ("hooked", "Bash"),
        ("bus", "mcp__matrix__x"),
        ("claimed", "mcp__matrix__x"),
        ("script", "exec"),
    ):
        await run.gateway.take({"type": "witness", "id": call, "tool": tool})
    run.totals.count_call({"type": "call", "call": "1", "workerCall": "bus", "verdict": "allow"})
    assert run.gateway.unmediated({"hooked"}) == [{"id": "claimed", "tool": "mcp__matrix__x"}]
