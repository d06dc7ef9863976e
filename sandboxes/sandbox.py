"""The seam between the supervisor and a wall: start a worker's process behind it, talk over its stdio, end it.

Below: `docker_sandbox` (the engine) and `memory_sandbox` (an in-process twin for tests and embedding). Above: the
supervisor, which knows nothing of Docker. What it refuses to know: what the worker says on its stdio.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from anyio.abc import ByteStream

from sandboxes.sandbox_spec import SandboxSpec

ExitReason = Literal["exited", "killed", "oom"]
Ready = Callable[[], Awaitable[None]]


class SandboxError(Exception):
    """The wall itself failed: no engine, no rights, no image, or the engine refused. Never a worker's own failure.

    `message` says what and why, `mend` what to do about it.
    """

    def __init__(self, message: str, mend: str) -> None:
        self.message = message
        self.mend = mend
        super().__init__(f"{message} {mend}")


@dataclass(frozen=True)
class SandboxExit:
    """How the worker's process ended. `oom` is told apart from a kill."""

    code: int
    reason: ExitReason


class RunningSandbox(Protocol):
    """A started container. Leaving its context stops and removes it, within the stop time plus two seconds."""

    @property
    def stdio(self) -> ByteStream:
        """The process's standard input (send) and output (receive)."""

    async def stderr_tail(self) -> str:
        """The last lines of standard error, cut to 8 KiB. Worker-made text: print it safely, never interpret it."""

    async def wait(self) -> SandboxExit:
        """Wait until the process has ended."""

    async def kill(self) -> None:
        """End every process of the container now. Idempotent."""

    async def run_command(self, argv: tuple[str, ...]) -> tuple[int, bytes]:
        """Run one command inside as the worker's own user (never a TTY, never privileged): exit code and output."""


class Sandboxes(Protocol):
    """Makes sandboxes: the factory the supervisor is given."""

    def start(self, spec: SandboxSpec, ready: Ready | None = None) -> AbstractAsyncContextManager[RunningSandbox]:
        """Start `spec`. Raises `SandboxError`; leaves nothing behind when it does.

        `ready` is awaited once the container is made and before its process starts: its workspace, an empty folder so
        far, can be filled meanwhile.
        """
