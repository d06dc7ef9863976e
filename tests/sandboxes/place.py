"""A folder with what a container needs, and specs that use it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from sandboxes import SandboxSpec, worker_image_tag

FIRST_UID = 200_000
_numbers = count(1)


@dataclass(frozen=True)
class Place:
    """A workspace and a gateway socket that accepts connections and says nothing."""

    workspace: Path
    gateway_socket: Path
    uid: int
    owner: str

    def spec(self, *argv: str, **changes: Any) -> SandboxSpec:
        """A spec for `argv` with a worker id that nothing else uses."""
        made = SandboxSpec(
            worker_id=f"test-{os.getpid()}-{next(_numbers)}",
            owner=self.owner,
            image=worker_image_tag(),
            argv=argv,
            uid=self.uid,
            gid=self.uid,
            workspace=self.workspace,
            gateway_socket=self.gateway_socket,
        )
        return replace(made, **changes)


@contextmanager
def place_in(folder: Path) -> Iterator[Place]:
    """Make the place. As root its worker has a uid of its own, otherwise ours."""
    uid = FIRST_UID + next(_numbers) if os.geteuid() == 0 else os.getuid()
    workspace, path = folder / "workspace", folder / "gateway.sock"
    workspace.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        if os.geteuid() == 0:
            os.chown(workspace, uid, uid)
            os.chown(path, uid, uid)
        yield Place(workspace, path, uid, owner=str(folder))
