"""The real Claude Code in a real container: what reaches the mediation, what is refused, and when a prompt is over."""

import anyio
import pytest

from bridge.contract.errors import MatrixError
from supervisor.workers.claude_code import ClaudeCodeDriver
from supervisor.workers.native_claude import offered_tools
from supervisor.workers.worker import WorkerTask
from tests.supervisor.workers.claude.scripted_provider import Fail, Say, ScriptedProvider, Use
from tests.supervisor.workers.claude.started_worker import STOCK_ON_SURFACE, Start, appears
from tests.supervisor.workers.driven import REFUSAL, STOCK, RecordingMediation

pytestmark = [pytest.mark.container, pytest.mark.anyio]


async def test_the_surface_is_exactly_the_grant_and_the_matrix_tools(start: Start) -> None:
    provider = ScriptedProvider([[Say("Done.")]])
    async with start(provider, RecordingMediation(), ops=frozenset({"file.read"})) as worker:
        result = await worker.prompt()
    expected = ClaudeCodeDriver().expected_surface(WorkerTask("w", None, (STOCK,), "", frozenset({"file.read"})))
    assert provider.tools == expected == {"Read", "Grep", "Glob", STOCK_ON_SURFACE}
    assert worker.shown("surface") == [{"matrix": [STOCK_ON_SURFACE], "native": ["Glob", "Grep", "Read"]}]
    assert (result.ok, result.text) == (True, "Done.")


async def test_a_matrix_call_is_answered_as_json_and_a_refused_one_as_an_error(
    start: Start,
) -> None:
    provider = ScriptedProvider(
        [[Use(STOCK_ON_SURFACE, {"sku": "W"})], [Use(STOCK_ON_SURFACE, {"sku": "REFUSED"})], [Say("Done.")]]
    )
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker:
        assert (await worker.prompt()).ok
    assert '{\\"available\\":147}' in provider.told()
    assert "MX_AGENT_OUT_OF_SUBTREE" in provider.told()
    assert mediation.asked == []


async def test_every_native_call_is_asked_about_once_and_its_end_reported_once(start: Start) -> None:
    provider = ScriptedProvider(
        [
            [Use("Bash", {"command": "echo made > made.txt"}, "t1"), Use("Bash", {"command": "exit 3"}, "t2")],
            [Use("Read", {"file_path": "/workspace/made.txt"}, "t3"), Use("Grep", {"pattern": "made"}, "t4")],
            [Use("Edit", {"file_path": "/workspace/made.txt", "old_string": "made", "new_string": "kept"}, "t5")],
            [Say("One.\nTwo.")],
        ]
    )
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker:
        result = await worker.prompt()
        assert (worker.workspace / "made.txt").read_text() == "kept\n"
    assert sorted(mediation.ops()) == ["file.read", "file.read", "file.write", "shell.exec", "shell.exec"]
    assert {call: end[0] for call, end in mediation.ended.items()} == {
        "t1": "ok",
        "t2": "ok",
        "t3": "ok",
        "t4": "ok",
        "t5": "ok",
    }
    assert "made" in mediation.ended["t3"][1]
    assert result.text == "One.\nTwo."
    assert [data["text"] for data in worker.shown("text")] == ["One.\n", "Two."]
    assert len(worker.shown("native.started")) == len(worker.shown("native.ended")) == 5


async def test_both_lines_see_the_same_arguments_of_every_offered_tool(start: Start) -> None:
    spawn = {"description": "look", "prompt": "look", "subagent_type": "general-purpose", "run_in_background": False}
    provider = ScriptedProvider(
        [
            [
                Use("Bash", {"command": "true", "timeout": "5000", "description": "as text"}),
                Use("Write", {"file_path": "new.txt", "content": "a a\n"}),
                Use("Glob", {"pattern": "*.txt", "path": "."}),
                Use("Grep", {"pattern": "a", "output_mode": "content", "-n": "true", "head_limit": "3"}),
                Use("WebFetch", {"url": "http://127.0.0.1:9/", "prompt": "What does it say?"}),
                Use("Agent", spawn),
            ],
            [
                Use("Read", {"file_path": "/workspace/new.txt", "offset": "1", "limit": "1"}),
                Use("Edit", {"file_path": "new.txt", "old_string": "a", "new_string": "b", "replace_all": "true"}),
            ],
            [Say("Done.")],
        ]
    )
    mediation = RecordingMediation()
    async with start(provider, mediation, ops=frozenset({"*"})) as worker:
        assert (await worker.prompt()).ok
    assert "was used before with other arguments" not in provider.told()
    assert {native.tool for native, _, _ in mediation.asked} == set(offered_tools(frozenset({"*"})))


