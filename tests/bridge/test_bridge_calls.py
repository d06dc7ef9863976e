"""Calls through a real bridge process to a real actor host: what comes back, and what the log then holds."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge.client import BridgeClient, connect
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from tests.bridge.running_bridge import RunningBridge

BOUND_S = 30
POLL_S = 0.01


async def refused(client: BridgeClient, target: str, op: str, payload: JsonObject) -> MatrixError:
    """The error of a call that has to fail."""
    with pytest.raises(MatrixError) as caught, anyio.fail_after(BOUND_S):
        await client.invoke(target, op, payload)
    return caught.value


def verdict_of(record: JsonObject) -> JsonValue:
    """The verdict that stands in a `tool.call`."""
    decision = record["decision"]
    assert isinstance(decision, dict)
    return decision["verdict"]


def assert_one_of_each(records: list[JsonObject], outcome: str) -> None:
    """Exactly one `tool.call`, first, and one `tool.result`, last, with this outcome."""
    kinds = [record["kind"] for record in records]
    assert kinds[0] == "tool.call"
    assert kinds[-1] == "tool.result"
    assert set(kinds[1:-1]) <= {"approval"}
    assert records[-1]["outcome"] == outcome


async def test_an_allowed_call_answers_and_is_recorded_before_and_after(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        call, result = await client.invoke("demo.shop", "shop.check", {"sku": "A"}, "toolu_1")
    assert result == {"available": 147, "house": "east"}
    records = shop.of_call(call)
    assert_one_of_each(records, "ok")
    assert records[0]["payload"] == {"sku": "A", "house": "east"}
    assert records[0]["tool"] == "acme.com/demo.shop/shop.check"
    assert records[0]["workerCall"] == "toolu_1"
    assert records[0]["caller"] == {"kind": "worker", "role": "coder"}
    assert records[0]["source"] == "bus"


FAILING: list[tuple[str, str, JsonObject, str, str]] = [
    ("demo2.shop", "shop.check", {}, "MX_AGENT_OUT_OF_SUBTREE", "denied"),
    ("demo.shop", "shop.delete", {}, "MX_AGENT_COMMAND_NOT_ALLOWED", "denied"),
    ("demo.nowhere", "shop.check", {}, "MX_AGENT_TARGET_NOT_FOUND", "failed"),
    ("demo.shop", "shop.nothing", {}, "MX_AGENT_OP_NOT_FOUND", "failed"),
    ("demo shop", "shop.check", {}, "MX_AGENT_MALFORMED_NAME", "denied"),
    ("demo.shop\ud800", "shop.check", {}, "MX_AGENT_MALFORMED_NAME", "denied"),
    ("demo.shop", "shop.check", {"sk": "A"}, "MX_AGENT_INVALID_ARGUMENTS", "invalid"),
    ("demo.shop", "shop.check", {"sku": "\ud800"}, "MX_AGENT_INVALID_ARGUMENTS", "invalid"),
    ("demo.shop", "shop.check", {"sku": "A" * 1_100_000}, "MX_AGENT_TOO_LARGE", "failed"),
    ("demo.shop", "shop.raise", {}, "MX_AGENT_ACTOR_ERROR", "failed"),
    ("demo.shop", "shop.refuse", {}, "MX_AGENT_ACTOR_ERROR", "failed"),
    ("demo.shop", "shop.forge", {}, "MX_AGENT_ACTOR_ERROR", "failed"),
    ("demo.shop", "shop.lie", {}, "MX_AGENT_INVALID_RESULT", "failed"),
    ("demo.shop", "shop.odd", {}, "MX_AGENT_INVALID_RESULT", "failed"),
    ("demo.shop", "shop.huge", {"bytes": 50_000_000}, "MX_AGENT_TOO_LARGE", "failed"),
    ("demo.shop", "$getState", {"key": "nothing"}, "MX_AGENT_INVALID_ARGUMENTS", "invalid"),
]


async def test_every_call_that_fails_ends_in_its_code_and_in_one_record_of_each_kind(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        for target, op, payload, code, outcome in FAILING:
            error = await refused(client, target, op, payload)
            assert (op, error.code) == (op, code)
            assert_one_of_each(shop.of_call(str(error.data["call"])), outcome)
            _, result = await client.invoke("demo.shop", "shop.check", {"sku": "A"})
            assert result == {"available": 147, "house": "east"}


async def test_an_actors_failure_tells_its_own_code_and_nothing_of_a_foreign_exception(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        raised = await refused(client, "demo.shop", "shop.raise", {})
        meant = await refused(client, "demo.shop", "shop.refuse", {})
    assert "hunter2" not in str(raised.to_wire())
    assert (meant.message, meant.data["actorCode"], meant.data["sku"]) == ("Nothing is left.", "SOLD_OUT", "A")


async def test_arguments_nested_a_hundred_thousand_deep_are_refused_and_recorded(shop: RunningBridge) -> None:
    deep: JsonValue = []
    for _ in range(100_000):
        deep = [deep]
    async with connect(shop.socket, await shop.capability()) as client:
        error = await refused(client, "demo.shop", "shop.check", {"sku": deep})
    assert error.code == "MX_AGENT_TOO_LARGE"
    record = shop.of_call(str(error.data["call"]))[0]
    assert record["payload"] is None
    assert record["payloadError"]


async def test_an_actor_that_hangs_ends_in_a_time_out_and_is_cancelled(shop: RunningBridge, tmp_path: Path) -> None:
    capability = await shop.capability(timeouts={"toolMs": 200})
    async with connect(shop.socket, capability) as client:
        error = await refused(client, "demo.shop", "shop.hang", {"mark": str(tmp_path / "cancelled")})
    assert error.code == "MX_AGENT_TOOL_TIMEOUT"
    assert_one_of_each(shop.of_call(str(error.data["call"])), "timedOut")
    await appears(tmp_path / "cancelled")


async def appears(path: Path) -> None:
    """Wait, within a bound, until the file is there."""
    with anyio.fail_after(BOUND_S):
        while not await anyio.Path(path).exists():  # noqa: ASYNC110 - a file of another process
            await anyio.sleep(POLL_S)


async def test_a_cancelled_call_reaches_the_actor_and_is_recorded_as_cancelled(
    shop: RunningBridge, tmp_path: Path
) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        async with anyio.create_task_group() as tasks:
            mark: JsonObject = {"mark": str(tmp_path / "cancelled")}
            tasks.start_soon(client.invoke, "demo.shop", "shop.hang", mark)
            await shop.event("shop.hang", "call")
            tasks.cancel_scope.cancel()
        await appears(tmp_path / "cancelled")
        ended = await shop.event("shop.hang", "result")
    assert_one_of_each(shop.of_call(str(ended["call"])), "cancelled")


async def test_a_host_that_crashes_in_mid_call_fails_that_call_and_is_started_again(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        error = await refused(client, "demo.shop", "shop.crash", {})
        assert error.code == "MX_AGENT_ACTOR_UNAVAILABLE"
        assert_one_of_each(shop.of_call(str(error.data["call"])), "failed")
        assert await answers_again(client) == {"available": 147, "house": "east"}


async def answers_again(client: BridgeClient) -> JsonValue:
    """The shop's answer, once its host is back."""
    with anyio.fail_after(BOUND_S):
        while True:
            try:
                return (await client.invoke("demo.shop", "shop.check", {"sku": "A"}))[1]
            except MatrixError as error:
                if error.code not in ("MX_AGENT_ACTOR_UNAVAILABLE", "MX_AGENT_TOOL_TIMEOUT"):
                    raise
                await anyio.sleep(POLL_S)


