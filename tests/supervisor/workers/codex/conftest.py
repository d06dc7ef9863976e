"""Starts the real worker for the tests of this folder, each in a container of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bridge.contract.errors import MatrixError
from sandboxes import SandboxSpec, worker_image_tag
from sandboxes.docker_sandbox import DockerSandboxes
from supervisor.workers.codex import CodexDriver
from supervisor.workers.worker import LaunchPlan, NativeMediation, WorkerTask
from tests.supervisor.workers.codex.scripted_provider import ScriptedProvider
from tests.supervisor.workers.codex.started_worker import ALL_OPS, StartedWorker
from tests.supervisor.workers.driven import LIMIT_S, STOCK, UID, FolderOfPins, new_id

Start = Callable[..., AbstractAsyncContextManager[StartedWorker]]


@pytest.fixture
def start(tmp_path: Path, workspace: Path) -> Start:
    """`start(provider, mediation, …)`: a worker that answered its handshake. `planned` may change what is started."""
    (tmp_path / "pins").mkdir()

    @asynccontextmanager
    async def started(
        provider: ScriptedProvider,
        mediation: NativeMediation,
        surface: str | None = "patch",
        planned: Callable[[LaunchPlan], LaunchPlan] = lambda plan: plan,
        hooks: bool = True,
        **task_fields: object,
    ) -> AsyncIterator[StartedWorker]:
        driver = CodexDriver()
        worker_id = new_id("codex")
        task = WorkerTask(worker_id, None, (STOCK,), allowed_native_ops=ALL_OPS, surface=surface)
        task = replace(task, **task_fields)  # type: ignore[arg-type]  # the fields of WorkerTask, as the test names them
        plan = planned(driver.launch_plan(task, FolderOfPins(tmp_path / "pins")))
        socket = tmp_path / f"{worker_id}.sock"
        spec = SandboxSpec(
            worker_id, str(tmp_path), worker_image_tag(), plan.argv, UID, UID, workspace, socket, plan.env, plan.mounts
        )
        if hooks:
            provider.answer_hook = lambda body: driver.answer_hook(worker_id, body)
        with anyio.fail_after(LIMIT_S):
            async with (
                provider.listening(socket),
                DockerSandboxes().start(spec) as sandbox,
            ):
                try:
                    async with driver.connect(sandbox.stdio, task, mediation) as worker:
                        yield StartedWorker(worker, task, workspace, provider, sandbox)
                except MatrixError:
                    print(await sandbox.stderr_tail())
                    raise

    return started
