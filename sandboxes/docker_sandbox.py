"""Sandboxes on a Docker engine: look at the image, create, attach, start, and the worker's process runs.

Implements the protocols of `sandbox`. What a container may do is decided in `docker_options`, how the engine is spoken
to in `docker_engine`. Above: the supervisor, by the names of `sandbox` alone.
"""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import docker.errors
import requests
from docker import APIClient

from sandboxes.background import running
from sandboxes.docker_engine import CONFLICT, NOT_FOUND, DockerEngine, raw_socket, remove_container
from sandboxes.docker_options import container_config
from sandboxes.docker_stream import AttachedStream
from sandboxes.helper import helper_path
from sandboxes.sandbox import ExitReason, Ready, RunningSandbox, SandboxError, SandboxExit
from sandboxes.sandbox_spec import WORKSPACE, SandboxSpec
from sandboxes.seccomp import Words

STOP_GRACE_S: Final = 1.0  # after the end of standard input both workers leave within 0.1 s
REMOVE_TIMEOUT_S: Final = 2.0
COMMAND_TIMEOUT_S: Final = 60
COMMAND_OUTPUT_BYTES: Final = 1024 * 1024
KILLED_CODE: Final = 137
TERMINATED_CODE: Final = 143

_log = logging.getLogger(__name__)


class DockerContainer:
    """One started container (`RunningSandbox`)."""

    def __init__(self, engine: DockerEngine, container_id: str, spec: SandboxSpec, stream: AttachedStream) -> None:
        self._engine = engine
        self._id = container_id
        self._spec = spec
        self._stream = stream
        self._exit: SandboxExit | None = None
        self._killed = False

    @property
    def stdio(self) -> AttachedStream:
        """Standard input and output of the worker."""
        return self._stream

    async def stderr_tail(self) -> str:
        """The last 8 KiB of standard error."""
        return self._stream.stderr.text()

    async def wait(self) -> SandboxExit:
        """Wait for the process's end: the stream's end is its sign, so that no thread is held while it runs.

        Somebody has to read `stdio` meanwhile, or kill the container: a process that cannot write does not end.
        """
        await self._stream.ended.wait()
        while self._exit is None:
            state = await self._engine.call("look at the container", partial(_ended_state, self._id), abandon=True)
            if state is not None:
                self._exit = _exit_of(state, killed=self._killed)
        return self._exit

    async def kill(self) -> None:
        """End every process of the container now. Output that was not read is dropped."""
        self._killed = True
        self._stream.discard_output()  # first: the engine answers when a reader has had all that the worker wrote
        await self._engine.call("kill the container", partial(_kill, self._id))

    async def run_command(self, argv: tuple[str, ...]) -> tuple[int, bytes]:
        """Run `argv` inside as the worker's user; at most 1 MiB of its output, for at most a minute.

        Raises `SandboxError` when it takes longer or the container does not run.
        """
        start = partial(_start_command, self._id, argv, f"{self._spec.uid}:{self._spec.gid}")
        command_id, raw = await self._engine.call("run a command in the container", start)
        stream = await AttachedStream.from_socket(raw)
        try:
            with anyio.fail_after(COMMAND_TIMEOUT_S):
                output = await _read_output(stream)
        except TimeoutError as error:
            message = f"The command {argv[0]!r} did not end within {COMMAND_TIMEOUT_S} s."
            raise SandboxError(message, "Stop the worker; its processes end with it.") from error
        finally:
            await stream.aclose()
        code = await self._engine.call("ask how a command ended", lambda client: client.exec_inspect(command_id))
        return int(code["ExitCode"] or 0), output

    async def close(self, grace_s: float) -> None:
        """End standard input, wait for the process at most `grace_s`, remove the container whatever happened."""
        with anyio.CancelScope(shield=True):
            if not (self._killed or self._stream.ended.is_set()):
                await self._ask_to_leave(grace_s)
            await self._stream.aclose()  # first: the engine waits for a reader of what a worker still writes
            await _remove(self._engine, self._id)

    async def _ask_to_leave(self, grace_s: float) -> None:
        with anyio.move_on_after(grace_s):
            await self._stream.send_eof()
            await self._stream.ended.wait()


