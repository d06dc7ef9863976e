"""The driver against a scripted app-server over memory: what it answers to requests the real program seldom makes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest
from anyio.abc import ByteStream

from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_types import JsonObject, JsonValue
from sandboxes.sandbox_spec import HELPER
from supervisor.workers.codex import CodexDriver, CodexWorker
from supervisor.workers.worker import WorkerTask
from tests.supervisor.workers.codex.started_worker import ALL_OPS, RecordingMediation
from tests.supervisor.workers.driven import STOCK

pytestmark = pytest.mark.anyio

TASK = WorkerTask("codex-aaaaaa", None, (STOCK,), allowed_native_ops=ALL_OPS, surface="patch")
OPENED: JsonObject = {
    "thread": {"id": "t1"}, "approvalPolicy": "untrusted", "approvalsReviewer": "user", "modelProvider": "gw"
}  # fmt: skip
HOOKS: JsonValue = [{"hooks": [{"command": f"{HELPER} hook"}]}]


class MemoryBytes(ByteStream):
    """One end of a pair of byte streams in memory."""

    def __init__(
        self, sender: anyio.abc.ObjectSendStream[bytes], receiver: anyio.abc.ObjectReceiveStream[bytes]
    ) -> None:
        self._sender, self._receiver = sender, receiver

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receiver.receive()

    async def send(self, item: bytes) -> None:
        for start in range(0, len(item), 1000):
            await self._sender.send(item[start : start + 1000])

    async def send_eof(self) -> None:
        await self._sender.aclose()

    async def aclose(self) -> None:
        await self._sender.aclose()
        await self._receiver.aclose()


def pair() -> tuple[MemoryBytes, MemoryBytes]:
    there, from_there = anyio.create_memory_object_stream[bytes](1000)
    back, from_back = anyio.create_memory_object_stream[bytes](1000)
    return MemoryBytes(there, from_back), MemoryBytes(back, from_there)


@dataclass
class ScriptedServer:
    """Answers the handshake as told."""

    opened: JsonObject = field(default_factory=lambda: dict(OPENED))
    hooks: JsonValue = field(default_factory=lambda: HOOKS)
    asked: dict[str, JsonObject] = field(default_factory=dict)

    async def on_request(self, method: str, params: JsonObject) -> JsonValue:
        self.asked[method] = params
        answers: dict[str, JsonValue] = {
            "thread/start": self.opened, "thread/resume": self.opened, "hooks/list": {"data": self.hooks}
        }  # fmt: skip
        return answers.get(method, {})


@asynccontextmanager
async def connected(
    server: ScriptedServer, mediation: RecordingMediation, task: WorkerTask = TASK
) -> AsyncIterator[tuple[CodexWorker, JsonRpcPeer]]:
    ours, theirs = pair()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            peer = JsonRpcPeer(theirs, server.on_request, None, version_member=False)
            tasks.start_soon(peer.run)
            async with CodexDriver().connect(ours, task, mediation) as worker:
                yield worker, peer
            await peer.aclose()


COMMAND: JsonObject = {"threadId": "t1", "itemId": "c1", "cwd": "/workspace", "command": "/bin/bash -c 'touch x'"}


async def test_a_command_that_no_hook_asked_about_is_decided_by_its_approval() -> None:
    mediation = RecordingMediation()
    async with connected(ScriptedServer(), mediation) as (_, peer):
        assert await peer.request("item/commandExecution/requestApproval", COMMAND) == {"decision": "accept"}
        assert mediation.asked[0][0].command == "touch x"


@pytest.mark.parametrize(
    "change",
    [
        {"command": "/workspace/bash -c 'touch x'"},
        {"command": "touch x"},
        {"command": None},
        {"itemId": ""},
        {"kind": "writeStdin"},
        {"additionalPermissions": {"network": {"enabled": True}}},
        {"networkApprovalContext": {"host": "example.com"}},
    ],
)
async def test_an_approval_that_shows_anything_else_than_a_command_is_declined(change: JsonObject) -> None:
    mediation = RecordingMediation()
    async with connected(ScriptedServer(), mediation) as (_, peer):
        answer = await peer.request("item/commandExecution/requestApproval", {**COMMAND, **change})
        assert answer == {"decision": "decline"}
        assert mediation.asked == []


async def test_an_approval_for_another_command_than_the_hooks_is_declined_and_its_record_says_denied() -> None:
    mediation = RecordingMediation()
    hook: JsonObject = {
        "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"
    }  # fmt: skip
    async with connected(ScriptedServer(), mediation) as (worker, peer):
        assert (await worker.calls.answer_hook(hook)).allowed
        assert await peer.request("item/commandExecution/requestApproval", COMMAND) == {"decision": "decline"}
        assert mediation.ended["c1"][0] == "denied"


async def test_a_patch_is_decided_by_the_paths_of_its_item() -> None:
    mediation = RecordingMediation()
    change: JsonValue = [{"path": "/workspace/a", "kind": {"type": "update", "move_path": "/workspace/b"}}]
    async with connected(ScriptedServer(), mediation) as (_, peer):
        item: JsonObject = {"type": "fileChange", "id": "c1", "changes": change}
        await peer.notify("item/started", {"threadId": "t2", "item": item})
        answer = await peer.request("item/fileChange/requestApproval", {"threadId": "t2", "itemId": "c1"})
        assert answer == {"decision": "accept"}
        native, _, agent = mediation.asked[0]
        assert ([path.shown for path in native.paths], agent) == (["/workspace/a", "/workspace/b"], "t2")


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("item/permissions/requestApproval", {"permissions": {}, "scope": "turn"}),
        ("item/tool/requestUserInput", {"answers": {}}),
        ("mcpServer/elicitation/request", {"action": "decline"}),
    ],
)
async def test_what_only_a_person_could_answer_is_refused_at_once(method: str, answer: JsonObject) -> None:
    async with connected(ScriptedServer(), RecordingMediation()) as (_, peer):
        assert await peer.request(method, {"threadId": "t1", "itemId": "x"}) == answer


@pytest.mark.parametrize("method", ["execCommandApproval", "applyPatchApproval"])
async def test_an_approval_of_the_older_protocol_is_denied(method: str) -> None:
    async with connected(ScriptedServer(), RecordingMediation()) as (_, peer):
        assert "denied" in json.dumps(await peer.request(method, {"callId": "c1"}))


async def test_a_request_that_nobody_knows_is_answered_with_an_error() -> None:
    async with connected(ScriptedServer(), RecordingMediation()) as (_, peer):
        with pytest.raises(MatrixError, match="no method"):
            await peer.request("attestation/generate", {})


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"tool": "nothing", "arguments": {}}, "MX_AGENT_TOOL_NOT_FOUND"),
        ({"tool": STOCK.name, "namespace": "evil", "arguments": {}}, "MX_AGENT_TOOL_NOT_FOUND"),
        ({"tool": STOCK.name, "arguments": [1]}, "MX_AGENT_INVALID_ARGUMENTS"),
    ],
)
async def test_a_call_of_a_tool_that_is_not_there_is_an_error_that_the_model_can_read(
    params: JsonObject, code: str
) -> None:
    async with connected(ScriptedServer(), RecordingMediation()) as (_, peer):
        answer = await peer.request("item/tool/call", {"threadId": "t1", "callId": "c1", **params})
        assert isinstance(answer, dict)
        assert answer["success"] is False
        assert code in json.dumps(answer["contentItems"])


async def test_a_resumed_thread_is_given_its_policy_again() -> None:
    server = ScriptedServer()
    async with connected(server, RecordingMediation(), replace(TASK, resume="t1")):
        resumed = server.asked["thread/resume"]
        assert (resumed["threadId"], resumed["approvalPolicy"]) == ("t1", "untrusted")
        assert (resumed["sandbox"], resumed["approvalsReviewer"]) == ("danger-full-access", "user")


@pytest.mark.parametrize(
    "server",
    [
        ScriptedServer(opened={**OPENED, "approvalPolicy": "never"}),
        ScriptedServer(opened={**OPENED, "approvalsReviewer": "auto_review"}),
        ScriptedServer(opened={**OPENED, "modelProvider": "openai"}),
        ScriptedServer(opened={**OPENED, "instructionSources": ["/workspace/AGENTS.md"]}),
        ScriptedServer(hooks=[]),
        ScriptedServer(hooks=[{"hooks": [{"command": "true"}]}]),
        ScriptedServer(hooks=[{"hooks": [{"command": f"{HELPER} hook"}, {"command": "evil"}]}]),
    ],
)
async def test_a_program_that_did_not_take_its_pins_is_refused(server: ScriptedServer) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with connected(server, RecordingMediation()):
            raise AssertionError("it connected")
    (fault,) = raised.value.exceptions
    assert isinstance(fault, MatrixError)
    assert fault.code == "MX_AGENT_GATE_REFUSED"


async def test_a_hook_of_a_worker_that_is_not_connected_is_refused() -> None:
    answer = await CodexDriver().answer_hook("codex-zzzzzz", {"hook_event_name": "PreToolUse"})
    assert answer["allow"] is False


async def test_a_witnessed_call_and_the_hook_about_it_are_one_record() -> None:
    driver, mediation = CodexDriver(), RecordingMediation()
    ours, theirs = pair()
    hook: JsonObject = {
        "hook_event_name": "PreToolUse", "tool_name": "collaborationspawn_agent", "tool_use_id": "c1",
        "tool_input": {"message": "x"},
    }  # fmt: skip
    async with anyio.create_task_group() as tasks:
        peer = JsonRpcPeer(theirs, ScriptedServer().on_request, None, version_member=False)
        tasks.start_soon(peer.run)
        async with driver.connect(ours, TASK, mediation):
            for answer in (
                await driver.answer_witnessed(TASK.worker_id, "c1", "spawn_agent", {"message": "x"}),
                await driver.answer_hook(TASK.worker_id, hook),
                await driver.answer_witnessed(TASK.worker_id, "c2", "write_stdin", {"session_id": 1, "chars": ""}),
            ):
                assert answer["allow"] is True
        await peer.aclose()
    assert mediation.ops() == ["agent.spawn"]
