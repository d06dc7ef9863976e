"""The values that travel with one call: who asks, what is asked, what was decided.

Leaf: above it stand `policy` (makes decisions), `bus` (executes), `audit` (records) and everything outside the bridge.
"""

from dataclasses import dataclass, field
from typing import Literal

from bridge.contract.json_types import JsonObject

CallerKind = Literal["worker", "agent", "person", "mcp"]
Verdict = Literal["allow", "deny", "ask"]
Reason = Literal[
    "GRANTED", "ASK", "OUT_OF_SUBTREE", "COMMAND_NOT_ALLOWED", "PATH_DENIED", "SHELL_DENIED", "MALFORMED_NAME"
]
NativeOp = str  # "file.read", "file.write", "shell.exec", "net.fetch", "agent.spawn" or "other.<tool>"
Access = Literal["read", "write"]
Outcome = Literal["ok", "denied", "invalid", "timedOut", "failed", "cancelled", "unknown"]


@dataclass(frozen=True)
class Caller:
    """Who asks. Made by the bridge from the channel of the call; never read from a message."""

    kind: CallerKind
    role: str
    worker: str | None = None
    run: str | None = None


@dataclass(frozen=True)
class ToolInvoke:
    """What is asked on the bus (spec: `tool.invoke {target, op, payload}`)."""

    target: str
    op: str
    payload: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class PathAccess:
    """One path a native call touches. A driver gives `shown` alone; the bridge fills in `path`, relative to the
    workspace after links were resolved, or leaves None for what lies outside."""

    shown: str  # as the worker wrote it
    access: Access
    path: str | None = None


@dataclass(frozen=True)
class NativeCall:
    """What a worker's own tool is about to do, in the terms of the permission file (contracts.md, section 3)."""

    op: NativeOp
    tool: str
    payload: JsonObject
    paths: tuple[PathAccess, ...] = ()
    command: str | None = None  # the shell line, for shell.exec
    cwd: str | None = None  # where relative paths start, as the worker says; None = the workspace


@dataclass(frozen=True)
class Decision:
    """A verdict with its reason. `rule` names the entry that settled it, `nearest` the closest that is allowed."""

    verdict: Verdict
    reason: Reason
    rule: str | None = None
    nearest: str | None = None
    policy: str = ""  # "sha256:<hex>" of the permission file
