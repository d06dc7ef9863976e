"""Builds the static helper with the package: `sandboxes/helper/*.c` -> `sandboxes/helper/bin/mxs-helper-<machine>`.

Run by hatchling (pyproject.toml, `[tool.hatch.build.hooks.custom]`). The compiler is the pinned PyPI package `ziglang`,
so no compiler of the machine is needed and the same sources give the same bytes everywhere. A wheel gets a helper for
every machine, an editable installation one for this machine alone: a first build compiles the C library, too.
"""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = ("x86_64", "aarch64")
HELPER_FOLDER = Path("sandboxes") / "helper"
COMPILE_TIMEOUT_S = 900  # a first build compiles musl: a minute on a fast machine
FLAGS = ("-static", "-Os", "-s", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


def compile_helper(sources: Path, machine: str, output: Path) -> None:
    """Compile every `*.c` of `sources` for Linux on `machine` into `output`. Raises CalledProcessError."""
    output.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path.name for path in sources.glob("*.c"))
    compiler = [sys.executable, "-P", "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl"]
    built = output.with_suffix(".new")
    command = [*compiler, *FLAGS, *files, "-o", str(built.resolve())]
    subprocess.run(command, cwd=sources, check=True, timeout=COMPILE_TIMEOUT_S)
    built.replace(output)  # a running container keeps the file it has


class HelperBuildHook(BuildHookInterface[Any]):
    """Compiles before the files of a wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is hatchling's word for the form: `editable` or `standard`."""
        folder = Path(self.root) / HELPER_FOLDER
        machines = (platform.machine(),) if version == "editable" else MACHINES
        for machine in machines:
            if machine not in MACHINES:
                raise RuntimeError(
                    f"no helper can be built for {machine!r}: the workers' programs exist for {MACHINES}"
                )
            compile_helper(folder, machine, folder / "bin" / f"mxs-helper-{machine}")
        build_data["artifacts"].append(f"{HELPER_FOLDER.as_posix()}/bin/*")
