import anyio
import pytest

from supervisor.keep_running import keep_running
from supervisor.restart_policy import RestartPolicy

pytestmark = pytest.mark.anyio


async def test_a_child_that_ends_is_started_again_until_its_policy_gives_up():
    started, lost = [], []

    async def run_once(status):
        started.append(status)

    with anyio.fail_after(5):
        await keep_running(run_once, RestartPolicy(3, 60), lambda: lost.append(1), anyio.TASK_STATUS_IGNORED)
    assert len(started) == 4
    assert len(lost) == 4


async def test_only_the_first_start_is_told_to_whoever_waits_for_it():
    told = []

    async def run_once(status):
        told.append(status)
        status.started()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def run(*, task_status):
                await keep_running(run_once, RestartPolicy(1, 60), lambda: None, task_status)

            await tasks.start(run)
    assert told[0] is not anyio.TASK_STATUS_IGNORED
    assert told[1] is told[0]
