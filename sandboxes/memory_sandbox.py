"""Sandboxes without walls: a worker's process is an async function in this process. For tests and for embedding.

Implements the same protocols as `docker_sandbox` and passes the same contract suite. It isolates nothing, so it is
given programs by its user and never a command line of a worker.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sandboxes.background import running
from sandboxes.docker_stream import STDERR_TAIL_BYTES, WAITING_PIECES, Tail
from sandboxes.sandbox import Ready, RunningSandbox, SandboxError, SandboxExit
from sandboxes.sandbox_spec import SandboxSpec

KILLED: Final = SandboxExit(137, "killed")
OUT_OF_MEMORY: Final = SandboxExit(137, "oom")
STOP_GRACE_S: Final = 1.0


class MemoryEnd(ByteStream):
    """One end of a two-way byte stream in memory."""

    def __init__(self, send: MemoryObjectSendStream[bytes], receive: MemoryObjectReceiveStream[bytes]) -> None:
        self._send = send
        self._receive = receive
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """At least one byte. Raises `anyio.EndOfStream`."""
        data = self._rest or await self._receive.receive()
        self._rest = data[max_bytes:]
        return data[:max_bytes]

    async def send(self, item: bytes) -> None:
        """Send `item`; waits while the other end has too much unread."""
        if item:
            await self._send.send(item)

    async def send_eof(self) -> None:
        """End this direction."""
        self._send.close()

    async def aclose(self) -> None:
        """End both directions."""
        self._send.close()
        self._receive.close()


def memory_pair() -> tuple[MemoryEnd, MemoryEnd]:
    """Two connected ends."""
    there_send, there_receive = anyio.create_memory_object_stream[bytes](WAITING_PIECES)
    back_send, back_receive = anyio.create_memory_object_stream[bytes](WAITING_PIECES)
    return MemoryEnd(there_send, back_receive), MemoryEnd(back_send, there_receive)


@dataclass(frozen=True)
class MemoryProcess:
    """What a program is given: its spec, its standard input and output as one stream, its standard error."""

    spec: SandboxSpec
    stdio: ByteStream
    stderr: Tail = field(default_factory=lambda: Tail(STDERR_TAIL_BYTES))


Program = Callable[[MemoryProcess], Awaitable[int]]
"""Runs one worker and returns its exit code. `MemoryError` stands for the container's memory limit."""
Command = Callable[[tuple[str, ...]], Awaitable[tuple[int, bytes]]]


class MemorySandbox:
    """One running program (`RunningSandbox`)."""

    def __init__(self, process: MemoryProcess, stdio: ByteStream, command: Command | None) -> None:
        self._process = process
        self._stdio = stdio
        self._command = command
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._exit = KILLED

    @property
    def stdio(self) -> ByteStream:
        """Standard input and output of the program."""
        return self._stdio

    async def stderr_tail(self) -> str:
        """The last 8 KiB of standard error."""
        return self._process.stderr.text()

    async def wait(self) -> SandboxExit:
        """Wait for the program's end."""
        await self._ended.wait()
        return self._exit

    async def kill(self) -> None:
        """Cancel the program."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    async def run_command(self, argv: tuple[str, ...]) -> tuple[int, bytes]:
        """Ask the command function. Raises `SandboxError` when there is none or the program has ended."""
        if self._command is None or self._ended.is_set():
            raise SandboxError("This sandbox in memory runs no commands.", "Give MemorySandboxes a command function.")
        return await self._command(argv)

    async def run(self, program: Program) -> None:
        """Run `program` to its end, however it ends."""
        try:
            with self._scope:
                self._exit = SandboxExit(await program(self._process), "exited")
        except MemoryError:
            self._exit = OUT_OF_MEMORY
        except Exception as error:  # noqa: BLE001 - a process that crashes ends itself, never who started it
            self._process.stderr.add(f"{type(error).__name__}: {error}\n".encode())
            self._exit = SandboxExit(1, "exited")
        finally:
            with anyio.CancelScope(shield=True):
                await self._process.stdio.aclose()
            self._ended.set()

    async def close(self) -> None:
        """End standard input, wait a moment, cancel."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(STOP_GRACE_S):
                await self._stdio.send_eof()
                await self._ended.wait()
            await self.kill()
            await self._stdio.aclose()


class MemorySandboxes:
    """Starts `program` for every spec (`Sandboxes`)."""

    def __init__(self, program: Program, command: Command | None = None) -> None:
        self._program = program
        self._command = command

    @asynccontextmanager
    async def start(self, spec: SandboxSpec, ready: Ready | None = None) -> AsyncIterator[RunningSandbox]:
        """Run the program until the context is left."""
        if ready is not None:
            await ready()
        ours, theirs = memory_pair()
        sandbox = MemorySandbox(MemoryProcess(spec, theirs), ours, self._command)
        async with running(partial(sandbox.run, self._program)):
            try:
                yield sandbox
            finally:
                await sandbox.close()
