"""The kinds of record and the fields of each, in their stored order (contracts.md, section 7).

Every field of a kind is always there, `null` where it does not apply; fields beyond them follow in the order given. An
unknown kind is refused. Pure: knows no file, no chain, no redaction. Above: `audit_log` (every record passes here),
`oracle_sink` (tool.call, tool.result, approval), and whoever appends the supervisor's records.
"""

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal

from bridge.audit.stored_form import UnstorableError, value_text
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import Caller, Decision

Source = Literal["bus", "native"]

RESULT_BYTES: Final = 4096
RESERVED: Final = frozenset({"seq", "at", "kind", "key", "prev", "hash"})
_WORKER: Final = ("worker", "run")
_CALL: Final = (*_WORKER, "call", "caller", "source", "target", "op", "tool")

SHAPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tool.call": (*_CALL, "payload", "decision"),
        "tool.result": (
            *_CALL, "outcome", "startedAt", "endedAt", "durationMs", "result", "resultDigest", "resultBytes", "error",
        ),
        "approval": (*_CALL, "state", "verdict", "by", "deadlineMs"),
        "inference": (*_WORKER, "model", "status", "tokens", "durationMs"),
        "file.change": (*_WORKER, "path", "change", "digest", "call"),
        "commit": (*_WORKER, "commit", "call"),
        "worker.state": (*_WORKER, "state"),
        "gate": (*_WORKER, "passed", "checks"),
        "policy.loaded": ("path", "policy", "roles"),
        "policy.refused": ("path", "problems"),
        "actor.revision": ("target", "revision", "source"),
        "checkpoint": ("count", "head", "keyId", "signature"),
        "recovered": ("what", "bytes", "digest", "file"),
    }
)  # fmt: skip


def frame(kind: str, fields: Mapping[str, JsonValue]) -> JsonObject:
    """The fields of a record of `kind`, complete and in stored order.

    Raises `MatrixError` `MX_AGENT_INVALID_ARGUMENTS`: an unknown kind, or a field that the log itself writes.
    """
    shape = SHAPES.get(kind)
    if shape is None:
        known = ", ".join(SHAPES)
        raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"No record has the kind {kind!r}; the kinds are {known}.")
    if reserved := RESERVED & fields.keys():
        raise MatrixError(
            "MX_AGENT_INVALID_ARGUMENTS", f"The log itself writes {sorted(reserved)!r}; leave them out of the fields."
        )
    extra = {name: value for name, value in fields.items() if name not in shape}
    return {name: fields.get(name) for name in shape} | extra


def caller_fields(caller: Caller) -> JsonObject:
    """Who asked: `worker`, `run` and `caller {kind, role}`."""
    return {"worker": caller.worker, "run": caller.run, "caller": {"kind": caller.kind, "role": caller.role}}


def decision_value(decision: Decision) -> JsonObject:
    """The decision as it stands in a record: verdict, reason, rule, policy; `nearest` only where there is one."""
    value: JsonObject = {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "rule": decision.rule,
        "policy": decision.policy,
    }
    return value if decision.nearest is None else value | {"nearest": decision.nearest}


def result_fields(result: JsonValue) -> JsonObject:
    """`result` with its digest and length; over 4 KiB of ASCII JSON, the first 4 KiB of that text stand for it.

    Give the redacted result: the digest is of what is given, so that it cannot confirm a guessed secret.
    """
    try:
        text = value_text(result)
    except UnstorableError:
        return {"result": result, "resultDigest": None, "resultBytes": None}
    kept: JsonValue = result if len(text) <= RESULT_BYTES else text[:RESULT_BYTES]
    digest = "sha256:" + sha256(text.encode("ascii")).hexdigest()
    fields: JsonObject = {"result": kept, "resultDigest": digest, "resultBytes": len(text)}
    return fields | {"resultCut": True} if len(text) > RESULT_BYTES else fields
