"""A real bridge process on a state folder of its own, with its admin channel in the test's hands."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process, UNIXSocketStream

from bridge.audit.query import read_records
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject, JsonValue

BOUND_S = 30
POLICY = """\
version = 1

[roles.coder]
[[roles.coder.grants]]
subtree = "demo"
allow = ["*", "$introspect", "$getState", "$readBlackboard"]
ask = ["shop.reserve"]
deny = ["shop.delete"]

[[roles.coder.grants]]
subtree = "system"
allow = ["*"]

[roles.coder.native]
allow = ["file.read", "shell.exec"]
ask = ["file.write"]
[roles.coder.native.paths]
read = ["."]
write = ["."]
deny = ["secrets"]
[roles.coder.native.shell]
allow = ["*"]

[roles.frugal]
[[roles.frugal.grants]]
subtree = "demo"
allow = ["*"]
[roles.frugal.budget]
tool_calls = 2
"""


@dataclass
class RunningBridge:
    """The process, and everything that the supervisor would say to it."""

    home: Path
    process: Process
    peer: JsonRpcPeer
    events: list[JsonObject] = field(default_factory=list)
    heard: anyio.Event = field(default_factory=anyio.Event)
    approve: Callable[[JsonObject], Awaitable[JsonValue]] | None = None

    @property
    def socket(self) -> Path:
        return self.home / "run" / "bridge.sock"

    async def ask(self, method: str, **params: JsonValue) -> JsonObject:
        answer = await self.peer.request(method, params, timeout_ms=BOUND_S * 1000)
        assert isinstance(answer, dict)
        return answer

    async def open_caller(self, role: str = "coder", **more: JsonValue) -> JsonObject:
        policy = self.home / "permissions.toml"
        if not policy.exists():
            policy.write_text(POLICY)
        given: JsonObject = {"kind": "worker", "worker": "claude-abc234", "run": "run-1", "role": role}
        return await self.ask("caller.open", **{**given, "policy": str(policy), "workspace": None, **more})

    async def capability(self, role: str = "coder", **more: JsonValue) -> str:
        return str((await self.open_caller(role, **more))["capability"])

    async def event(self, op: str, kind: str) -> JsonObject:
        """Wait, within a bound, for an event of this op."""
        with anyio.fail_after(BOUND_S):
            while True:
                heard = self.heard
                for event in self.events:
                    if event["op"] == op and event["type"] == kind:
                        return event
                await heard.wait()

    def records(self, *kinds: str) -> list[JsonObject]:
        return [record for record in read_records(self.home / "audit") if record["kind"] in kinds]

    def of_call(self, call: str) -> list[JsonObject]:
        return [record for record in read_records(self.home / "audit") if record.get("call") == call]


@asynccontextmanager
async def run_bridge(home: Path, argv_prefix: tuple[str, ...] = ()) -> AsyncIterator[RunningBridge]:
    """Started and answering; ended by closing its admin channel, as when a supervisor dies."""
    ours, theirs = socket.socketpair()
    with theirs:
        descriptor = str(theirs.fileno())
        argv = [*argv_prefix, sys.executable, "-P", "-m", "bridge", "--admin-fd", descriptor, "--home", str(home)]
        process = await anyio.open_process(
            [*argv, "--root", "acme.com", "--version", "test"],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=None,
            stderr=None,
        )
    async with await UNIXSocketStream.from_socket(ours) as stream:
        running: RunningBridge

        async def answer(method: str, params: JsonObject) -> JsonValue:
            assert method == "approval.ask"
            assert running.approve is not None
            return await running.approve(params)

        async def hear(method: str, params: JsonObject) -> None:
            assert method == "call.event"
            running.events.append(params)
            running.heard.set()
            running.heard = anyio.Event()

        peer = JsonRpcPeer(stream, answer, hear)
        running = RunningBridge(home, process, peer)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.run)
                await running.ask("bridge.hello")
                yield running
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(BOUND_S):
                await peer.aclose()
                await process.wait()