async def test_a_refused_native_call_does_not_run_and_the_model_reads_why(start: Start) -> None:
    provider = ScriptedProvider([[Use("Bash", {"command": "touch ran"})], [Say("Done.")]])
    mediation = RecordingMediation(allows=lambda _call: False)
    async with start(provider, mediation) as worker:
        assert (await worker.prompt()).ok
        assert not (worker.workspace / "ran").exists()
    assert REFUSAL in provider.told()
    assert mediation.ended == {}


async def test_a_call_of_a_tool_that_the_worker_does_not_have_is_judged_as_other(start: Start) -> None:
    provider = ScriptedProvider([[Use("TodoWrite", {"todos": []}, "t1")], [Say("Done.")]])
    mediation = RecordingMediation(allows=lambda call: not call.op.startswith("other."))
    async with start(provider, mediation) as worker:
        assert (await worker.prompt()).ok
    assert mediation.ops() == ["other.TodoWrite"]


async def test_a_call_id_used_again_with_other_arguments_is_refused(start: Start) -> None:
    provider = ScriptedProvider(
        [[Use("Bash", {"command": "true"}, "twice")], [Use("Bash", {"command": "touch ran"}, "twice")], [Say("Done.")]]
    )
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker:
        await worker.prompt()
        assert not (worker.workspace / "ran").exists()
    assert len(mediation.asked) == 1


async def test_the_prompt_is_over_only_when_its_sub_agent_is_and_its_calls_are_judged_with_its_id(start: Start) -> None:
    spawn = Use("Agent", {"description": "look", "prompt": "look", "subagent_type": "general-purpose"})
    provider = ScriptedProvider(
        [[spawn], [Say("It works in the background.")], [Say("It has ended.")]],
        [[Use("Bash", {"command": "sleep 1; touch by-agent"})], [Say("Done there.")]],
    )
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker:
        result = await worker.prompt()
        assert (worker.workspace / "by-agent").exists()
    assert result.text == "It has ended."
    agents = [agent for native, _, agent in mediation.asked if native.op == "shell.exec"]
    assert worker.shown("agent.started") == worker.shown("agent.ended") == [{"agent": agents[0]}]
    assert mediation.ops() == ["agent.spawn", "shell.exec"]


async def test_a_refused_call_of_a_sub_agent_does_not_run(start: Start) -> None:
    spawn = Use("Agent", {"description": "look", "prompt": "look", "subagent_type": "general-purpose"})
    provider = ScriptedProvider(
        [[spawn], [Say("Wait.")], [Say("It has ended.")]], [[Use("Bash", {"command": "touch ran"})], [Say("No.")]]
    )
    async with start(provider, RecordingMediation(allows=lambda call: call.op == "agent.spawn")) as worker:
        assert (await worker.prompt()).ok
        assert not (worker.workspace / "ran").exists()
    assert REFUSAL in provider.told()


async def test_a_background_command_is_waited_for_and_wakes_the_model(start: Start) -> None:
    provider = ScriptedProvider(
        [
            [Use("Bash", {"command": "sleep 1; touch late", "run_in_background": True})],
            [Say("Started.")],
            [Say("Seen.")],
        ]
    )
    async with start(provider, RecordingMediation()) as worker:
        result = await worker.prompt()
        assert (worker.workspace / "late").exists()
    assert result.text == "Seen."


async def test_a_background_command_that_never_ends_is_stopped_and_said(start: Start) -> None:
    provider = ScriptedProvider([[Use("Bash", {"command": "sleep 600", "run_in_background": True})], [Say("Started.")]])
    async with start(provider, RecordingMediation(), ClaudeCodeDriver(background_wait_s=0.5)) as worker:
        assert (await worker.prompt()).ok
    assert worker.shown("notice") == [{"text": "Stopping 1 background command(s) that run on."}]


