"""What the bridge adds to a call: one `invoke` through client, bridge and host, against the host asked directly.

Rounds of both are taken in turn, so that a busy machine slows both alike; the processors' time is told beside the
clock's, because a shared machine lies about the latter only. The log is on disk before every effect, as always.
"""

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import UNIXSocketStream

from benchmarks.figures import Figure, median_ms
from bridge.bus.actor_bus import CallContext
from bridge.bus.host_process import HostProcess, HostSpec
from bridge.client import BridgeClient, connect
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import Caller

ROUNDS: Final = 5
CALLS: Final = 800
CONCURRENCY: Final = 16
ACTOR: Final = '''
from bridge import Actor
class Inventory(Actor):
    """Stock."""
    mount = "demo.inventory"
    description = "Stock."
    accepts = {"inventory.check": {
        "description": "How many.",
        "schema": {"sku": {"type": "string", "description": "Which"}},
        "returns": {"available": {"type": "integer", "description": "How many"}}}}
    async def inventory_check(self, sku):
        return {"available": 147}
'''
POLICY: Final = """
version = 1
[roles.coder]
[[roles.coder.grants]]
subtree = "demo.inventory"
allow = ["inventory.check"]
"""
PAYLOAD: Final[JsonObject] = {"sku": "WIDGET-42"}

Call = Callable[[], Awaitable[object]]


@dataclass
class Samples:
    """One entry a round; `*_s` are medians in seconds, `bridge_cpu_s` the bridge's processor time of one call."""

    direct_s: list[float] = field(default_factory=list)
    through_s: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    bridge_cpu_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Bench:
    """A bridge with a caller bound to it, and a host of the same actors to be asked directly."""

    bridge_pid: int
    client: BridgeClient
    host: HostProcess

    async def direct(self) -> object:
        """The actor, asked in its host."""
        ctx = CallContext(Caller("worker", "coder"), "bench", 15_000)
        return await self.host.request(ctx, "demo.inventory", "inventory.check", PAYLOAD)

    async def through(self) -> object:
        """The same by the worker's way."""
        return await self.client.invoke("demo.inventory", "inventory.check", PAYLOAD)


def measure() -> list[Figure]:
    """Latency alone, calls a second side by side, the bridge's processor time and its memory."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder:
        async with _started(Path(folder)) as bench:
            idle_mib = _resident_mib(bench.bridge_pid)
            await _round(bench, Samples(), CONCURRENCY * 8)
            for _ in range(ROUNDS):
                await _round(bench, samples, CALLS)
    added = [through - direct for through, direct in zip(samples.through_s, samples.direct_s, strict=True)]
    return [
        Figure("one call, actor asked in its host, p50", median_ms(samples.direct_s), "ms"),
        Figure("one call through the bridge, p50", median_ms(samples.through_s), "ms"),
        Figure("added by the bridge, tool.call on disk before the effect, p50", median_ms(added), "ms", aim=1.5),
        Figure(
            f"calls at concurrency {CONCURRENCY}",
            statistics.median(samples.per_second),
            "/s",
            aim=1000,
            better="higher",
        ),
        Figure("the bridge's processor time of a call", median_ms(samples.bridge_cpu_s), "ms"),
        Figure("the bridge's resident memory, idle", idle_mib, "MiB"),
    ]


async def _round(bench: Bench, samples: Samples, calls: int) -> None:
    samples.direct_s.append(await _latency_s(bench.direct, calls))
    samples.through_s.append(await _latency_s(bench.through, calls))
    cpu_s = _cpu_s(bench.bridge_pid)
    samples.per_second.append(await _per_second(bench.through, calls))
    samples.bridge_cpu_s.append((_cpu_s(bench.bridge_pid) - cpu_s) / calls)


async def _latency_s(call: Call, calls: int) -> float:
    """The median, one after the other."""
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


async def _per_second(call: Call, calls: int) -> float:
    """`CONCURRENCY` at once."""

    async def some() -> None:
        for _ in range(calls // CONCURRENCY):
            await call()

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(CONCURRENCY):
            tasks.start_soon(some)
    return calls / (time.perf_counter() - begun)


@asynccontextmanager
async def _started(folder: Path) -> AsyncIterator[Bench]:
    """Everything as the supervisor starts it."""
    home, actors, policy = folder / "home", folder / "actors", folder / "permissions.toml"
    actors.mkdir()
    (actors / "inventory.py").write_text(ACTOR)
    policy.write_text(POLICY)
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-P", "-m", "bridge", "--admin-fd", str(theirs.fileno()), "--home", str(home)]
    bridge = await anyio.open_process(argv, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=None)
    theirs.close()
    async with bridge, anyio.create_task_group() as tasks:
        admin = JsonRpcPeer(await UNIXSocketStream.from_socket(ours))
        tasks.start_soon(admin.run)
        await admin.request("actors.add", {"path": str(actors), "guarded": True})
        opened = await admin.request(
            "caller.open", {"kind": "worker", "worker": "claude-abc234", "policy": str(policy)}
        )
        assert isinstance(opened, dict)
        host = HostProcess(HostSpec(actors, "local", guarded=True))
        await tasks.start(host.run)
        async with connect(home / "run" / "bridge.sock", str(opened["capability"])) as client:
            yield Bench(bridge.pid, client, host)
        await admin.aclose()
        await bridge.wait()
        tasks.cancel_scope.cancel()


def _cpu_s(pid: int) -> float:
    """What all threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _resident_mib(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024
