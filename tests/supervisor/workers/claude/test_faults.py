"""A mediation, a hook, a provider or a worker that fails: nothing runs that was not decided, and every prompt ends."""

import anyio
import pytest

from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import NativeCall, Outcome
from supervisor.workers.claude_code import ClaudeCodeDriver
from supervisor.workers.worker import LaunchPlan, NativeVerdict, PinnedFolder, WorkerTask
from tests.supervisor.workers.claude.scripted_provider import Say, ScriptedProvider, Stall, Use
from tests.supervisor.workers.claude.started_worker import Start, appears
from tests.supervisor.workers.driven import RecordingMediation

pytestmark = [pytest.mark.container, pytest.mark.anyio]
TRY_ALL: list[list[Say | Use]] = [
    [
        Use("Bash", {"command": "touch ran"}),
        Use("Bash", {"command": "ls"}),
        Use("Read", {"file_path": "/workspace/readable.txt"}),
        Use("Agent", {"description": "look", "prompt": "look", "subagent_type": "general-purpose"}),
    ],
    [Say("Done.")],
]


class Raises(RecordingMediation):
    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        raise RuntimeError("an inner secret")


class NeverAnswers(RecordingMediation):
    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        await anyio.sleep_forever()
        raise AssertionError


class SaysNothing(RecordingMediation):
    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        return None  # type: ignore[return-value]  # the fault


class SaysAlmostYes(RecordingMediation):
    async def decide(self, native: NativeCall, worker_call: str, agent: str | None = None) -> NativeVerdict:
        return NativeVerdict("call-1", "no", "")  # type: ignore[arg-type]  # the fault


@pytest.mark.parametrize("mediation", [Raises(), NeverAnswers(), SaysNothing(), SaysAlmostYes()])
async def test_a_faulty_mediation_refuses_every_call_and_leaks_nothing(
    start: Start, mediation: RecordingMediation
) -> None:
    provider = ScriptedProvider(TRY_ALL)
    async with start(provider, mediation, ClaudeCodeDriver(decision_timeout_s=0.5)) as worker:
        (worker.workspace / "readable.txt").write_text("canary-text")
        assert (await worker.prompt()).ok
        assert not (worker.workspace / "ran").exists()
    told = provider.told()
    assert told.count("hook error") == len(TRY_ALL[0])
    assert "canary-text" not in told
    assert "an inner secret" not in told


async def test_where_the_hooks_are_not_called_the_second_line_refuses_the_same(start: Start) -> None:
    provider = ScriptedProvider(TRY_ALL)
    mediation = RecordingMediation(allows=lambda _call: False)
    async with start(provider, mediation, env={"CLAUDE_CODE_SIMPLE": "1"}) as worker:
        (worker.workspace / "readable.txt").write_text("canary-text")
        await worker.prompt()
        assert not (worker.workspace / "ran").exists()
    assert sorted(mediation.ops()) == ["agent.spawn", "file.read", "shell.exec", "shell.exec"]
    assert "hook error" not in provider.told()
    assert "canary-text" not in provider.told()


async def test_a_mediation_that_cannot_record_an_end_does_not_stop_the_worker(start: Start) -> None:
    class Forgets(RecordingMediation):
        async def finish(self, worker_call: str, outcome: Outcome, result: str, duration_ms: float | None) -> None:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE")

    provider = ScriptedProvider([[Use("Bash", {"command": "true"})], [Say("Done.")]])
    async with start(provider, Forgets()) as worker:
        assert (await worker.prompt()).text == "Done."


async def test_a_killed_worker_ends_the_prompt_as_exited_and_its_open_call_as_unknown(
    start: Start,
) -> None:
    provider = ScriptedProvider([[Use("Bash", {"command": "touch begun; tail -f /dev/null"}, "t1")]])
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker, anyio.create_task_group() as tasks:

        async def kill_once_begun() -> None:
            await appears(worker.workspace / "begun")
            await worker.sandbox.kill()

        tasks.start_soon(kill_once_begun)
        result = await worker.prompt()
        assert (result.ok, result.error) == (False, "MX_AGENT_WORKER_EXITED")
        assert mediation.ended["t1"][0] == "unknown"
        again = await worker.prompt()
        assert (again.ok, again.error) == (False, "MX_AGENT_WORKER_EXITED")


async def test_a_silent_provider_can_be_interrupted(start: Start) -> None:
    provider = ScriptedProvider([Stall()])
    async with start(provider, RecordingMediation()) as worker, anyio.create_task_group() as tasks:

        async def interrupt_once_asked() -> None:
            await provider.stalled.wait()
            await worker.worker.interrupt()

        tasks.start_soon(interrupt_once_asked)
        result = await worker.prompt()
    assert (result.ok, result.error) == (False, "MX_AGENT_CANCELLED")


async def test_an_unreachable_provider_fails_the_prompt(start: Start) -> None:
    few = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    async with start(ScriptedProvider([]), RecordingMediation(), env=few, reachable=False) as worker:
        result = await worker.prompt()
    assert (result.ok, result.error) == (False, "MX_AGENT_INFERENCE_FAILED")


async def test_a_program_that_ends_at_once_fails_the_handshake(start: Start) -> None:
    class EndsAtOnce(ClaudeCodeDriver):
        def launch_plan(self, task: WorkerTask, pinned: PinnedFolder) -> LaunchPlan:
            plan = super().launch_plan(task, pinned)
            return type(plan)((*plan.argv, "--no-such-flag"), plan.env, plan.mounts)

    exited = pytest.RaisesExc(MatrixError, check=lambda error: error.code == "MX_AGENT_WORKER_EXITED")
    with pytest.RaisesGroup(exited, flatten_subgroups=True):
        async with start(ScriptedProvider([]), RecordingMediation(), EndsAtOnce()):
            pass
