"""The supervisor's process: takes the state folder's lock, serves the control API, ends on request or on a signal.

`python -P -m supervisor.daemon --home DIR --root ROOT`; started by the command line, which waits for its socket alone.
"""

import argparse
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import uvicorn

from supervisor.control.api import control_api
from supervisor.home import StateFolder
from supervisor.supervisor import Supervisor

OTHERS_NOTHING = 0o077
"""The umask: files, folders and sockets are the owner's alone."""

LAST_ANSWERS_S = 2
"""For what clients are still being told when all runs have ended, such as the last events of a run."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the end is the supervisor's to order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main() -> int:
    """0 after an orderly end, and when another supervisor already holds the folder."""
    parser = argparse.ArgumentParser(prog="supervisor.daemon", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--root", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    home = StateFolder(arguments.home)
    home.make()
    with home.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.getLogger(__name__).info("another supervisor runs for %s", home.root)
            return 0
        _remove_sockets(home)
        try:
            anyio.run(_serve, home, arguments.root)
        finally:
            _remove_sockets(home)
    return 0


def _remove_sockets(home: StateFolder) -> None:
    for path in home.run.glob("*.sock"):
        path.unlink(missing_ok=True)


async def _serve(home: StateFolder, root: str) -> None:
    os.umask(OTHERS_NOTHING)
    supervisor = Supervisor(home, root)
    application = control_api(supervisor)
    server = _Server(
        uvicorn.Config(
            application, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=LAST_ANSWERS_S
        )
    )

    async def exit_when_stopped() -> None:
        await supervisor.stopped.wait()
        server.should_exit = True

    async def serve() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home.control_socket))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(exit_when_stopped)
                await server.serve(sockets=[listener])
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, supervisor)
        await supervisor.run(serve)
        tasks.cancel_scope.cancel()


async def _end_on_signal(supervisor: Supervisor) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            supervisor.request_end()


if __name__ == "__main__":
    sys.exit(main())
