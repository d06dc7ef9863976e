"""A child that ends is started again within the bounds of its policy, and then given up. Above: the links."""

import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus

from supervisor.restart_policy import RestartPolicy

RunOnce = Callable[[TaskStatus[None]], Awaitable[None]]
"""Run the child to its end; the status is told once the child answers."""


async def keep_running(
    run_once: RunOnce, policy: RestartPolicy, on_lost: Callable[[], None], task_status: TaskStatus[None]
) -> None:
    """Run until cancelled, or return when `policy` allows no further restart. `on_lost` hears of every end."""
    status: TaskStatus[None] = task_status
    while True:
        await run_once(status)
        status = anyio.TASK_STATUS_IGNORED
        on_lost()
        if not policy.may_restart(time.monotonic()):
            return
        await anyio.sleep(policy.delay_s())
