"""Who may call: sessions by capability. A capability is made for one caller, binds one channel, and dies with `close`.

The identity of a call is the session of the channel it came on; nothing in a message can change it. Above: the admin
channel opens and closes sessions, the worker channel binds them. Knows no bus and no log; what a session may do is the
word of its `SecurityDelegate`.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from bridge.bus.request_reply import INTROSPECT_TIMEOUT_MS, TOOL_TIMEOUT_MS
from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import Caller, Decision
from bridge.pinned_ops import PinnedOps
from bridge.policy.security_delegate import SecurityDelegate

CAPABILITY_BYTES: Final = 32
MAX_CALLERS: Final = 1024
CALLS_OVER_TIMEOUT_MS: Final = 12_000
"""For the results of cancelled calls to be recorded: longer than a disk may take for one record."""
_CALL_ID_CHARACTERS: Final = 16
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567" * 8
"""A character for each of the 256 bytes, each as likely as the others."""

CurrentDelegate = Callable[[], SecurityDelegate]
"""The judge of one caller as the policy stands now: a reloaded file counts from the next decision."""


@dataclass
class CallBudget:
    """How many calls a caller may make (`budget.tool_calls`); None is no limit. Refused calls count too."""

    limit: int | None
    made: int = 0

    def spend(self) -> bool:
        """Count one call; False where the budget does not hold it."""
        if self.limit is not None and self.made >= self.limit:
            return False
        self.made += 1
        return True


@dataclass(frozen=True)
class CallTimeouts:
    """The waits of one caller's calls (`AgentActorProps`)."""

    tool_ms: int = TOOL_TIMEOUT_MS
    introspect_ms: int = INTROSPECT_TIMEOUT_MS

    def of(self, op: str) -> int:
        """How long `op` may take."""
        return self.introspect_ms if op == "$introspect" else self.tool_ms


@dataclass(eq=False)
class CallerSession:
    """One caller for as long as its capability lives."""

    caller: Caller
    delegate: CurrentDelegate
    budget: CallBudget = field(default_factory=lambda: CallBudget(None))
    timeouts: CallTimeouts = CallTimeouts()
    workspace: Path | None = None
    pinned: PinnedOps = field(default_factory=PinnedOps)
    bound: bool = False
    closed: anyio.Event = field(default_factory=anyio.Event)
    _running: set[anyio.CancelScope] = field(default_factory=set)
    _open_calls: int = 0
    _no_open_call: anyio.Event = field(default_factory=anyio.Event)

    @contextmanager
    def open_call(self) -> Iterator[None]:
        """Around a call with all its records: `wait_calls_over` waits for it."""
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1
            if self._open_calls == 0:
                self._no_open_call.set()
                self._no_open_call = anyio.Event()

    async def wait_calls_over(self) -> None:
        """Until no call is open; of a closed session none begins any more. Bounded."""
        with anyio.move_on_after(CALLS_OVER_TIMEOUT_MS / 1000):
            while self._open_calls:
                await self._no_open_call.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a call: `close` cancels it. Raises `MX_AGENT_CANCELLED` where the session is closed already."""
        if self.closed.is_set():
            raise _closed()
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            try:
                yield
            finally:
                self._running.discard(scope)
        if scope.cancelled_caught:
            raise _closed()

    def budget_refusal(self, decision: Decision) -> tuple[Decision, MatrixError]:
        """What becomes of `decision` once the budget is spent, and the error that says so."""
        rule = f"roles.{self.caller.role}.budget.tool_calls"
        error = MatrixError(
            "MX_AGENT_BUDGET_SPENT",
            f"The budget of {self.budget.limit} tool calls of the role {self.caller.role!r} is spent. "
            "Finish with what you have; asking again will not help.",
            rule=rule,
        )
        return Decision("deny", "COMMAND_NOT_ALLOWED", rule, policy=decision.policy), error

    def close(self) -> None:
        """Cancel what runs and refuse what comes."""
        self.closed.set()
        for scope in list(self._running):
            scope.cancel()


class Callers:
    """The open sessions. Only digests of capabilities are kept."""

    def __init__(self) -> None:
        self._sessions: dict[str, CallerSession] = {}

    def open(self, session: CallerSession) -> str:
        """Admit the caller; returns its capability. Raises `MX_AGENT_LIMIT`."""
        if len(self._sessions) >= MAX_CALLERS:
            raise MatrixError("MX_AGENT_LIMIT", f"{MAX_CALLERS} callers are open already; close one first.")
        capability = secrets.token_urlsafe(CAPABILITY_BYTES)
        self._sessions[_digest(capability)] = session
        return capability

    def find(self, capability: object) -> CallerSession:
        """The session of a capability. Raises `MX_AGENT_BRIDGE_UNAVAILABLE` where there is none."""
        session = self._sessions.get(_digest(capability)) if isinstance(capability, str) else None
        if session is None:
            raise MatrixError(
                "MX_AGENT_BRIDGE_UNAVAILABLE", "The capability is not known here, or its caller is closed."
            )
        return session

    def bind(self, capability: object) -> CallerSession:
        """`find`, for the one channel that may use the capability. Raises for any second one."""
        session = self.find(capability)
        if session.bound:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", "The capability was used already; it binds one channel.")
        session.bound = True
        return session

    def close(self, capability: object) -> CallerSession:
        """Forget the capability and end its session. Raises as `find` does."""
        session = self.find(capability)
        del self._sessions[_digest(str(capability))]
        session.close()
        return session


def new_call_id() -> str:
    """16 characters of lower-case base32, at random."""
    return "".join(map(_BASE32.__getitem__, secrets.token_bytes(_CALL_ID_CHARACTERS)))


def _closed() -> MatrixError:
    return MatrixError("MX_AGENT_CANCELLED", "The caller was closed.")


def _digest(capability: str) -> str:
    return hashlib.sha256(capability.encode("utf-8", "surrogatepass")).hexdigest()
