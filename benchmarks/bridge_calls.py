"""What the bridge adds to a call: one `invoke` through client, bridge and host, against the host asked directly.

Rounds are taken in turn, so that a busy machine slows both alike. Prints a table, then one line of JSON:
`python benchmarks/bridge_calls.py [--rounds N] [--calls N]`. The log is on disk before every effect, as always.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio.abc import UNIXSocketStream

from bridge.bus.actor_bus import CallContext
from bridge.bus.host_process import HostProcess, HostSpec
from bridge.client import BridgeClient, connect
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject
from bridge.contract.tool_invocation import Caller

CONCURRENCY = 16
TARGET_ADDED_MS = 1.5
TARGET_PER_SECOND = 1000
ACTOR = '''
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
POLICY = """
version = 1
[roles.coder]
[[roles.coder.grants]]
subtree = "demo.inventory"
allow = ["inventory.check"]
"""
PAYLOAD: JsonObject = {"sku": "WIDGET-42"}

Call = Callable[[], Awaitable[object]]


async def latencies_ms(call: Call, calls: int) -> list[float]:
    """One after the other."""
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


async def calls_per_second(call: Call, calls: int) -> float:
    """`CONCURRENCY` at once."""

    async def some() -> None:
        for _ in range(calls // CONCURRENCY):
            await call()

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(CONCURRENCY):
            tasks.start_soon(some)
    return calls // CONCURRENCY * CONCURRENCY / (time.perf_counter() - begun)


async def measure(host: HostProcess, client: BridgeClient, rounds: int, calls: int) -> JsonObject:
    """Medians over rounds taken in turn."""
    ctx = CallContext(Caller("worker", "coder"), "bench", 15_000)

    async def direct() -> object:
        return await host.request(ctx, "demo.inventory", "inventory.check", PAYLOAD)

    async def through() -> object:
        return await client.invoke("demo.inventory", "inventory.check", PAYLOAD)

    direct_ms, through_ms, per_second = [], [], []
    for _ in range(rounds):
        direct_ms.append(statistics.median(await latencies_ms(direct, calls)))
        through_ms.append(statistics.median(await latencies_ms(through, calls)))
        per_second.append(await calls_per_second(through, calls))
    added = statistics.median(b - a for a, b in zip(direct_ms, through_ms, strict=True))
    return {
        "directP50Ms": round(statistics.median(direct_ms), 3),
        "bridgeP50Ms": round(statistics.median(through_ms), 3),
        "addedP50Ms": round(added, 3),
        "ratio": round(statistics.median(through_ms) / statistics.median(direct_ms), 2),
        "callsPerSecond": round(statistics.median(per_second)),
        "concurrency": CONCURRENCY,
    }


async def run(rounds: int, calls: int) -> JsonObject:
    """Start everything once, warm it, measure."""
    with tempfile.TemporaryDirectory() as folder:
        home, actors, policy = Path(folder, "home"), Path(folder, "actors"), Path(folder, "permissions.toml")
        await anyio.Path(actors).mkdir()
        await anyio.Path(actors, "inventory.py").write_text(ACTOR)
        await anyio.Path(policy).write_text(POLICY)
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-P", "-m", "bridge", "--admin-fd", str(theirs.fileno()), "--home", str(home)]
        async with (
            await anyio.open_process(
                argv, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=None
            ) as bridge,
            anyio.create_task_group() as tasks,
        ):
            theirs.close()
            admin = JsonRpcPeer(await UNIXSocketStream.from_socket(ours))
            tasks.start_soon(admin.run)
            await admin.request("actors.add", {"path": str(actors), "guarded": True})
            given: JsonObject = {"kind": "worker", "worker": "claude-abc234", "policy": str(policy)}
            opened = await admin.request("caller.open", given)
            assert isinstance(opened, dict)
            host = HostProcess(HostSpec(actors, "local", guarded=True))
            await tasks.start(host.run)
            async with connect(home / "run" / "bridge.sock", str(opened["capability"])) as client:
                await measure(host, client, 1, CONCURRENCY * 4)
                measured = await measure(host, client, rounds, calls)
            await admin.aclose()
            await bridge.wait()
            tasks.cancel_scope.cancel()
    return measured


def main() -> None:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(description="What the bridge adds to a call.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=800)
    options = parser.parse_args()
    measured = anyio.run(run, options.rounds, options.calls)
    print(f"direct p50       {measured['directP50Ms']:>9} ms")
    print(f"bridge p50       {measured['bridgeP50Ms']:>9} ms   ({measured['ratio']} times)")
    print(f"added p50        {measured['addedP50Ms']:>9} ms   (target: at most {TARGET_ADDED_MS})")
    print(f"at concurrency {CONCURRENCY} {measured['callsPerSecond']:>9} /s   (target: at least {TARGET_PER_SECOND})")
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
