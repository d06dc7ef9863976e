"""The driver with the real Codex in a real container: what the model is told, what is asked, recorded and shown."""

import json

import anyio
import anyio.lowlevel
import pytest

from supervisor.workers.codex import CodexDriver
from supervisor.workers.codex_launch import AGENT_TOOLS, PLACEHOLDER_KEY
from supervisor.workers.worker import WorkerEvent
from tests.supervisor.workers.codex.conftest import Start
from tests.supervisor.workers.codex.scripted_provider import FOR_AGENTS, Answer, Fail, Say, ScriptedProvider, Use, Write
from tests.supervisor.workers.codex.started_worker import ALL_OPS, RecordingMediation, StartedWorker
from tests.supervisor.workers.driven import REFUSAL, STOCK

pytestmark = [pytest.mark.container, pytest.mark.anyio]

DONE: Answer = (Say("Done."),)
PATCH = "*** Begin Patch\n*** Add File: shop/new.txt\n+hello\n*** End Patch"


def run(command: str, call: str, **more: object) -> Use:
    return Use("exec_command", {"cmd": command, **more}, call)


@pytest.mark.parametrize("surface", ["plain", "patch"])
async def test_a_command_and_a_matrix_call_run_and_each_is_asked_about_and_recorded_once(
    start: Start, surface: str
) -> None:
    script: list[Answer] = [(run("echo hello > f.txt; exit 3", "c1"),), (Use(STOCK.name, {"sku": "W"}, "c2"),), DONE]
    mediation = RecordingMediation()
    async with start(ScriptedProvider(script), mediation, surface) as started:
        result = await started.prompt()
        assert (result.ok, result.text, result.error) == (True, "Done.", None)
        assert (started.workspace / "f.txt").read_text() == "hello\n"
        assert [(native.op, native.command, call) for native, call, _ in mediation.asked] == [
            ("shell.exec", "echo hello > f.txt; exit 3", "c1")
        ]
        assert mediation.ended == {"c1": ("ok", "[exit code 3]\n")}
        assert '{\\"available\\":147}' in started.provider.outputs()
        assert started.shown("text") == [{"text": "Done."}]
        assert started.shown("native.started") == [{"tool": "Bash", "call": "c1"}]


async def test_in_code_mode_every_nested_call_is_asked_about_and_recorded_once(start: Start) -> None:
    script = f"""
        text(await tools.exec_command({{cmd: 'echo hello > f.txt'}}));
        text(await tools.apply_patch({PATCH!r}));
        text(await tools.{STOCK.name}({{sku: 'W'}}));
        try {{ await tools.exec_command({{cmd: 'rm f.txt'}}) }} catch (error) {{ text(String(error)) }}
    """
    mediation = RecordingMediation(lambda native: native.command != "rm f.txt")
    provider = ScriptedProvider([(Write("exec", script, "c1", "functions"),), DONE])
    async with start(provider, mediation, "code") as started:
        assert (await started.prompt()).ok
        assert mediation.ops() == ["shell.exec", "file.write", "shell.exec"]
        assert all(call.startswith("exec-") for _, call, _ in mediation.asked)
        assert [outcome for outcome, _ in mediation.ended.values()] == ["ok", "ok"]
        assert REFUSAL in provider.outputs()
        assert '{\\"available\\":147}' in provider.outputs()
        assert (started.workspace / "f.txt").exists()
        assert (started.workspace / "shop" / "new.txt").read_text() == "hello\n"


@pytest.mark.parametrize("ops", [ALL_OPS, ALL_OPS | {"agent.spawn"}])
@pytest.mark.parametrize(
    ("surface", "model"), [("plain", "any-model"), ("patch", None), ("code", None), ("code", "gpt-5.5")]
)
async def test_each_request_carries_exactly_the_expected_tools(
    start: Start, surface: str, model: str | None, ops: frozenset[str]
) -> None:
    provider = ScriptedProvider([DONE])
    async with start(provider, RecordingMediation(), surface, model=model, allowed_native_ops=ops) as started:
        await started.prompt()
        later = AGENT_TOOLS if surface == "patch" else frozenset()
        assert provider.surface() | later == CodexDriver().expected_surface(started.task) | later


