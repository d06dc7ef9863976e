"""Framing over the container's stdio: any split of the bytes, and every kind of line that is no message."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.streams.stapled import StapledObjectStream
from claude_agent_sdk import CLIConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.errors import MatrixError
from supervisor.workers import claude_code, claude_code_transport
from supervisor.workers.claude_code_questions import MAX_OPEN_QUESTIONS
from supervisor.workers.claude_code_transport import StdioTransport
from supervisor.workers.worker import WorkerTask
from tests.supervisor.workers.driven import RecordingMediation

json_objects = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()))


async def _read(chunks: list[bytes]) -> tuple[list[dict[str, Any]], str]:
    """What the transport makes of a worker that sends `chunks` and ends: its messages, and why it stopped."""
    to_transport, inbox = anyio.create_memory_object_stream[bytes](len(chunks) + 1)
    outbox, from_transport = anyio.create_memory_object_stream[bytes](1)
    messages: list[dict[str, Any]] = []
    with to_transport, from_transport:
        for chunk in chunks:
            to_transport.send_nowait(chunk)
        to_transport.close()
        transport = StdioTransport(StapledObjectStream(outbox, inbox))  # type: ignore[arg-type]  # an object stream of bytes is a byte stream
        await transport.connect()
        try:
            async for message in transport.read_messages():
                messages.append(message)
        except CLIConnectionError as error:
            return messages, str(error)
        finally:
            await transport.close()
    raise AssertionError("the end of the output is an error")


@settings(max_examples=50)  # each runs an event loop of its own
@given(st.lists(json_objects, max_size=5), st.integers(1, 64))
def test_messages_survive_any_split_into_chunks(messages: list[dict[str, Any]], size: int) -> None:
    data = b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in messages)
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    read, why = anyio.run(_read, chunks)
    assert read == messages
    assert why == "the worker's output ended"


@pytest.mark.anyio
async def test_lines_that_are_no_object_are_passed_over() -> None:
    assert (await _read([b"\n[debug] hello\n{}\n"]))[0] == [{}]


@pytest.mark.anyio
@pytest.mark.parametrize("line", [b'{"a": \n', b"{" * 10 + b"\n", b'{"a":' * 200_000 + b"\n", b'{"\xff": 1}\n'])
async def test_a_broken_line_ends_the_channel_without_its_content_in_the_error(line: bytes) -> None:
    read, why = await _read([line])
    assert (read, why) == ([], "the worker sent a line that is not JSON")


@pytest.mark.anyio
async def test_an_endless_line_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_code_transport, "MAX_LINE_BYTES", 1000)
    _, why = await _read([b"{" + b"x" * 500] * 10)
    assert "more than 1000 bytes" in why


def _question(number: int, size: int = 0) -> bytes:
    asked = {"type": "control_request", "request_id": f"q{number}", "request": {"x": "y" * size}}
    return json.dumps(asked).encode() + b"\n"


@pytest.mark.anyio
@pytest.mark.parametrize("size", [0, 8 * 1024 * 1024])
async def test_a_worker_that_asks_without_end_and_reads_no_answer_is_given_up(size: int) -> None:
    read, why = await _read([_question(number, size) for number in range(9 if size else 300)])
    assert "questions" in why
    assert len(read) == (7 if size else MAX_OPEN_QUESTIONS)


@pytest.mark.anyio
async def test_a_second_question_under_the_id_of_an_open_one_ends_the_channel() -> None:
    assert "second question" in (await _read([_question(1), _question(1)]))[1]


@pytest.mark.anyio
async def test_withdrawn_and_answered_questions_make_room_for_others() -> None:
    withdrawn = b'{"type": "control_cancel_request", "request_id": "q0"}\n'
    assert len((await _read([_question(0), withdrawn] * 300))[0]) == 600
    outbox, from_transport = anyio.create_memory_object_stream[bytes](300)
    to_transport, inbox = anyio.create_memory_object_stream[bytes](300)
    with from_transport, to_transport:
        transport = StdioTransport(StapledObjectStream(outbox, inbox))  # type: ignore[arg-type]  # as above
        messages = transport.read_messages()
        for _ in range(300):
            to_transport.send_nowait(_question(0))
            await anext(messages)
            answer = {"type": "control_response", "response": {"subtype": "success", "request_id": "q0"}}
            await transport.write(json.dumps(answer) + "\n")
        await messages.aclose()  # type: ignore[attr-defined]  # it is a generator
        await transport.close()


@asynccontextmanager
async def _unread() -> AsyncIterator[StdioTransport]:
    outbox, from_transport = anyio.create_memory_object_stream[bytes](0)
    to_transport, inbox = anyio.create_memory_object_stream[bytes](0)
    with from_transport, to_transport:
        transport = StdioTransport(StapledObjectStream(outbox, inbox))  # type: ignore[arg-type]  # as above
        yield transport
        await transport.close()


@pytest.mark.anyio
async def test_a_worker_that_does_not_read_its_input_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_code_transport, "WRITE_TIMEOUT_S", 0.01)
    async with _unread() as transport:
        with pytest.raises(CLIConnectionError, match="did not read"):
            await transport.write("{}\n")


@pytest.mark.anyio
async def test_writing_to_a_closed_worker_is_an_error() -> None:
    async with _unread() as transport:
        await transport.close()
        with pytest.raises(CLIConnectionError, match="closed"):
            await transport.write("{}\n")


@pytest.mark.anyio
async def test_a_program_that_stays_silent_fails_the_handshake_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude_code, "HANDSHAKE_TIMEOUT_S", 0.05)
    outbox, from_driver = anyio.create_memory_object_stream[bytes](8)
    to_driver, inbox = anyio.create_memory_object_stream[bytes](0)
    silent: Any = StapledObjectStream(outbox, inbox)
    with from_driver, to_driver, pytest.raises(MatrixError) as caught:
        async with claude_code.ClaudeCodeDriver().connect(silent, WorkerTask("w", None, ()), RecordingMediation()):
            pass
    assert caught.value.code == "MX_AGENT_WORKER_EXITED"