async def test_an_interrupt_ends_command_and_background_work_and_the_prompt_as_cancelled(start: Start) -> None:
    provider = ScriptedProvider(
        [
            [Use("Bash", {"command": "sleep 600", "run_in_background": True}, "t1")],
            [Use("Bash", {"command": "touch begun; tail -f /dev/null"}, "t2")],
            [Say("Never.")],
        ]
    )
    mediation = RecordingMediation()
    async with start(provider, mediation) as worker, anyio.create_task_group() as tasks:

        async def interrupt_once_begun() -> None:
            await appears(worker.workspace / "begun")
            await worker.worker.interrupt()

        tasks.start_soon(interrupt_once_begun)
        result = await worker.prompt()
        assert (result.ok, result.error) == (False, "MX_AGENT_CANCELLED")
        assert mediation.ended["t2"][0] == "cancelled"
        assert worker.worker._turn is None


async def test_a_refused_key_ends_the_prompt_at_once(start: Start) -> None:
    provider = ScriptedProvider([Fail(401)])
    async with start(provider, RecordingMediation()) as worker:
        result = await worker.prompt()
    assert (result.ok, result.error) == (False, "MX_AGENT_INFERENCE_FAILED")
    assert "401" in result.message
    assert len(provider.requests) <= 2


@pytest.mark.parametrize("status", [429, 529])
async def test_a_provider_that_stays_overloaded_fails_the_prompt_after_shown_retries(start: Start, status: int) -> None:
    provider = ScriptedProvider([Fail(status)])
    async with start(provider, RecordingMediation()) as worker:
        result = await worker.prompt()
    assert (result.ok, result.error) == (False, "MX_AGENT_INFERENCE_FAILED")
    assert str(status) in result.message
    assert str(status) in str(worker.shown("retry")[0]["reason"])


async def test_one_overload_is_passed_over(start: Start) -> None:
    provider = ScriptedProvider([Fail(529), [Say("Done.")]])
    async with start(provider, RecordingMediation()) as worker:
        assert (await worker.prompt()).text == "Done."


async def test_a_prompt_is_taken_verbatim_and_the_next_one_sees_the_first(start: Start) -> None:
    provider = ScriptedProvider([[Say("One.")], [Say("Two.")]])
    async with start(provider, RecordingMediation()) as worker:
        (worker.workspace / "secret.txt").write_text("canary-text")
        assert (await worker.prompt("Look at @/workspace/secret.txt")).text == "One."
        assert (await worker.prompt("/help")).text == "Two."
    assert "canary-text" not in provider.told()
    assert "@/workspace/secret.txt" in str(provider.requests[-1]["messages"][0])


async def test_instructions_reach_the_model_as_text_and_the_model_is_the_named_one(start: Start) -> None:
    provider = ScriptedProvider([[Say("Done.")]])
    instructions = "Write tests first. " * 10_000
    async with start(provider, RecordingMediation(), instructions=instructions, model="claude-opus-4-1") as worker:
        await worker.prompt()
    assert instructions in provider.requests[0]["system"][-1]["text"]
    assert provider.requests[0]["model"] == "claude-opus-4-1"


async def test_a_session_is_resumed_in_a_new_container_with_its_hooks_and_tools(start: Start) -> None:
    kept = {"CLAUDE_CONFIG_DIR": "/workspace/.kept"}
    provider = ScriptedProvider([[Say("One.")]])
    async with start(provider, RecordingMediation(), env=kept) as worker:
        first = await worker.prompt("Remember the word canary-word.")
    again = ScriptedProvider([[Use("Bash", {"command": "touch ran"})], [Say("Two.")]])
    mediation = RecordingMediation(allows=lambda _call: False)
    async with start(again, mediation, env=kept, resume=first.session) as worker:
        second = await worker.prompt("Which word?")
        assert not (worker.workspace / "ran").exists()
    assert "canary-word" in again.told()
    assert second.session == first.session
    assert again.tools == provider.tools


async def test_an_unknown_session_fails_the_handshake(start: Start) -> None:
    unknown = "11111111-2222-4333-8444-555555555555"
    exited = pytest.RaisesExc(MatrixError, check=lambda error: error.code == "MX_AGENT_WORKER_EXITED")
    with pytest.RaisesGroup(exited, flatten_subgroups=True):
        async with start(ScriptedProvider([[Say("One.")]]), RecordingMediation(), resume=unknown):
            pass
