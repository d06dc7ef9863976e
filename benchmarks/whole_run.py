"""A whole scripted run of five calls, warm: from the command to its exit, both kinds."""

import time

from benchmarks.figures import Figure, median_ms
from benchmarks.product import SHOP, Product, product

ROUNDS = 5


def measure() -> list[Figure]:
    """Medians of the command's wall time and of the run's own, after one run that warms."""
    with product() as made:
        return [figure for kind in ("claude", "codex") for figure in _measure_kind(made, kind)]


def _measure_kind(made: Product, kind: str) -> list[Figure]:
    walls, inside = [], []
    made.run(kind, SHOP / "fix.yaml")
    for _ in range(ROUNDS):
        began = time.monotonic()
        events = made.run(kind, SHOP / "fix.yaml")
        walls.append(time.monotonic() - began)
        inside.append(events[-1]["durationMs"] / 1000)
    return [
        Figure(f"{kind}: a whole scripted run, command to exit", median_ms(walls) / 1000, "s", aim=3.0),
        Figure(f"{kind}: the same, from request to result", median_ms(inside) / 1000, "s"),
    ]
