"""Finds the container engine, says what is wrong with it, and installs and starts one where that is ours to do.

Standard library only: it speaks to the engine's socket itself, so that set-up and `mxs doctor` can ask before anything
else works. What is to be done is a pure function of facts (`plan`); only `prepare_engine` changes the machine, and only
where no engine answers and we are root. Above: `provision`, `docker_sandbox`, the command line's `doctor`.
"""

import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sandboxes.sandbox import SandboxError
from sandboxes.set_up import run_logged

DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")
LOWEST_VERSION: Final = (20, 10, 10)  # the first whose seccomp profiles can answer ENOSYS, which clone3 needs
PROBE_TIMEOUT_S: Final = 5
READY_TIMEOUT_S: Final = 60  # 3 s on an idle machine
INSTALL_TIMEOUT_S: Final = 900
POLL_S: Final = 0.1
ENGINE_LOG: Final = Path("/var/log/mxs-dockerd.log")
PACKAGES: Final = ("docker.io", "iptables")

EngineState = Literal["ready", "absent", "noRights", "tooOld", "silent"]
Step = Literal["install", "start"]
Phase = Callable[[str], AbstractContextManager[None]]
"""Shows a piece of work with its seconds (`set_up.phase`)."""


@dataclass(frozen=True)
class EngineFacts:
    """What was seen of the machine. `version` is the engine's, empty where none answered."""

    state: EngineState
    socket_path: Path
    version: str = ""
    is_root: bool = False
    has_apt: bool = False
    has_dockerd: bool = False


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=PROBE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PROBE_TIMEOUT_S)
        self.sock.connect(str(self._path))


def engine_socket() -> Path:
    """The engine's socket: `DOCKER_HOST`, the `docker` command's context, the usual places. Raises `SandboxError`."""
    host = os.environ.get("DOCKER_HOST") or _context_host()
    if host:
        return _local_socket(host)
    rootless = Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent")) / "docker.sock"
    return rootless if rootless.exists() and not DEFAULT_SOCKET.exists() else DEFAULT_SOCKET


def _local_socket(host: str) -> Path:
    if not host.startswith("unix://"):
        raise SandboxError(
            f"The container engine at {host!r} is on another machine: a worker's folders are mounted from this one.",
            "Unset DOCKER_HOST, or point it at a local engine (unix://…).",
        )
    return Path(host.removeprefix("unix://"))


def _context_host() -> str:
    """The address of the context that `docker context use` chose; empty for the default one."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        name = os.environ.get("DOCKER_CONTEXT") or json.loads((folder / "config.json").read_bytes())["currentContext"]
        digest = hashlib.sha256(name.encode()).hexdigest()
        meta = json.loads((folder / "contexts" / "meta" / digest / "meta.json").read_bytes())
        return str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def read_facts(socket_path: Path | None = None) -> EngineFacts:
    """Ask the engine and look at the machine. Bounded by `PROBE_TIMEOUT_S`; never raises for a broken engine."""
    path = socket_path or engine_socket()
    state, version = _probe(path)
    return EngineFacts(
        state,
        path,
        version,
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None and Path("/etc/debian_version").exists(),
        has_dockerd=shutil.which("dockerd") is not None,
    )


def _probe(path: Path) -> tuple[EngineState, str]:
    connection = _SocketConnection(path)
    try:
        connection.request("GET", "/version")
        version = str(json.loads(connection.getresponse().read())["Version"])
    except (FileNotFoundError, ConnectionRefusedError):
        return "absent", ""
    except PermissionError:
        return "noRights", ""
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return "silent", ""
    finally:
        connection.close()
    return ("ready" if version_numbers(version) >= LOWEST_VERSION else "tooOld"), version


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of `20.10.24+dfsg1` as (20, 10, 24); empty for anything else."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def plan(facts: EngineFacts) -> tuple[Step, ...]:
    """What has to be done to have an engine: nothing, start, or install and start. Raises `SandboxError`."""
    if facts.state == "ready":
        return ()
    if facts.state != "absent":
        raise _complaint(facts)
    if not facts.is_root or facts.socket_path != DEFAULT_SOCKET:
        raise SandboxError(
            f"No container engine answers at {str(facts.socket_path)!r}.",
            "Start Docker; or run `make setup` once as root, which installs it on Debian.",
        )
    if facts.has_dockerd:
        return ("start",)
    if facts.has_apt:
        return ("install", "start")
    raise SandboxError(
        "No container engine is installed, and this is not Debian, where it could be installed for you.",
        "Install Docker Engine (https://docs.docker.com/engine/install) and run `make setup` again.",
    )


def _complaint(facts: EngineFacts) -> SandboxError:
    shown = repr(str(facts.socket_path))
    if facts.state == "noRights":
        mend = "Join its group (`sudo usermod -aG docker $USER`, then log in again), or use a rootless engine."
        return SandboxError(f"You have no right to use the container engine at {shown}.", mend)
    if facts.state == "tooOld":
        lowest = ".".join(map(str, LOWEST_VERSION))
        why = f"The container engine is version {facts.version}; the workers' seccomp profile needs {lowest} or later."
        return SandboxError(why, "Upgrade Docker Engine.")
    return SandboxError(f"The container engine at {shown} accepts connections and does not answer.", "Restart Docker.")


def check_engine(socket_path: Path | None = None) -> EngineFacts:
    """The facts of an engine that can be used. Raises `SandboxError`; changes nothing."""
    facts = read_facts(socket_path)
    if facts.state == "absent":
        raise SandboxError(f"No container engine answers at {str(facts.socket_path)!r}.", "Run `make setup`.")
    if facts.state != "ready":
        raise _complaint(facts)
    return facts


def prepare_engine(phase: Phase, log: Path) -> EngineFacts:
    """Have an engine: install and start what `plan` asks for, showing each step. Raises `SandboxError`."""
    facts = read_facts()
    steps = plan(facts)
    if "install" in steps:
        with phase("container engine: install"):
            _install(log)
    if "start" in steps:
        with phase("container engine: start"):
            _start()
    return check_engine() if steps else facts


def _install(log: Path) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "-y", "--no-install-recommends", *PACKAGES)):
        run_logged(("apt-get", *words), log, timeout_s=INSTALL_TIMEOUT_S, env=environment)


def _start() -> None:
    if _probe(DEFAULT_SOCKET)[0] == "ready":
        return  # the package's own service is up
    if Path("/run/systemd/system").is_dir():
        subprocess.run(("systemctl", "enable", "--now", "docker"), check=False, timeout=READY_TIMEOUT_S)
    else:
        _start_by_hand()
    deadline = time.monotonic() + READY_TIMEOUT_S
    while _probe(DEFAULT_SOCKET)[0] != "ready":
        if time.monotonic() > deadline:
            raise SandboxError(f"dockerd was started and is not ready after {READY_TIMEOUT_S} s.", f"See {ENGINE_LOG}.")
        time.sleep(POLL_S)


def _start_by_hand() -> None:
    """Start dockerd without a service manager. Live-restore: workers outlive a restart of the engine."""
    settings = () if Path("/etc/docker/daemon.json").exists() else ("--live-restore",)
    with ENGINE_LOG.open("ab") as log:
        subprocess.Popen(
            ("dockerd", *settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
