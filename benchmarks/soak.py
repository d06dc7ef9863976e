"""`python -m benchmarks.soak [SECONDS]`: scripted workers of both kinds, one after the other, for as long as asked.

Ends with what it left: containers, memory, and whether the log is intact. Exit code 1 when a container is left or the
log is broken.
"""

import subprocess
import sys
import time

from benchmarks.figures import Figure, tell
from benchmarks.memory import resident_mib
from benchmarks.product import SHOP, Product, product

DEFAULT_S = 600.0


def main() -> int:
    """Run workers for the time given, then look around."""
    until = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_S)
    with product() as made:
        made.mxs("up")
        before = resident_mib(made)
        ended = _run_until(made, until)
        after = resident_mib(made)
        containers = _containers(made)
        verified = made.mxs("audit", "verify").strip()
    tell(
        [
            Figure("runs completed", ended, "runs"),
            Figure("supervisor + bridge + gateway before", before, "MiB"),
            Figure("supervisor + bridge + gateway after", after, "MiB"),
            Figure("containers left", len(containers), ""),
        ]
    )
    print(verified)
    return 1 if containers or not verified.startswith("intact") else 0


def _run_until(made: Product, until: float) -> int:
    ended = 0
    while time.monotonic() < until:
        for kind in ("claude", "codex"):
            result = made.run(kind, SHOP / "fix.yaml")[-1]
            assert result["status"] == "completed", result
            made.mxs("rm", "--force", result["worker"])
            ended += 1
    return ended


def _containers(made: Product) -> list[str]:
    words = ("docker", "ps", "-aq", "--filter", f"label=mxs.owner={made.home}")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


if __name__ == "__main__":
    sys.exit(main())
