"""One child as data, and how it is started and ended: the bridge and the gateway.

Children get an environment of named variables only, so that no key of the command's environment is inherited; their
standard error goes to a file; they end by themselves when the descriptor they were given is closed. Above:
`bridge_link`, `gateway_link`.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

STOP_GRACE_S: Final = 5.0
"""How long a child has to end by itself after its descriptor was closed, before it is killed."""

KILL_WAIT_S: Final = 2.0

PASSED_VARIABLES: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CA_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@dataclass(frozen=True)
class ChildSpec:
    """A Python module of ours to run: its name, its arguments, where its standard error goes, its extra variables."""

    module: str
    arguments: tuple[str, ...]
    log: Path
    variables: tuple[str, ...] = ()
    pass_fds: tuple[int, ...] = ()


def child_environment(extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables a child inherits: a short list, never a provider's key. Proxy variables in either case."""
    names = {*PASSED_VARIABLES, *extra, *(name.lower() for name in extra)}
    return {name: value for name, value in os.environ.items() if name in names}


def python_words(module: str) -> tuple[str, ...]:
    """`python -P -m module`: -P, since a repository may hold a folder of our packages' names."""
    return (sys.executable, "-P", "-m", module)


@asynccontextmanager
async def running_child(spec: ChildSpec) -> AsyncIterator[Process]:
    """The started process; on leaving it is given its grace, then killed. The caller closes its descriptor first."""
    with spec.log.open("ab") as log:
        process = await anyio.open_process(
            [*python_words(spec.module), *spec.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(spec.variables),
            pass_fds=spec.pass_fds,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: Process) -> None:
    with anyio.move_on_after(STOP_GRACE_S):
        await process.wait()
        return
    process.kill()
    with anyio.move_on_after(KILL_WAIT_S):
        await process.wait()
