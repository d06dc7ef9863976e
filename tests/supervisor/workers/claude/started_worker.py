"""A real Claude Code in a real container, driven by the real driver, with a mediation that the test writes."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
from watchfiles import awatch

from supervisor.workers.claude_code import ClaudeCodeDriver
from supervisor.workers.claude_code_session import ClaudeSession
from supervisor.workers.worker import NativeMediation
from tests.supervisor.workers import driven
from tests.supervisor.workers.claude.scripted_provider import ScriptedProvider
from tests.supervisor.workers.driven import STOCK

ALL_OPS = frozenset({"shell.exec", "file.read", "file.write", "agent.spawn"})
STOCK_ON_SURFACE = f"mcp__matrix__{STOCK.name}"

StartedWorker: TypeAlias = driven.StartedWorker[ClaudeSession, ScriptedProvider]


async def appears(path: Path) -> None:
    """Wait until there is a file at `path`, which a worker makes."""
    async for _ in awatch(path.parent, yield_on_timeout=True, rust_timeout=100):
        if await anyio.Path(path).exists():
            return


class Start(Protocol):
    """`start(provider, mediation, …)` of the fixture: a worker that answered its handshake."""

    def __call__(
        self,
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
    ) -> AbstractAsyncContextManager[StartedWorker]: ...
