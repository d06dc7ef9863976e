"""The bridge's process, which the supervisor starts.

Started as `python -P -m bridge --admin-fd N --home DIR --root ROOT --version V`.

Reads its arguments and hands over to `assembly`. It ends when the admin descriptor's other end closes, and on SIGTERM.
"""

import argparse
import json
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from bridge.assembly import BridgeConfig, serve
from bridge.contract.errors import MatrixError

UNUSABLE: Final = 3
"""Exit code where the bridge cannot start; the reason is one line of JSON on standard error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bridge; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bridge", description="Judges, records and executes tool calls.")
    parser.add_argument("--admin-fd", type=int, required=True, help="the inherited socket to the supervisor")
    parser.add_argument("--home", type=Path, required=True, help="the state folder, usually $MXS_HOME")
    parser.add_argument("--root", default="local", help="the authority root, such as acme.com")
    parser.add_argument("--version", default="", help="the supervisor's version, for bridge.hello")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="bridge: %(message)s")
    config = BridgeConfig(options.home.absolute(), options.root, options.version)
    code = 0
    try:
        anyio.run(_run, config, options.admin_fd)
    except* (MatrixError, OSError) as group:
        sys.stderr.write(json.dumps({"error": _told(group)}) + "\n")
        code = UNUSABLE
    return code


async def _run(config: BridgeConfig, descriptor: int) -> None:
    admin = socket.socket(fileno=descriptor)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, tasks.cancel_scope)
        await serve(config, admin)
        tasks.cancel_scope.cancel()


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    # SIGINT comes from a terminal for the whole group; whether the bridge ends then is the supervisor's decision.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            if received == signal.SIGTERM:
                scope.cancel()


def _told(group: BaseExceptionGroup[Exception]) -> dict[str, object]:
    error = group.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _told(error)
    if isinstance(error, MatrixError):
        return error.to_wire()
    return MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE", f"The bridge cannot start: {error}").to_wire()


if __name__ == "__main__":
    sys.exit(main())
