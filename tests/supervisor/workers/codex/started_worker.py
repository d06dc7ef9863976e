"""A real Codex in a real container, driven by the real driver, with a mediation that the test writes."""

from dataclasses import dataclass
from typing import TypeAlias

from bridge.contract.tool_invocation import NativeCall
from supervisor.workers.codex import CodexWorker
from supervisor.workers.worker import NativeVerdict
from tests.supervisor.workers import driven
from tests.supervisor.workers.codex.scripted_provider import ScriptedProvider

ALL_OPS = frozenset({"shell.exec", "file.read", "file.write"})

StartedWorker: TypeAlias = driven.StartedWorker[CodexWorker, ScriptedProvider]


@dataclass
class RecordingMediation(driven.RecordingMediation):
    """On this kind each call is asked about once, however many lines ask."""

    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        assert worker_call not in [call for _, call, _ in self.asked], "one question for each call"
        return await super().decide(native, worker_call, agent)
