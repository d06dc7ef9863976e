"""The gateway process: `python -P -m sandboxes.gateway --socket PATH --parent-fd N` (docs/wires.md).

Holds the provider keys, and ends when its parent does. Above: the supervisor, which starts it; below: `gateway`.
"""

import argparse
import os
import socket
from pathlib import Path

import anyio
import uvicorn

from sandboxes.gateway.control import control_app
from sandboxes.gateway.gateway import Gateway
from sandboxes.gateway.process_guard import raise_file_limit, seal_memory, wait_for_parent_end


def main() -> None:
    """Run until the parent's descriptor is closed or a signal says so."""
    parser = argparse.ArgumentParser(prog="sandboxes.gateway", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where to listen for the supervisor")
    parser.add_argument("--parent-fd", type=int, required=True, help="inherited descriptor whose end ends this process")
    arguments = parser.parse_args()
    seal_memory()
    raise_file_limit()
    os.umask(0o077)
    arguments.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(arguments.socket))
    listener.listen()
    try:
        anyio.run(_serve, listener, arguments.parent_fd)
    finally:
        arguments.socket.unlink(missing_ok=True)


async def _serve(listener: socket.socket, parent_fd: int) -> None:
    try:
        async with Gateway() as gateway, anyio.create_task_group() as tasks:
            tasks.start_soon(_run_control, gateway, listener, tasks.cancel_scope)
            await wait_for_parent_end(parent_fd)
            tasks.cancel_scope.cancel()
    finally:
        listener.close()


async def _run_control(gateway: Gateway, listener: socket.socket, scope: anyio.CancelScope) -> None:
    config = uvicorn.Config(
        control_app(gateway), log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    await uvicorn.Server(config).serve(sockets=[listener])
    scope.cancel()


if __name__ == "__main__":
    main()
