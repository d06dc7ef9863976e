"""A worker's own tools: judged once per call of the worker, recorded in every case."""

from pathlib import Path

import pytest

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from tests.bridge.running_bridge import RunningBridge


async def decide(bridge: RunningBridge, capability: str, worker_call: str, op: str, **more: JsonValue) -> JsonObject:
    return await bridge.ask(
        "native.decide", capability=capability, workerCall=worker_call, op=op, tool="Tool", payload={"a": 1}, **more
    )


async def finish(bridge: RunningBridge, capability: str, worker_call: str) -> None:
    await bridge.ask(
        "native.finish", capability=capability, workerCall=worker_call, outcome="ok", result="out", durationMs=12.5
    )


async def test_an_allowed_call_is_recorded_before_and_ends_with_the_workers_word(bridge: RunningBridge) -> None:
    capability = await bridge.capability()
    told = await decide(bridge, capability, "w1", "shell.exec", command="ls -la", agent="reviewer")
    assert (told["verdict"], told["reason"]) == ("allow", "GRANTED")
    assert [record["kind"] for record in bridge.of_call(str(told["call"]))] == ["tool.call"]
    await finish(bridge, capability, "w1")
    await finish(bridge, capability, "w1")
    begun, ended = bridge.of_call(str(told["call"]))
    assert (begun["source"], begun["target"], begun["agent"]) == (
        "native",
        "workers.claude-abc234.workspace",
        "reviewer",
    )
    assert (ended["outcome"], ended["durationMs"], ended["result"]) == ("ok", 12.5, "out")


async def test_the_second_line_gets_the_firsts_verdict_and_one_record_is_written(bridge: RunningBridge) -> None:
    capability = await bridge.capability()
    first = await decide(bridge, capability, "w1", "net.fetch")
    assert await decide(bridge, capability, "w1", "net.fetch") == first
    assert first["verdict"] == "deny"
    assert "net.fetch" in str(first["message"])
    assert [record["kind"] for record in bridge.of_call(str(first["call"]))] == ["tool.call", "tool.result"]


async def test_one_id_vouches_neither_for_another_op_nor_for_a_second_run(bridge: RunningBridge) -> None:
    capability = await bridge.capability()
    first = await decide(bridge, capability, "w1", "shell.exec", command="ls")
    assert (await decide(bridge, capability, "w1", "file.read"))["verdict"] == "deny"
    await finish(bridge, capability, "w1")
    again = await decide(bridge, capability, "w1", "shell.exec", command="ls")
    assert again["call"] != first["call"]


async def test_paths_are_resolved_in_the_workspace_before_they_are_judged(
    bridge: RunningBridge, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    (workspace / "secrets").mkdir(parents=True)
    (workspace / "link").symlink_to("secrets")
    capability = await bridge.capability(workspace=str(workspace))
    for shown, verdict in (("a.txt", "allow"), ("link/key", "deny"), ("../out", "deny"), ("/etc/passwd", "deny")):
        paths: list[JsonValue] = [{"shown": shown, "access": "read"}]
        told = await decide(bridge, capability, f"w-{shown}", "file.read", paths=paths)
        assert (shown, told["verdict"]) == (shown, verdict)


async def test_a_call_that_asks_is_settled_before_the_answer(bridge: RunningBridge, tmp_path: Path) -> None:
    async def approve(_question: JsonObject) -> JsonValue:
        return {"verdict": "allow", "by": "ada"}

    bridge.approve = approve
    capability = await bridge.capability(workspace=str(tmp_path))
    told = await decide(bridge, capability, "w1", "file.write", paths=[{"shown": "a", "access": "write"}])
    assert told["verdict"] == "allow"
    states = [record.get("state") for record in bridge.of_call(str(told["call"]))]
    assert states == [None, "asked", "allowed"]


async def test_what_was_allowed_and_never_reported_is_unknown_once_the_caller_is_closed(bridge: RunningBridge) -> None:
    capability = await bridge.capability()
    told = await decide(bridge, capability, "w1", "shell.exec", command="ls")
    assert await bridge.ask("caller.close", capability=capability) == {"events": 2}
    assert bridge.of_call(str(told["call"]))[-1]["outcome"] == "unknown"
    with pytest.raises(MatrixError):
        await decide(bridge, capability, "w2", "shell.exec", command="ls")
