"""`mxs doctor`: what a run needs, one line each, with the mend where something is missing. Changes nothing."""

import os
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal, NamedTuple

import typer

import supervisor
from sandboxes import SandboxError, check_engine, has_image, worker_image_tag
from sandboxes.helper import helper_path
from supervisor.cli.options import JsonOption
from supervisor.cli.session import state_folder
from supervisor.cli.terminal import print_json, say
from supervisor.control.client import running_supervisor
from supervisor.home import LONGEST_SOCKET_PATH
from supervisor.providers import PROVIDERS
from supervisor.refusal import EXIT_UNAVAILABLE

Grade = Literal["good", "missing", "note"]

DISK_WANTED_BYTES: Final = 2 * 1024**3
_MARKS: Final[dict[Grade, tuple[str, str]]] = {
    "good": ("ok", "green"),
    "missing": ("--", "red"),
    "note": ("!!", "yellow"),
}


class Check(NamedTuple):
    """One thing looked at: `missing` stops runs, `note` does not."""

    name: str
    grade: Grade
    what: str
    mend: str = ""


def doctor(json_: JsonOption = False) -> None:
    """Look at everything a run needs: engine, image, programs, keys, disk. Exit code 3 when something is missing."""
    checks = [check() for check in _CHECKS]
    for found in checks:
        if json_:
            print_json(dict(found._asdict()))
            continue
        mark, style = _MARKS[found.grade]
        say(f"{mark} {found.name}: {found.what}" + (f"  {found.mend}" if found.mend else ""), style=style)
    if any(found.grade == "missing" for found in checks):
        raise typer.Exit(EXIT_UNAVAILABLE)


def _engine() -> Check:
    try:
        facts = check_engine()
    except SandboxError as fault:
        return Check("engine", "missing", fault.message, fault.mend)
    return Check("engine", "good", f"version {facts.version} at {facts.socket_path}")


def _image() -> Check:
    tag = worker_image_tag()
    try:
        if has_image(tag):
            return Check("image", "good", tag)
    except SandboxError as fault:
        return Check("image", "missing", fault.message, fault.mend)
    return Check("image", "note", f"{tag} is not built.", "The first run builds it; `make setup` does it now.")


def _helper() -> Check:
    try:
        return Check("helper", "good", str(helper_path()))
    except SandboxError as fault:
        return Check("helper", "missing", fault.message, fault.mend)


def _programs() -> Check:
    try:
        found = [f"{name} {version(name)}" for name in ("claude-agent-sdk", "openai-codex-cli-bin")]
    except PackageNotFoundError as fault:
        return Check("programs", "missing", f"{fault.name} is not installed.", "Install matrix-supervisor again.")
    return Check("programs", "good", ", ".join(found))


def _keys() -> Check:
    absent = [provider.key_variable for provider in PROVIDERS.values() if not os.environ.get(provider.key_variable)]
    if not absent:
        return Check("keys", "good", "a key for each kind of worker is in this environment")
    return Check("keys", "note", f"not set: {', '.join(absent)}.", "Set them for the commands that use a real model.")


def _home() -> Check:
    home = state_folder()
    if len(str(home.run / "claude-xxxxxx.sock").encode()) > LONGEST_SOCKET_PATH:
        return Check(
            "state", "missing", f"{home.root} is too long for unix sockets.", "Set MXS_HOME to a shorter path."
        )
    existing = next(folder for folder in (home.root, *home.root.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < DISK_WANTED_BYTES:
        return Check("state", "note", f"{home.root}: {free / 1024**3:.1f} GiB free.", "Free some space.")
    return Check("state", "good", f"{home.root}, {free / 1024**3:.0f} GiB free")


def _supervisor() -> Check:
    client = running_supervisor(state_folder())
    if client is None:
        return Check("supervisor", "good", "not running; `mxs run` starts it")
    state = client.get("/status")
    if state["version"] != supervisor.__version__:
        return Check("supervisor", "missing", f"version {state['version']} runs.", "Run `mxs down`.")
    return Check("supervisor", "good", f"runs as process {state['pid']}")


_CHECKS: Final[tuple[Callable[[], Check], ...]] = (_engine, _image, _helper, _programs, _keys, _home, _supervisor)
