"""One suite for every engine of the bus: what `ActorBus` promises holds over each of them."""

import types
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from bridge.bus.actor import Actor
from bridge.bus.actor_bus import ActorBus, CallContext
from bridge.bus.host_process import HostProcess, HostSpec
from bridge.bus.local_bus import LocalBus
from bridge.bus.mounted_buses import MountedBuses
from bridge.bus.request_reply import RequestReply
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import Caller
from tests.bridge.shop_actors import SHOP

BOUND_S = 30
CALLER = Caller("person", "coder", "claude-abc234", "run-1")


@pytest.fixture(params=["local", "stream"])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ActorBus]:
    """The shop, on each engine."""
    if request.param == "local":
        module = types.ModuleType("shop")
        exec(SHOP, module.__dict__)
        kind: type[Actor] = module.Shop
        local = LocalBus("acme.com")
        await local.mount(kind())
        yield local
        await local.aclose()
        return
    (tmp_path / "shop.py").write_text(SHOP)
    host = HostProcess(HostSpec(tmp_path, "acme.com"))
    async with anyio.create_task_group() as tasks:
        await tasks.start(host.run)
        yield host
        tasks.cancel_scope.cancel()


def context(timeout_ms: int = 15_000, **more: object) -> CallContext:
    """A call of this test."""
    return CallContext(CALLER, "call-1", timeout_ms, **more)  # type: ignore[arg-type] # progress, where it is given


async def code_of(bus: ActorBus, op: str, payload: JsonObject | None = None, target: str = "demo.shop") -> str:
    """The code that a request fails with."""
    with pytest.raises(MatrixError) as caught, anyio.fail_after(BOUND_S):
        await bus.request(context(), target, op, payload or {})
    return caught.value.code


async def test_an_op_answers(bus: ActorBus) -> None:
    answer = await bus.request(context(), "demo.shop", "shop.check", {"sku": "A", "house": "west"})
    assert answer == {"available": 147, "house": "west"}


async def test_the_declaration_is_the_answer_to_introspect(bus: ActorBus) -> None:
    (declaration,) = bus.declarations()
    assert bus.declaration("demo.shop") == declaration
    assert bus.declaration("demo.none") is None
    answer = await bus.request(context(), "demo.shop", "$introspect", {})
    assert answer == declaration.to_introspect("acme.com")


async def test_state_and_blackboard_are_read_by_reserved_ops(bus: ActorBus) -> None:
    assert await bus.request(context(), "demo.shop", "$readBlackboard", {"fact": "lowStock"}) is None
    await bus.request(context(), "demo.shop", "shop.count", {})
    assert await bus.request(context(), "demo.shop", "$getState", {"key": "count"}) == 1
    assert await bus.request(context(), "demo.shop", "$readBlackboard", {"fact": "lowStock"}) == ["A"]


async def test_the_caller_travels_with_the_request(bus: ActorBus) -> None:
    answer = await bus.request(context(), "demo.shop", "shop.who", {})
    assert isinstance(answer, dict)
    assert (answer["kind"], answer["worker"], answer["call"]) == ("person", "claude-abc234", "call-1")


async def test_progress_reaches_the_caller(bus: ActorBus) -> None:
    heard: list[tuple[float, float | None, str]] = []
    told = anyio.Event()

    async def progress(done: float, total: float | None, text: str) -> None:
        heard.append((done, total, text))
        told.set()

    await bus.request(context(progress=progress), "demo.shop", "shop.progress", {})
    with anyio.fail_after(BOUND_S):
        await told.wait()
    assert heard == [(1, 2, "half")]


async def test_every_failure_has_its_code(bus: ActorBus) -> None:
    assert await code_of(bus, "shop.check", target="demo.none") == "MX_AGENT_TARGET_NOT_FOUND"
    assert await code_of(bus, "shop.none") == "MX_AGENT_OP_NOT_FOUND"
    assert await code_of(bus, "shop.raise") == "MX_AGENT_ACTOR_ERROR"
    assert await code_of(bus, "shop.forge") == "MX_AGENT_ACTOR_ERROR"
    assert await code_of(bus, "shop.refuse") == "MX_AGENT_ACTOR_ERROR"
    assert await code_of(bus, "shop.odd") == "MX_AGENT_INVALID_RESULT"
    assert await code_of(bus, "shop.huge", {"bytes": 5_000_000}) == "MX_AGENT_TOO_LARGE"
    assert await code_of(bus, "$getState", {"key": "none"}) == "MX_AGENT_INVALID_ARGUMENTS"


async def test_a_request_is_given_up_at_its_deadline_and_the_actor_is_cancelled(bus: ActorBus, tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    with pytest.raises(MatrixError) as caught:
        await RequestReply(bus).execute(context(100), "demo.shop", "shop.hang", {"mark": str(mark)})
    assert caught.value.code == "MX_AGENT_TOOL_TIMEOUT"
    with anyio.fail_after(BOUND_S):
        while not await anyio.Path(mark).exists():  # noqa: ASYNC110 - a file of another process
            await anyio.sleep(0.01)


async def test_two_sources_of_one_mount_are_an_error_that_names_both(bus: ActorBus) -> None:
    buses = MountedBuses()
    buses.add("/first", bus)
    with pytest.raises(MatrixError) as caught:
        buses.add("/second", bus)
    assert "'demo.shop'" in caught.value.message
    assert caught.value.data["sources"] == ["/first", "/second"]