async def test_tools_that_the_role_can_never_use_are_off_the_surface(start: Start) -> None:
    provider = ScriptedProvider([DONE])
    async with start(provider, RecordingMediation(), "plain", allowed_native_ops=frozenset({"file.write"})) as started:
        await started.prompt()
        assert provider.surface() == {STOCK.name} == CodexDriver().expected_surface(started.task)


async def test_a_refused_command_does_not_run_and_the_model_reads_why(start: Start) -> None:
    mediation = RecordingMediation(lambda _native: False)
    provider = ScriptedProvider([(run("touch ran", "c1"),), (Write("apply_patch", PATCH, "c2"),), DONE])
    async with start(provider, mediation) as started:
        assert (await started.prompt()).ok
        assert not list(started.workspace.iterdir())
        assert mediation.ops() == ["shell.exec", "file.write"]
        assert mediation.ended == {}
        assert provider.outputs().count(REFUSAL) == 2


async def test_a_patch_is_asked_about_with_its_paths_in_whatever_way_it_is_given(start: Start) -> None:
    mediation = RecordingMediation()
    inline = "cd sub && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: inner.txt\n+x\n*** End Patch\nEOF"
    script: list[Answer] = [
        (run("mkdir sub", "c0"),),
        (Write("apply_patch", PATCH, "c1"),),
        (run(inline, "c2"),),
        (run(inline.removeprefix("cd sub && "), "c3", workdir="/workspace/sub"),),
        DONE,
    ]
    async with start(ScriptedProvider(script), mediation) as started:
        assert (await started.prompt()).ok
        asked = [(call, [path.shown for path in native.paths]) for native, call, _ in mediation.asked[1:]]
        assert asked == [
            ("c1", ["shop/new.txt"]),
            ("c2", ["sub/inner.txt"]),
            ("c3", ["inner.txt"]),
            ("c3#paths", ["/workspace/sub/inner.txt"]),  # the hook does not tell the working directory
        ]
        assert {outcome for outcome, _ in mediation.ended.values()} == {"ok"}
        assert len(mediation.ended) == 5


async def test_a_prompt_ends_with_its_background_commands(start: Start) -> None:
    mediation = RecordingMediation()
    script: list[Answer] = [(run("sleep 300 & sleep 301", "c1", yield_time_ms=250),), DONE]
    async with start(ScriptedProvider(script), mediation) as started:
        assert (await started.prompt()).ok
        assert set(mediation.ended) == {"c1"}
        _, processes = await started.sandbox.run_command(("ps", "-eo", "args"))
        assert b"sleep" not in processes


async def test_the_input_of_a_running_command_is_closed_to_the_model(start: Start) -> None:
    mediation = RecordingMediation()
    script: list[Answer] = [(run("cat > typed.txt", "c1", yield_time_ms=250, tty=True),), DONE]
    async with start(ScriptedProvider(script), mediation) as started:
        assert (await started.prompt()).ok
        assert "TTY execution is disabled" in started.provider.outputs()
        assert not (started.workspace / "typed.txt").exists()


async def test_an_error_of_a_matrix_tool_reaches_the_model_with_its_code(start: Start) -> None:
    provider = ScriptedProvider([(Use(STOCK.name, {"sku": "REFUSED"}, "c1"),), DONE])
    async with start(provider, RecordingMediation()) as started:
        assert (await started.prompt()).ok
        assert "MX_AGENT_OUT_OF_SUBTREE" in provider.outputs()


async def test_a_sub_agent_is_mediated_under_its_own_name_and_the_prompt_ends_after_it(start: Start) -> None:
    mediation = RecordingMediation()
    spawn = Use("spawn_agent", {"message": FOR_AGENTS, "agent_type": "default"}, "c1", "multi_agent_v1")
    provider = ScriptedProvider([(spawn,), DONE], agent=[(run("sleep 1; touch by-agent", "a1"),), (Say("Done too."),)])
    ops = ALL_OPS | {"agent.spawn"}
    async with start(provider, mediation, allowed_native_ops=ops) as started:
        result = await started.prompt()
        assert (result.ok, result.text) == (True, "Done.")
        assert (started.workspace / "by-agent").exists()
        (spawned, _, parent), (command, _, agent) = mediation.asked
        assert (spawned.op, parent) == ("agent.spawn", None)
        assert (command.op, agent) == ("shell.exec", started.shown("agent.ended")[0]["agent"])
        assert {call: outcome for call, (outcome, _) in mediation.ended.items()} == {"c1": "ok", "a1": "ok"}


