"""How a benchmark tells its figures: as a line for people and as JSON. Leaf."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One figure with the aim it is held against; `better` is "lower" or "higher"."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    better: str = "lower"

    def line(self) -> str:
        """For people."""
        if self.aim is None:
            return f"{self.name:<66} {self.value:>10.2f} {self.unit}"
        met = self.value <= self.aim if self.better == "lower" else self.value >= self.aim
        sign = "≤" if self.better == "lower" else "≥"
        return (
            f"{self.name:<66} {self.value:>10.2f} {self.unit}  (aim {sign} {self.aim:g}: {'met' if met else 'missed'})"
        )


def median_ms(seconds: Sequence[float]) -> float:
    """The median of durations in seconds, in milliseconds."""
    return statistics.median(seconds) * 1000


def tell(figures: Sequence[Figure], file: Path | None = None) -> None:
    """Print the figures; with `file`, also keep them as JSON lines."""
    for figure in figures:
        print(figure.line(), flush=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as lines:
            lines.writelines(json.dumps(vars(figure)) + "\n" for figure in figures)
