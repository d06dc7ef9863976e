"""`python -m benchmarks [NAME…]`: all of them, or those named. Figures are kept in build/benchmarks.jsonl."""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import bridge_calls, memory, whole_run, worker_start
from benchmarks.figures import Figure, tell

ALL: dict[str, Callable[[], list[Figure]]] = {
    "worker_start": worker_start.measure,
    "bridge_calls": bridge_calls.measure,
    "memory": memory.measure,
    "whole_run": whole_run.measure,
}


def main() -> None:
    """Run the named benchmarks, or all."""
    for name in sys.argv[1:] or ALL:
        print(f"\n{name}", flush=True)
        tell(ALL[name](), Path("build/benchmarks.jsonl"))


if __name__ == "__main__":
    main()
