"""A child that ends is started again within the bounds of its policy, and then given up. Above: the links."""

import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus

from supervisor.restart_policy import RestartPolicy

RunOnce = Callable[[TaskStatus[None]], Awaitable[None]]
"""Run the child to its end; the status is told once the child answers."""


class _FirstReady:
    """Passes on the first `started` alone, whichever attempt it comes from: the first child may die before it is up."""

    def __init__(self, waiting: TaskStatus[None]) -> None:
        self._waiting: TaskStatus[None] | None = waiting

    def started(self, value: None = None) -> None:
        """A child is up."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.started(value)


async def keep_running(
    run_once: RunOnce, policy: RestartPolicy, on_lost: Callable[[], None], task_status: TaskStatus[None]
) -> None:
    """Run until cancelled, or return when `policy` allows no further restart. `on_lost` hears of every end."""
    status = _FirstReady(task_status)
    while True:
        await run_once(status)
        on_lost()
        if not policy.may_restart(time.monotonic()):
            return
        await anyio.sleep(policy.delay_s())
