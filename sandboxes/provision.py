"""The second half of `make setup`, `python -P -m sandboxes.provision LOG`: have an engine and the worker image.

Runs in the finished environment, after `set_up`. Idempotent; where everything is there, done in a fraction of a second.
"""

import sys
from pathlib import Path

from sandboxes.engine import prepare_engine
from sandboxes.sandbox import SandboxError
from sandboxes.set_up import SetUpError, phase
from sandboxes.worker_image import prepare_worker_image


def main(log: Path) -> int:
    """Exit codes: 0 both are there, 3 not (with the mend on standard error)."""
    try:
        engine = prepare_engine(phase, log)
        tag = prepare_worker_image(phase, log)
    except (SandboxError, SetUpError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write(f"  ready: engine {engine.version}, image {tag}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
