"""Starts the real worker for the tests of this folder, each in a container of its own."""

import socket as socket_module
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sandboxes import SandboxSpec, worker_image_tag
from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_sandbox import DockerSandboxes
from supervisor.workers.claude_code import ClaudeCodeDriver
from supervisor.workers.worker import NativeMediation, WorkerTask
from tests.supervisor.workers.claude.scripted_provider import ScriptedProvider
from tests.supervisor.workers.claude.started_worker import ALL_OPS, Start, StartedWorker
from tests.supervisor.workers.driven import LIMIT_S, STOCK, UID, FolderOfPins, new_id


@pytest.fixture
def start(tmp_path: Path, workspace: Path) -> Start:
    """`start(provider, mediation, …)`: a worker that answered its handshake. `env` overrides what the driver pins."""
    (tmp_path / "pins").mkdir()

    @asynccontextmanager
    async def started(
        provider: ScriptedProvider,
        mediation: NativeMediation,
        driver: ClaudeCodeDriver | None = None,
        *,
        ops: frozenset[str] = ALL_OPS,
        instructions: str = "",
        resume: str | None = None,
        model: str | None = None,
        env: Mapping[str, str] | None = None,
        reachable: bool = True,
    ) -> AsyncIterator[StartedWorker]:
        driver = driver or ClaudeCodeDriver()
        worker_id = new_id("claude")
        task = WorkerTask(worker_id, model, (STOCK,), instructions, ops, resume)
        plan = driver.launch_plan(task, FolderOfPins(tmp_path / "pins"))
        socket = tmp_path / f"{worker_id}.sock"
        spec = SandboxSpec(
            worker_id, str(tmp_path), worker_image_tag(), plan.argv, UID, UID, workspace, socket,
            {**plan.env, **(env or {})}, plan.mounts,
        )  # fmt: skip
        with anyio.fail_after(LIMIT_S):
            async with (
                provider.listening(socket if reachable else _dead_socket(socket)),
                aclosing(DockerEngine()) as engine,
                DockerSandboxes(engine).start(spec) as sandbox,
                driver.connect(sandbox.stdio, task, mediation) as session,
            ):
                yield StartedWorker(session, task, workspace, provider, sandbox)

    return started


def _dead_socket(path: Path) -> Path:
    """Leave a socket at `path` that nobody serves; returns a path beside it where somebody may."""
    with socket_module.socket(socket_module.AF_UNIX) as dead:
        dead.bind(str(path))
    return path.with_suffix(".elsewhere")
