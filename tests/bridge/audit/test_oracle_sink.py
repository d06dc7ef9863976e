"""The frames of a call: what they hold, that the call is durable first, and that each call ends once."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from bridge.audit.audit_log import AuditLog
from bridge.audit.frames import SHAPES, frame, result_fields
from bridge.audit.oracle_sink import CallFrame, OracleSink
from bridge.audit.query import find_call, read_records
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonValue
from bridge.contract.tool_invocation import Caller, Decision

FRAME = CallFrame(
    call="call-1",
    caller=Caller(kind="worker", role="coder", worker="claude-7f3k2m", run="run-1"),
    source="bus",
    target="demo.inventory",
    op="inventory.check",
    tool="acme.com/demo.inventory/inventory.check",
    details={"workerCall": "toolu_1"},
)
DECISION = Decision("allow", "GRANTED", rule="roles.coder.grants[0].allow[0]", policy="sha256:00")


@pytest.fixture
async def log(folder: Path) -> AsyncIterator[AuditLog]:
    async with AuditLog.open(folder) as log:
        yield log


async def test_a_call_is_recorded_as_the_contract_shows(log: AuditLog, folder: Path) -> None:
    await OracleSink(log).tool_call(FRAME, {"sku": "WIDGET-42"}, DECISION)
    record = next(read_records(folder))
    hashes = {name: record.pop(name) for name in ("at", "prev", "hash")}
    assert all(hashes.values())
    assert record == {
        "seq": 1,
        "kind": "tool.call",
        "worker": "claude-7f3k2m",
        "run": "run-1",
        "call": "call-1",
        "caller": {"kind": "worker", "role": "coder"},
        "source": "bus",
        "target": "demo.inventory",
        "op": "inventory.check",
        "tool": "acme.com/demo.inventory/inventory.check",
        "payload": {"sku": "WIDGET-42"},
        "decision": {
            "verdict": "allow",
            "reason": "GRANTED",
            "rule": "roles.coder.grants[0].allow[0]",
            "policy": "sha256:00",
        },
        "workerCall": "toolu_1",
    }


async def test_a_call_whose_arguments_did_not_parse_says_why(log: AuditLog, folder: Path) -> None:
    await OracleSink(log).tool_call(FRAME, None, DECISION, payload_error="a key stands twice")
    record = next(read_records(folder))
    assert (record["payload"], record["payloadError"]) == (None, "a key stands twice")


async def test_a_result_has_times_outcome_and_digest(log: AuditLog, folder: Path) -> None:
    sink = OracleSink(log)
    started = await sink.tool_call(FRAME, {}, DECISION)
    await sink.tool_result(started, "ok", result={"available": 147})
    record = find_call(folder, "call-1")[-1]
    assert record["outcome"] == "ok"
    assert str(record["startedAt"]) <= str(record["endedAt"])
    assert isinstance(record["durationMs"], float)
    assert record["result"] == {"available": 147}
    assert record["resultDigest"] == "sha256:" + sha256(b'{"available":147}').hexdigest()
    assert record["error"] is None


async def test_a_long_result_is_cut_at_4_kib_and_its_digest_is_of_the_redacted_whole(
    log: AuditLog, folder: Path
) -> None:
    sink = OracleSink(log)
    log.learn_secrets(["very-secret-value"])
    started = await sink.tool_call(FRAME, {}, DECISION)
    result: JsonValue = {"text": "very-secret-value " + "x" * 10_000}
    await sink.tool_result(started, "ok", result=result)
    record = find_call(folder, "call-1")[-1]
    whole = json.dumps(log.redact(result), separators=(",", ":"))
    assert record["result"] == whole[:4096]
    assert record["resultCut"] is True
    assert record["resultBytes"] == len(whole)
    assert record["resultDigest"] == "sha256:" + sha256(whole.encode()).hexdigest()
    assert "very-secret" not in str(record)


async def test_a_result_that_cannot_be_stored_still_ends_its_call(log: AuditLog, folder: Path) -> None:
    sink = OracleSink(log)
    started = await sink.tool_call(FRAME, {}, DECISION)
    await sink.tool_result(
        started, "failed", result="\ud800", error=MatrixError("MX_AGENT_INVALID_RESULT", "odd \udfff")
    )
    record = find_call(folder, "call-1")[-1]
    assert record["outcome"] == "failed"
    assert record["result"] is None
    assert "surrogate" in str(record["resultError"])
    assert "surrogate" in str(record["errorError"])


async def test_a_cancelled_call_has_its_call_and_one_result(log: AuditLog, folder: Path) -> None:
    sink = OracleSink(log)
    with anyio.CancelScope() as scope:
        scope.cancel()
        started = await sink.tool_call(FRAME, {}, DECISION)
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            await sink.tool_result(started, "cancelled", error=MatrixError("MX_AGENT_CANCELLED"))
    assert [record["kind"] for record in find_call(folder, "call-1")] == ["tool.call", "tool.result"]


async def test_a_second_result_is_the_first_also_for_an_outcome_found_unknown_later(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        await OracleSink(log).tool_call(FRAME, {}, DECISION)
    async with AuditLog.open(folder) as log:
        sink = OracleSink(log)
        first = await sink.unknown_outcome(log.unfinished[0], MatrixError("MX_AGENT_BRIDGE_RESTARTED"))
        assert await sink.unknown_outcome(log.unfinished[0], MatrixError("MX_AGENT_BRIDGE_RESTARTED")) == first
    records = find_call(folder, "call-1")
    assert [record["kind"] for record in records] == ["tool.call", "tool.result"]
    assert records[-1]["outcome"] == "unknown"
    assert records[-1]["workerCall"] == "toolu_1"
    assert records[-1]["startedAt"] == records[0]["at"]


async def test_approvals_stand_between_and_the_last_holds_the_verdict(log: AuditLog, folder: Path) -> None:
    sink = OracleSink(log)
    started = await sink.tool_call(FRAME, {}, Decision("ask", "ASK"))
    await sink.approval(started, "asked", details={"deadlineMs": 60_000})
    await sink.approval(started, "denied", details={"by": "person"})
    await sink.tool_result(started, "denied", error=MatrixError("MX_AGENT_APPROVAL_DENIED"))
    records = find_call(folder, "call-1")
    assert [record["kind"] for record in records] == ["tool.call", "approval", "approval", "tool.result"]
    assert [record.get("verdict") for record in records[1:3]] == [None, "deny"]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_record_of_any_kind_has_all_its_fields_in_order_and_keeps_others(kind: str) -> None:
    shape = SHAPES[kind]
    fields = frame(kind, {"further": 1, shape[-1]: "x"})
    assert list(fields) == [*shape, "further"]
    assert fields[shape[-1]] == "x"
    assert all(fields[name] is None for name in shape[:-1])


def test_a_result_at_the_limit_is_whole() -> None:
    assert result_fields("x" * 4094)["result"] == "x" * 4094
    assert "resultCut" in result_fields("x" * 4095)
