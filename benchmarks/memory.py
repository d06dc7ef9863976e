"""Resident memory of supervisor, bridge and gateway, idle and with workers; what each further worker adds."""

import json
import time
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.product import Product, product

WORKERS = 4
WAIT_S = 60
HOLD = "steps: [{delayMs: 600000, say: Done.}]\n"


def measure() -> list[Figure]:
    """MiB of the three processes with one worker, and MiB that each further worker adds to them."""
    with product() as made:
        script = made.home.parent / "hold.yaml"
        script.write_text(HOLD)
        made.mxs("up")
        idle = resident_mib(made)
        _start(made, script, 1)
        with_one = resident_mib(made)
        _start(made, script, WORKERS)
        with_more = resident_mib(made)
        return [
            Figure("supervisor + bridge + gateway, idle", idle, "MiB"),
            Figure("supervisor + bridge + gateway, one worker", with_one, "MiB", aim=200),
            Figure("each further worker", (with_more - with_one) / WORKERS, "MiB", aim=5),
        ]


def _start(made: Product, script: Path, count: int) -> None:
    for _ in range(count):
        made.mxs(*made.run_words("claude", script), "--detach")
    deadline, states = time.monotonic() + WAIT_S, list[str]()
    while time.monotonic() < deadline:
        states = [json.loads(line)["state"] for line in made.mxs("ps", "--json").splitlines()]
        if states and set(states) == {"running"}:
            return
    raise TimeoutError(f"the workers did not start: {states}")


def resident_mib(made: Product) -> float:
    """MiB of the three processes of a running product."""
    status = json.loads(made.mxs("status", "--json"))
    pids = [status["pid"], status["bridge"]["pid"], status["gateway"]["pid"]]
    return sum(_resident_kib(pid) for pid in pids) / 1024


def _resident_kib(pid: int) -> int:
    """VmRSS of a process; the gateway cannot be read but by root."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])
