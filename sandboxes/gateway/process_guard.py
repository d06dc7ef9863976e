"""Shuts the gateway's process off from its surroundings, and ends it with its parent. Linux."""

import ctypes
import os
import resource
from typing import Final

import anyio

_PR_SET_DUMPABLE: Final = 4


def seal_memory() -> None:
    """No core dump, and `/proc/PID/mem` closed to processes of the same user: keys stay in this process.

    Raises `OSError` if the kernel refuses: then no key may come in.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) was refused")


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have: each worker has connections of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def wait_for_parent_end(descriptor: int) -> None:
    """Return when the other end of the inherited descriptor is closed, which the kernel does for a dead parent."""
    os.set_blocking(descriptor, False)
    while True:
        await anyio.wait_readable(descriptor)
        try:
            if not os.read(descriptor, 4096):
                return
        except BlockingIOError:
            continue
        except OSError:
            return
