"""The two implementations of `Sandboxes`, each with the same little programs to run."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sandboxes import Sandboxes, SandboxLimits, SandboxSpec
from sandboxes.docker_sandbox import DockerSandboxes
from sandboxes.memory_sandbox import MemoryProcess, MemorySandboxes
from sandboxes.sandbox_spec import MEBIBYTE
from tests.sandboxes.place import Place, place_in

FLOOD_BYTES = 8 * MEBIBYTE
PYTHON_PROGRAMS = {
    "echo": "import shutil,sys; shutil.copyfileobj(sys.stdin.buffer.raw, sys.stdout.buffer.raw)",
    "seven": "raise SystemExit(7)",
    "complain": "import sys; print('x' * 20000, file=sys.stderr); print('the end', file=sys.stderr)",
    "flood": f"import sys; sys.stdout.buffer.write(b'0123456789abcdef' * {FLOOD_BYTES // 16})",
    "forever": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()",
    "hog": "kept = b''.join(bytes(range(1, 256)) * 4096 for _ in range(1000))",
}


async def _echo(process: MemoryProcess) -> int:
    async for piece in process.stdio:
        await process.stdio.send(piece)
    return 0


async def _seven(_: MemoryProcess) -> int:
    return 7


async def _complain(process: MemoryProcess) -> int:
    process.stderr.add(b"x" * 20000 + b"\nthe end\n")
    return 0


async def _flood(process: MemoryProcess) -> int:
    for _ in range(FLOOD_BYTES // 16384):
        await process.stdio.send(b"0123456789abcdef" * 1024)
    return 0


async def _forever(_: MemoryProcess) -> int:
    await anyio.sleep_forever()
    return 0


async def _hog(_: MemoryProcess) -> int:
    raise MemoryError


MEMORY_PROGRAMS = {
    "echo": _echo,
    "seven": _seven,
    "complain": _complain,
    "flood": _flood,
    "forever": _forever,
    "hog": _hog,
}


@dataclass(frozen=True)
class Bench:
    """An implementation and a way to say which program runs."""

    sandboxes: Sandboxes
    spec: Callable[[str], SandboxSpec]


@pytest.fixture(params=["docker", "memory"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Each test runs once on the engine and once in memory."""
    with place_in(tmp_path) as place:
        if request.param == "memory":
            yield Bench(MemorySandboxes(_run_named, _answer), place.spec)
            return
        docker = DockerSandboxes()
        yield Bench(docker, lambda name: _python_spec(place, name))
        await docker.engine.aclose()


async def _run_named(process: MemoryProcess) -> int:
    return await MEMORY_PROGRAMS[process.spec.argv[0]](process)


async def _answer(argv: tuple[str, ...]) -> tuple[int, bytes]:
    command = await anyio.run_process(argv, check=False)
    return command.returncode, command.stdout


def _python_spec(place: Place, name: str) -> SandboxSpec:
    limits = SandboxLimits(memory_bytes=128 * MEBIBYTE)
    return place.spec("python3", "-c", PYTHON_PROGRAMS[name], limits=limits)
