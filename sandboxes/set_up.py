"""`make setup`, from a bare machine on: `python3 sandboxes/set_up.py` makes `.venv` and hands over to `provision`.

Standard library only, and it imports nothing of ours: it runs before anything is installed. Each phase is shown with
its seconds, what the tools print goes to `build/setup.log`, and a phase whose inputs have not changed is not repeated.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST_PYTHON = (3, 11)
LOG = Path("build") / "setup.log"
STAMP = Path(".venv") / "mxs-setup.sha256"
INPUTS = ("requirements.lock", "pyproject.toml", "hatch_build.py", "sandboxes/helper/*.[ch]")
STEP_TIMEOUT_S = 1800  # some 300 MB of packages over a slow line
SHOWN_LOG_LINES = 15
NAME_WIDTH = 34


class SetUpError(Exception):
    """A step failed. The message holds the last lines of what it printed, and the mend."""


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Show `name` when the work begins and its seconds when it ends."""
    sys.stdout.write(f"  {name:<{NAME_WIDTH}}")
    sys.stdout.flush()
    began = time.monotonic()
    ended = "failed after"
    try:
        yield
        ended = ""
    finally:
        sys.stdout.write(f"{ended} {time.monotonic() - began:6.1f} s\n")
        sys.stdout.flush()


def run_logged(argv: tuple[str, ...], log: Path, *, timeout_s: float, env: Mapping[str, str] | None = None) -> None:
    """Run `argv` with its output appended to `log`. Raises `SetUpError` with the last lines when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        output.write(f"$ {' '.join(argv)}\n".encode())
        output.flush()
        began = output.tell()
        try:
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True, timeout=timeout_s, env=env
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SetUpError(f"{argv[0]!r} failed: {_why(error)}{_tail(log, began)}\nThe whole log: {log}") from error


def _why(error: Exception) -> str:
    return f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)


def _tail(log: Path, began: int) -> str:
    with log.open("rb") as written:
        written.seek(began)
        lines = written.read().decode("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
    return "".join(f"\n    {line}" for line in lines)


def inputs_digest(root: Path) -> str:
    """SHA-256 over the names and contents of everything that `.venv` is made from."""
    digest = hashlib.sha256(sys.version.encode())
    for pattern in INPUTS:
        for path in sorted(root.glob(pattern)):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def make_environment(root: Path) -> None:
    """`.venv` with exactly the locked packages, the helper and `mxs`. Nothing is done where it is up to date."""
    digest, stamp = inputs_digest(root), root / STAMP
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
        return
    python = root / ".venv" / "bin" / "python"
    log = root / LOG
    stamp.unlink(missing_ok=True)
    if not python.exists():
        with phase("python environment"):
            _create_environment(root, log)
    with phase("locked packages"):
        locked = ("--require-hashes", "-r", str(root / "requirements.lock"))
        _pip(python, log, *locked)
    with phase("container helper and mxs"):
        _pip(python, log, "--no-build-isolation", "--no-deps", "-e", str(root))
    stamp.write_text(digest, encoding="ascii")


def _pip(python: Path, log: Path, *words: str) -> None:
    argv = (str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)
    run_logged(argv, log, timeout_s=STEP_TIMEOUT_S)


def _create_environment(root: Path, log: Path) -> None:
    """Debian keeps `venv` in a package of its own; as root it is installed where it is missing."""
    create = (sys.executable, "-m", "venv", str(root / ".venv"))
    try:
        run_logged(create, log, timeout_s=STEP_TIMEOUT_S)
    except SetUpError as error:
        if os.geteuid() != 0:
            raise SetUpError(f"{error}\nInstall the package python3-venv and run `make setup` again.") from error
        for words in (("update",), ("install", "-y", "--no-install-recommends", "python3-venv")):
            run_logged(("apt-get", *words), log, timeout_s=STEP_TIMEOUT_S)
        run_logged(create, log, timeout_s=STEP_TIMEOUT_S)


def main() -> int:
    """Exit codes: 0 everything is there, 2 Python is too old, 3 a phase failed."""
    if sys.version_info < LOWEST_PYTHON:
        sys.stderr.write(f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed.\n")
        return 2
    try:
        make_environment(ROOT)
    except SetUpError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    provision = (str(ROOT / ".venv" / "bin" / "python"), "-P", "-m", "sandboxes.provision")
    return subprocess.run((*provision, str(ROOT / LOG)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
