"""The gateway process: `python -P -m sandboxes.gateway --socket PATH --parent-fd N` (docs/wires.md).

Holds the provider keys, and ends when its parent does. Above: the supervisor, which starts it; below: `gateway`.
"""

import argparse
import os
import signal
from pathlib import Path
from typing import Final

import anyio

from sandboxes.gateway.control import Control
from sandboxes.gateway.gateway import Gateway
from sandboxes.gateway.peer_socket import PeerSocket
from sandboxes.gateway.process_guard import raise_file_limit, seal_memory, wait_for_parent_end

CONTROL_CONNECTIONS: Final = 1024
"""The supervisor's own: an answer on its way for each question, some of every worker."""


def main() -> None:
    """Run until the parent's descriptor is closed or a signal says so."""
    parser = argparse.ArgumentParser(prog="sandboxes.gateway", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where to listen for the supervisor")
    parser.add_argument("--parent-fd", type=int, required=True, help="inherited descriptor whose end ends this process")
    arguments = parser.parse_args()
    seal_memory()
    raise_file_limit()
    os.umask(0o077)
    anyio.run(_serve, arguments.socket, arguments.parent_fd)


async def _serve(path: Path, parent_fd: int) -> None:
    async with Gateway() as gateway, anyio.create_task_group() as tasks:
        control = Control(gateway)
        tasks.start_soon(PeerSocket(path, os.geteuid(), control.handle, control.reject, CONTROL_CONNECTIONS).serve)
        tasks.start_soon(_end_by_signal, tasks.cancel_scope)
        await wait_for_parent_end(parent_fd)
        tasks.cancel_scope.cancel()


async def _end_by_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


if __name__ == "__main__":
    main()