async def _read_output(stream: AttachedStream) -> bytes:
    output = bytearray()
    async with running(stream.pump):
        while len(output) < COMMAND_OUTPUT_BYTES:
            try:
                output += await stream.receive()
            except anyio.EndOfStream:
                break
    return bytes(output[:COMMAND_OUTPUT_BYTES])


def _ended_state(container_id: str, client: APIClient) -> Words | None:
    """The state of a container that has ended; None when it did not within a few seconds (the engine restarted)."""
    try:
        client.wait(container_id, timeout=5)
    except docker.errors.NotFound:
        return {"ExitCode": KILLED_CODE, "OOMKilled": False}  # removed, and so killed, by us or by the reaper
    except requests.exceptions.ReadTimeout:
        return None
    except requests.exceptions.ConnectionError as error:
        if "Read timed out" in str(error):  # the package's streaming reads are reported like this
            return None
        raise
    return dict(client.inspect_container(container_id)["State"])


def _exit_of(state: Words, *, killed: bool) -> SandboxExit:
    code = int(str(state["ExitCode"]))
    reason: ExitReason = "exited"
    if state["OOMKilled"] and code == KILLED_CODE:
        reason = "oom"
    elif killed or code in (KILLED_CODE, TERMINATED_CODE):
        reason = "killed"
    return SandboxExit(code, reason)


def _kill(container_id: str, client: APIClient) -> None:
    try:
        client.kill(container_id)
    except docker.errors.APIError as error:
        if error.status_code not in (NOT_FOUND, CONFLICT):  # gone, or not running: that is what was asked for
            raise


def _start_command(container_id: str, argv: tuple[str, ...], user: str, client: APIClient) -> tuple[str, socket.socket]:
    command = client.exec_create(
        container_id, list(argv), user=user, workdir=str(WORKSPACE), tty=False, privileged=False, stdin=False
    )
    return command["Id"], raw_socket(client.exec_start(command["Id"], socket=True))


async def _remove(engine: DockerEngine, container_id: str) -> None:
    """Kill and remove, with its anonymous volumes. What cannot be removed in time is left to the reaper, and said."""
    try:
        with anyio.fail_after(REMOVE_TIMEOUT_S):
            await engine.call("remove the container", partial(remove_container, container_id), abandon=True)
    except (TimeoutError, SandboxError) as error:
        _log.warning(
            "The container %r is left to the reaper: %s", container_id[:12], str(error) or "the engine is slow"
        )


class DockerSandboxes:
    """Starts sandboxes on one engine (`Sandboxes`)."""

    def __init__(self, engine: DockerEngine | None = None, stop_grace_s: float = STOP_GRACE_S) -> None:
        self.engine = engine or DockerEngine()
        self._stop_grace_s = stop_grace_s

    @asynccontextmanager
    async def start(self, spec: SandboxSpec, ready: Ready | None = None) -> AsyncIterator[RunningSandbox]:
        """Start `spec`; leaving the context stops and removes it within the grace time plus two seconds."""
        container_id, stream = await self._create(spec)
        container = DockerContainer(self.engine, container_id, spec, stream)
        async with running(stream.pump):
            try:
                if ready is not None:
                    await ready()
                await self.engine.call("start the container", lambda client: client.start(container_id))
                yield container
            finally:
                await container.close(self._stop_grace_s)

    async def _create(self, spec: SandboxSpec) -> tuple[str, AttachedStream]:
        """Create and attach. A cancellation is heard after it, so that no container is made and forgotten."""
        with anyio.CancelScope(shield=True):
            container_id, raw = await self.engine.call("create the container", partial(_create_attached, spec))
            stream = await AttachedStream.from_socket(raw)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await _remove(self.engine, container_id)
                await stream.aclose()
            raise
        return container_id, stream


def _create_attached(spec: SandboxSpec, client: Any) -> tuple[str, socket.socket]:
    image = client.inspect_image(spec.image)
    declared = image["Config"] or {}
    env, volumes = tuple(declared.get("Env") or ()), tuple(declared.get("Volumes") or ())
    config = container_config(spec, helper_path(), env, volumes)
    container_id = client.create_container_from_config(config, spec.container_name)["Id"]
    try:
        ends = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return container_id, raw_socket(client.attach_socket(container_id, params=ends))
    except BaseException:
        remove_container(container_id, client)
        raise
