"""Between a worker's own tools and the bridge: asks before, reports after. Every fault is a refusal.

Implements `NativeMediation` for one worker over the supervisor's admin channel. When a call that may have changed files
has ended, the run is told so that it can record a commit for it. Decides nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.tool_invocation import NativeCall, Outcome
from supervisor.bridge_link import BridgeLink
from supervisor.workers.worker import NativeVerdict

OPS_WITHOUT_CHANGES: Final = frozenset({"file.read", "net.fetch"})
"""Native ops after which the workspace need not be looked at."""

LONGEST_RESULT: Final = 256 * 1024
"""Characters of a native result sent to the bridge, which cuts it further for the record and digests what it got."""

NO_VERDICT: Final = (
    "MX_AGENT_BRIDGE_UNAVAILABLE: the bridge's answer is no verdict, so the call was refused. Nothing was executed."
)

FINISH_ALL_S: Final = 10.0
"""For what a worker that is gone left open; an honest one leaves a handful."""

OnEnded = Callable[[str], Awaitable[None]]
"""(the bridge's id of a call that may have changed files) -> None."""


class BridgeMediation:
    """The native calls of one worker, under its capability."""

    def __init__(self, link: BridgeLink, capability: str, on_ended: OnEnded, approval_ms: int) -> None:
        self._link = link
        self._capability = capability
        self._on_ended = on_ended
        self._timeout_ms = approval_ms + 10_000
        self._calls: dict[str, tuple[str, str]] = {}  # worker's id of an allowed call -> (bridge's id, op)
        self.decided: set[str] = set()

    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        """Judge and record `native` (contract of `NativeMediation`). Never raises but for cancellation.

        Whatever the bridge answers, only the verdict `allow` of a call that it names lets the call pass.
        """
        self.decided.add(worker_call)
        try:
            answer: JsonValue = await self._link.request(
                "native.decide", self._question(native, worker_call, agent), self._timeout_ms
            )
        except MatrixError as fault:
            return NativeVerdict("", allowed=False, message=f"{fault.code}: {fault.message}")
        told = answer if isinstance(answer, dict) else {}
        call, message = told.get("call"), told.get("message", "")
        if not isinstance(call, str) or not call or told.get("verdict") not in ("allow", "deny"):
            return NativeVerdict("", allowed=False, message=NO_VERDICT)
        if told["verdict"] == "allow":
            self._calls[worker_call] = (call, native.op)
        return NativeVerdict(call, told["verdict"] == "allow", str(message))

    async def finish(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        """Record how an allowed call ended; an id that was never allowed, or has ended, is ignored."""
        call, op = self._calls.pop(worker_call, ("", ""))
        if not call:
            return
        await self._report(worker_call, outcome, result[:LONGEST_RESULT], duration_ms)
        if op not in OPS_WITHOUT_CHANGES:
            await self._on_ended(call)

    async def finish_all(self, outcome: Outcome) -> None:
        """End what the worker never reported: with its process, its calls are over.

        Bounded: a worker can open thousands, and the bridge ends as unknown what is open when its caller is closed.
        """
        with anyio.move_on_after(FINISH_ALL_S):
            for worker_call in list(self._calls):
                self._calls.pop(worker_call)
                await self._report(worker_call, outcome, "", None)

    async def _report(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
        ended: JsonObject = {"workerCall": worker_call, "outcome": outcome, "result": result, "durationMs": duration_ms}
        try:
            await self._link.request("native.finish", {"capability": self._capability, **ended})
        except MatrixError:
            return  # a bridge that is gone ends its open calls itself when it reads its log again

    def _question(self, native: NativeCall, worker_call: str, agent: str | None) -> JsonObject:
        return {
            "capability": self._capability,
            "workerCall": worker_call,
            "agent": agent,
            "op": native.op,
            "tool": native.tool,
            "payload": native.payload,
            "paths": [{"shown": path.shown, "access": path.access} for path in native.paths],
            "command": native.command,
            "cwd": native.cwd,
        }
