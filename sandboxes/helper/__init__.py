"""The static helper that is mounted into every container: init, relay and hook in one program (`mxs_helper.c`).

This module only knows where the built program lies. It is built with the package (`hatch_build.py`).
"""

import platform
from pathlib import Path

from sandboxes.sandbox import SandboxError


def helper_path() -> Path:
    """The helper for this machine. Raises `SandboxError` when it was not built."""
    path = Path(__file__).parent / "bin" / f"mxs-helper-{platform.machine()}"
    if not path.is_file():
        raise SandboxError(f"The container helper {str(path)!r} was not built.", "Run `make setup`.")
    return path