async def test_a_host_whose_actor_blocks_it_is_killed_and_started_again(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability(timeouts={"toolMs": 300})) as client:
        assert (await refused(client, "demo.shop", "shop.block", {})).code == "MX_AGENT_TOOL_TIMEOUT"
        assert await answers_again(client) == {"available": 147, "house": "east"}


async def test_a_flood_of_calls_is_answered_one_by_one_and_recorded_in_full(shop: RunningBridge) -> None:
    calls: list[str] = []

    async def call_once(client: BridgeClient) -> None:
        calls.append((await client.invoke("demo.shop", "shop.count", {}))[0])

    async with connect(shop.socket, await shop.capability()) as client:
        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(300):
                    tasks.start_soon(call_once, client)
        _, count = await client.invoke("demo.shop", "$getState", {"key": "count"})
    assert count == 300
    assert len(set(calls)) == 300
    recorded = [record["call"] for record in shop.records("tool.result") if record["op"] == "shop.count"]
    assert sorted(map(str, recorded)) == sorted(calls)


async def test_the_true_caller_and_the_calls_id_reach_the_actor(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        call, result = await client.invoke("demo.shop", "shop.who", {})
    assert isinstance(result, dict)
    left = result.pop("left")
    assert isinstance(left, float)
    assert 0 < left <= 15_000
    assert result == {"kind": "worker", "worker": "claude-abc234", "call": call}


async def test_a_call_through_the_mounted_bridge_is_judged_again_under_the_same_caller(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        outer, answer = await client.invoke(
            "system.tools.mcpBridge", "tool.invoke", {"target": "demo.shop", "op": "shop.who", "payload": {}}
        )
        denied = await refused(
            client, "system.tools.mcpBridge", "tool.invoke", {"target": "demo.shop", "op": "shop.delete"}
        )
    assert isinstance(answer, dict)
    inner = shop.of_call(str(answer["call"]))
    assert answer["call"] != outer
    assert_one_of_each(inner, "ok")
    assert inner[0]["worker"] == "claude-abc234"
    assert denied.code == "MX_AGENT_COMMAND_NOT_ALLOWED"
    assert [verdict_of(record) for record in shop.records("tool.call") if record["op"] == "shop.delete"] == ["deny"]


async def test_the_catalog_shows_only_what_the_caller_may_use(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability()) as client:
        _, found = await client.invoke("system.catalog", "catalog.search", {"query": "shop", "limit": 1})
        _, mounts = await client.invoke("system.registry", "registry.list", {})
        hidden = await refused(client, "system.registry", "registry.resolve", {"mount": "other.thing"})
    shown: Any = (found, mounts)
    ops = shown[0]["actors"][0]["accepts"]
    assert "shop.check" in ops
    assert "shop.reserve" in ops
    assert "shop.delete" not in ops
    assert shown[1]["mounts"][0]["mount"] == "demo.shop"
    assert hidden.code == "MX_AGENT_TARGET_NOT_FOUND"


async def test_a_spent_budget_refuses_every_further_call(shop: RunningBridge) -> None:
    async with connect(shop.socket, await shop.capability("frugal")) as client:
        for _ in range(2):
            await client.invoke("demo.shop", "shop.check", {"sku": "A"})
        error = await refused(client, "demo.shop", "shop.check", {"sku": "A"})
    assert error.code == "MX_AGENT_BUDGET_SPENT"
    records = shop.of_call(str(error.data["call"]))
    assert_one_of_each(records, "denied")
    assert verdict_of(records[0]) == "deny"


@pytest.mark.parametrize(
    ("answer", "code", "outcome"),
    [
        ({"verdict": "allow", "by": "ada"}, None, "ok"),
        ({"verdict": "deny", "by": "ada"}, "MX_AGENT_APPROVAL_DENIED", "denied"),
        ({"verdict": "perhaps"}, "MX_AGENT_APPROVAL_DENIED", "denied"),
        (None, "MX_AGENT_APPROVAL_DENIED", "denied"),
    ],
)
async def test_an_op_that_asks_runs_only_after_a_clear_yes(
    shop: RunningBridge, answer: JsonValue, code: str | None, outcome: str
) -> None:
    asked: list[JsonObject] = []

    async def approve(question: JsonObject) -> JsonValue:
        asked.append(question)
        return answer

    shop.approve = approve
    async with connect(shop.socket, await shop.capability()) as client:
        if code is None:
            call = (await client.invoke("demo.shop", "shop.reserve", {"sku": "A"}))[0]
        else:
            error = await refused(client, "demo.shop", "shop.reserve", {"sku": "A"})
            assert error.code == code
            call = str(error.data["call"])
    records = shop.of_call(call)
    assert_one_of_each(records, outcome)
    assert [record["state"] for record in records[1:-1]] == ["asked", "allowed" if code is None else "denied"]
    assert asked[0]["payload"] == {"sku": "A"}
    assert asked[0]["call"] == call
