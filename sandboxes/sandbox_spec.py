"""What a worker's container is made of, as frozen data. Leaf of `sandboxes`.

`docker_options` turns it into the engine's words, `docker_sandbox` starts it. Nothing here can ask for a privilege.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MEBIBYTE = 1024 * 1024
WORKSPACE = PurePosixPath("/workspace")
HOME = PurePosixPath("/home/worker")
GATEWAY_SOCKET = PurePosixPath("/run/mxs/gateway.sock")
HELPER = PurePosixPath("/opt/mxs/mxs-helper")
RELAY_PORT = 8080
"""The worker finds the gateway at http://127.0.0.1:8080, where the helper relays to `GATEWAY_SOCKET`."""


@dataclass(frozen=True)
class ReadOnlyMount:
    """A file or folder of the host that the worker may read: its own program, its pinned configuration."""

    source: Path
    target: PurePosixPath


@dataclass(frozen=True)
class SandboxLimits:
    """Bounds on what one container may use. Sizes in bytes."""

    memory_bytes: int = 2048 * MEBIBYTE
    cpus: float = 2.0
    pids: int = 512
    tmp_bytes: int = 512 * MEBIBYTE
    home_bytes: int = 256 * MEBIBYTE
    shm_bytes: int = 64 * MEBIBYTE
    open_files: int = 4096


@dataclass(frozen=True)
class SandboxSpec:
    """One worker's container. `argv` runs under the helper (init and relay) as `uid:gid` in `WORKSPACE`."""

    worker_id: str
    owner: str  # the state folder this container belongs to: a label, so that other people's are never touched
    image: str
    argv: tuple[str, ...]
    uid: int
    gid: int
    workspace: Path
    gateway_socket: Path
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ReadOnlyMount, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    runtime: str | None = None  # e.g. "runsc"

    @property
    def container_name(self) -> str:
        """`mxs-` and the worker's id (contracts.md, section 1)."""
        return f"mxs-{self.worker_id}"
