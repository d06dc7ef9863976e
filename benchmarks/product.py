"""The product under a benchmark: a state folder of its own, the example's repository, the command from outside."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHOP = Path(__file__).parents[1] / "examples" / "shop"
COMMAND_TIMEOUT_S = 120


class Product:
    """`mxs` under one state folder, and a repository for its workers."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.repo = folder / "shop"
        shutil.copytree(SHOP / "repo", self.repo)
        who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
        for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "A shop with a bug")):
            subprocess.run(["git", *words], cwd=self.repo, check=True)

    def mxs(self, *words: str) -> str:
        """The command's standard output. Raises CalledProcessError."""
        argv = [sys.executable, "-P", "-m", "supervisor", *words]
        environment = {**os.environ, "MXS_HOME": str(self.home)}
        done = subprocess.run(
            argv, env=environment, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
        return done.stdout

    def run_words(self, kind: str, script: Path) -> tuple[str, ...]:
        """The words of a scripted run on the shop."""
        shared = ("--policy", str(SHOP / "permissions.toml"), "--actors", str(SHOP / "actors"))
        return (
            "run",
            kind,
            "Fix the bug.",
            "--repo",
            str(self.repo),
            *shared,
            "--model",
            f"script:{script}",
            "--no-input",
        )

    def run(self, kind: str, script: Path) -> list[dict[str, Any]]:
        """The events of a whole scripted run."""
        return [json.loads(line) for line in self.mxs(*self.run_words(kind, script), "--json").splitlines()]


@contextmanager
def product() -> Iterator[Product]:
    """A product that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="mxs-bench-", dir="/tmp"))  # short: its sockets' paths are bounded
    made = Product(folder)
    try:
        yield made
    finally:
        made.mxs("down")
        shutil.rmtree(folder)