@pytest.mark.parametrize("status", [401, 429, 529])
async def test_a_provider_that_refuses_ends_the_prompt_with_its_status(start: Start, status: int) -> None:
    async with start(ScriptedProvider([Fail(status)]), RecordingMediation()) as started:
        result = await started.prompt()
        assert (result.ok, result.error) == (False, "MX_AGENT_INFERENCE_FAILED")
        assert str(status) in result.message


async def test_an_overloaded_provider_is_asked_again_and_the_retry_is_shown(start: Start) -> None:
    async with start(ScriptedProvider([*[Fail(529)] * 4, DONE]), RecordingMediation()) as started:
        assert (await started.prompt()).ok
        assert started.shown("retry")[0]["attempt"] == 1


async def test_a_code_of_the_gateway_is_the_code_of_the_failure(start: Start) -> None:
    refusal = Fail(403, "MX_AGENT_BUDGET_SPENT: the role's budget of tokens is spent.")
    async with start(ScriptedProvider([refusal]), RecordingMediation()) as started:
        assert (await started.prompt()).error == "MX_AGENT_BUDGET_SPENT"


async def test_an_interrupt_ends_the_prompt_and_its_command(start: Start) -> None:
    mediation = RecordingMediation()
    async with start(ScriptedProvider([(run("sleep 300", "c1"),), DONE]), mediation) as started:
        async with anyio.create_task_group() as tasks:

            def interrupt_once_started(event: WorkerEvent) -> None:
                if event.type == "native.started":
                    tasks.start_soon(interrupt_soon, started)

            result = await started.prompt(on_event=interrupt_once_started)
        assert (result.ok, result.error) == (False, "MX_AGENT_CANCELLED")
        assert set(mediation.ended) == {"c1"}
        _, processes = await started.sandbox.run_command(("ps", "-eo", "args"))
        assert b"sleep" not in processes


async def interrupt_soon(started: StartedWorker) -> None:
    """As soon as the command runs: the second line has been passed when its process is there."""
    while b"sleep 300" not in (await started.sandbox.run_command(("ps", "-eo", "args")))[1]:
        await anyio.lowlevel.checkpoint()
    await started.worker.interrupt()


async def test_a_process_that_dies_ends_the_prompt_as_exited(start: Start) -> None:
    mediation = RecordingMediation()
    async with start(ScriptedProvider([(run("kill -9 $PPID", "c1"),), DONE]), mediation) as started:
        result = await started.prompt()
        assert (result.ok, result.error) == (False, "MX_AGENT_WORKER_EXITED")
        assert mediation.ended["c1"][0] == "unknown"


async def test_a_second_prompt_continues_the_same_thread(start: Start) -> None:
    async with start(ScriptedProvider([(Say("First."),), (Say("Second."),)]), RecordingMediation()) as started:
        first, second = await started.prompt("One."), await started.prompt("Two.")
        assert (first.text, second.text, first.session) == ("First.", "Second.", second.session)


async def test_instructions_reach_the_model_as_text(start: Start) -> None:
    provider = ScriptedProvider([DONE])
    async with start(provider, RecordingMediation(), instructions="Speak like Ünïcödé.") as started:
        await started.prompt()
        assert "Speak like \\u00dcn" in json.dumps(provider.requests[0])


async def test_the_key_in_the_container_is_a_placeholder_and_nothing_of_the_request_is_compressed(start: Start) -> None:
    provider = ScriptedProvider([DONE])
    async with start(provider, RecordingMediation()) as started:
        await started.prompt()
        assert f"Bearer {PLACEHOLDER_KEY}" in provider.headers[0]
        assert "content-encoding" not in provider.headers[0].lower()
