"""JSON-RPC lines between two peers, and between a peer and raw bytes."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import UNIXSocketStream
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.errors import MatrixError
from bridge.contract.json_rpc import JsonRpcPeer
from bridge.contract.json_rpc_errors import JsonRpcError
from bridge.contract.json_types import JsonObject, JsonValue

BOUND_S = 10
LIMIT = 4096


class Server:
    """A handler with one method of each temper."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.heard: list[tuple[str, JsonObject]] = []

    async def answer(self, method: str, params: JsonObject) -> JsonValue:
        match method:
            case "echo":
                return params
            case "refuse":
                raise MatrixError("MX_AGENT_LIMIT", "Enough.", reason="r")
            case "number":
                raise JsonRpcError(-32123, "mine", {"k": 1})
            case "break":
                raise ValueError("the password is hunter2")
            case "huge":
                return "x" * (2 * LIMIT)
            case "odd":
                return {"set": {1}}  # type: ignore[dict-item] # what an actor may answer in spite of its type
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        return None

    async def hear(self, method: str, params: JsonObject) -> None:
        self.heard.append((method, params))


@asynccontextmanager
async def peers(server: Server, **options: Any) -> AsyncIterator[tuple[JsonRpcPeer, JsonRpcPeer]]:
    """(client, server), running."""
    ours, theirs = socket.socketpair()
    async with await UNIXSocketStream.from_socket(ours) as a, await UNIXSocketStream.from_socket(theirs) as b:
        client = JsonRpcPeer(a, **options)
        serving = JsonRpcPeer(b, server.answer, server.hear, LIMIT)
        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.run)
                tasks.start_soon(serving.run)
                yield client, serving
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def raw(server: Server) -> AsyncIterator[UNIXSocketStream]:
    """A stream to a serving peer, to write any bytes to."""
    ours, theirs = socket.socketpair()
    async with await UNIXSocketStream.from_socket(ours) as a, await UNIXSocketStream.from_socket(theirs) as b:
        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(JsonRpcPeer(b, server.answer, server.hear, LIMIT).run)
                yield a
                tasks.cancel_scope.cancel()


async def test_a_request_is_answered_with_the_handlers_result() -> None:
    async with peers(Server()) as (client, _):
        assert await client.request("echo", {"a": [1, "ä"]}) == {"a": [1, "ä"]}


async def test_a_typed_failure_crosses_with_its_code_message_and_data() -> None:
    async with peers(Server()) as (client, _):
        with pytest.raises(MatrixError) as caught:
            await client.request("refuse")
    assert caught.value.to_wire() == {"code": "MX_AGENT_LIMIT", "message": "Enough.", "reason": "r"}


async def test_an_error_with_a_foreign_number_keeps_it() -> None:
    async with peers(Server()) as (client, _):
        with pytest.raises(JsonRpcError) as caught:
            await client.request("number")
    assert (caught.value.rpc_code, caught.value.rpc_message, caught.value.rpc_data) == (-32123, "mine", {"k": 1})


async def test_a_handlers_exception_never_shows_its_text() -> None:
    async with peers(Server()) as (client, _):
        with pytest.raises(MatrixError) as caught:
            await client.request("break")
    assert "hunter2" not in str(caught.value.to_wire())


@pytest.mark.parametrize(("method", "code"), [("huge", "MX_AGENT_TOO_LARGE"), ("odd", "MX_AGENT_INVALID_RESULT")])
async def test_a_result_that_does_not_fit_a_line_is_an_error_and_the_channel_lives(method: str, code: str) -> None:
    async with peers(Server()) as (client, _):
        with pytest.raises(MatrixError) as caught:
            await client.request(method)
        assert caught.value.code == code
        assert await client.request("echo", {}) == {}


async def test_a_time_out_has_its_code_and_cancels_the_handler() -> None:
    server = Server()
    async with peers(server) as (client, _):
        with pytest.raises(MatrixError) as caught:
            await client.request("wait", timeout_ms=1, timeout_code="MX_AGENT_INTROSPECT_TIMEOUT")
        assert caught.value.code == "MX_AGENT_INTROSPECT_TIMEOUT"
        await server.cancelled.wait()


async def test_cancelling_a_request_cancels_the_handler_at_the_other_end() -> None:
    server = Server()
    async with peers(server) as (client, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.request, "wait")
            await server.started.wait()
            tasks.cancel_scope.cancel()
        await server.cancelled.wait()
        assert await client.request("echo", {}) == {}


