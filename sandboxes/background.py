"""One task beside a block of code, whose own failures come out as themselves. Leaf.

A task group alone would wrap what the block raises into an exception group, and a caller's `except SandboxError` would
miss it.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def running(task: Callable[[], Coroutine[Any, Any, object]]) -> AsyncIterator[None]:
    """Run `task`, which must not raise, until the block ends; then cancel it."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) != 1:
            raise
        alone = group.exceptions[0]
        raise alone from alone.__cause__
