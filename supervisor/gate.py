"""The start gate: whether a worker is what was projected, and the evidence of it. Pure but for versions.

The gateway shows the tools in the worker's first request to its model, which is the true surface. A tool too many
refuses the worker; a tool too few is evidence, since a request of a sub-agent may carry fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from bridge.contract.json_types import JsonObject
from supervisor.workers.worker import WorkerKind

PROGRAMS: Final[Mapping[WorkerKind, str]] = {"claude": "claude-agent-sdk", "codex": "openai-codex-cli-bin"}
"""The package that brings each kind's program."""

FLOORS: Final[Mapping[WorkerKind, tuple[int, ...]]] = {"claude": (0, 2, 189), "codex": (0, 163)}
"""The lowest versions whose hooks and pins were tried."""


@dataclass(frozen=True)
class GateVerdict:
    """What the gate saw. `refusal` is None for a worker that may go on."""

    seen: frozenset[str]
    missing: frozenset[str]
    unexpected: frozenset[str]
    package: str
    version: str
    refusal: str | None

    def to_record(self) -> JsonObject:
        """The fields of the `gate` record."""
        return {
            "verdict": "passed" if self.refusal is None else "refused",
            "why": self.refusal,
            "surface": {
                "seen": [*sorted(self.seen)],
                "missing": [*sorted(self.missing)],
                "unexpected": [*sorted(self.unexpected)],
            },
            "program": {"package": self.package, "version": self.version},
        }


def judge_surface(
    kind: WorkerKind, expected: frozenset[str] | None, seen: frozenset[str], installed: str | None = None
) -> GateVerdict:
    """Compare the surface with the projection (None: it cannot be foretold) and the version with its floor."""
    package = PROGRAMS[kind]
    found = version(package) if installed is None else installed
    unexpected = seen - expected if expected is not None else frozenset[str]()
    missing = expected - seen if expected is not None else frozenset[str]()
    refusal = None
    if unexpected:
        refusal = f"The worker's tool surface holds more than was projected: {', '.join(sorted(unexpected))}."
    elif _numbers(found) < FLOORS[kind]:
        floor = ".".join(map(str, FLOORS[kind]))
        refusal = f"{package} {found} is below {floor}, the lowest version that was tried. Upgrade it."
    return GateVerdict(seen, missing, unexpected, package, found, refusal)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