async def test_a_stream_that_ends_fails_every_pending_request_with_the_given_code() -> None:
    server = Server()
    async with peers(server, closed_code="MX_AGENT_ACTOR_UNAVAILABLE") as (client, serving):
        codes: list[str] = []

        async def ask() -> None:
            try:
                await client.request("wait")
            except MatrixError as error:
                codes.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await server.started.wait()
            await serving.aclose()
        assert codes == ["MX_AGENT_ACTOR_UNAVAILABLE"] * 2
        await server.cancelled.wait()


async def test_notifications_are_heard_in_their_order() -> None:
    server = Server()
    async with peers(server) as (client, _):
        await client.notify_all("n", [{"i": index} for index in range(50)])
        await client.request("echo")
        while len(server.heard) < 50:
            await anyio.lowlevel.checkpoint()
    assert server.heard == [("n", {"i": index}) for index in range(50)]


async def test_a_slow_handler_does_not_hold_up_the_others() -> None:
    server = Server()
    async with peers(server) as (client, _), anyio.create_task_group() as tasks:
        tasks.start_soon(client.request, "wait")
        await server.started.wait()
        assert await client.request("echo", {"b": 1}) == {"b": 1}
        tasks.cancel_scope.cancel()


async def test_without_the_version_member_lines_have_none() -> None:
    ours, theirs = socket.socketpair()
    async with await UNIXSocketStream.from_socket(ours) as a, await UNIXSocketStream.from_socket(theirs) as b:
        await JsonRpcPeer(a, version_member=False).notify("n", {})
        assert json.loads(await b.receive()) == {"method": "n", "params": {}}


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"id":7,"method":"echo","params":{"a":1,"a":2}}', 7),
        (b'{"id":"s","method":"echo","params":[1]}', "s"),
        (b'{"id":8,"method":"echo","params":{"a":NaN}}', 8),
        (b'{"id":9,"method":"echo","params":{"a":' + b"1" * 3000 + b"}}", 9),
        (b"nonsense", None),
        (b"[1]", None),
        (b"\xff", None),
        (b'{"id":1,"method":"echo","params":' + b"[" * 3000, None),
    ],
)
async def test_a_malformed_line_is_refused_to_its_sender_and_the_channel_lives(line: bytes, number: object) -> None:
    async with raw(Server()) as stream:
        await stream.send(line + b"\n")
        refused = json.loads(await stream.receive())
        assert refused["id"] == number
        assert refused["error"]["data"]["code"].startswith("MX_AGENT_")
        await stream.send(b'{"id":10,"method":"echo"}\n')
        assert json.loads(await stream.receive())["result"] == {}


async def test_a_line_over_the_limit_is_refused_after_reading_the_limit_and_ends_the_channel() -> None:
    async with raw(Server()) as stream:
        await stream.send(b"x" * (LIMIT + 1))
        assert json.loads(await stream.receive())["error"]["data"]["code"] == "MX_AGENT_TOO_LARGE"
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()


async def test_reading_pauses_while_too_much_is_being_handled_and_goes_on_after() -> None:
    release, arrived = anyio.Event(), 0
    asked: JsonObject = {"x": "x" * (LIMIT // 3)}

    async def hold(_method: str, params: JsonObject) -> JsonValue:
        nonlocal arrived
        arrived += 1
        await release.wait()
        return {"size": len(str(params["x"]))}

    ours, theirs = socket.socketpair()
    async with await UNIXSocketStream.from_socket(ours) as a, await UNIXSocketStream.from_socket(theirs) as b:
        client, serving = JsonRpcPeer(a), JsonRpcPeer(b, hold, max_line_bytes=LIMIT, max_held_bytes=LIMIT)
        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.run)
                tasks.start_soon(serving.run)
                async with anyio.create_task_group() as asking:
                    for _ in range(6):
                        asking.start_soon(client.request, "hold", asked)
                    await anyio.wait_all_tasks_blocked()
                    assert arrived == 2
                    release.set()
                assert arrived == 6
                tasks.cancel_scope.cancel()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 5))
def test_lines_are_the_same_however_the_bytes_are_cut(cuts: list[int], count: int) -> None:
    async def check() -> None:
        sent = b"".join(b'{"id":%d,"method":"echo","params":{"i":%d}}\n' % (index, index) for index in range(count))
        async with raw(Server()) as stream:
            at = 0
            while at < len(sent):
                step = cuts[at % len(cuts)]
                await stream.send(sent[at : at + step])
                at += step
            received = b""
            while received.count(b"\n") < count:
                received += await stream.receive()
        answers = [json.loads(line) for line in received.splitlines()]
        assert sorted(answer["result"]["i"] for answer in answers) == list(range(count))

    anyio.run(check)
