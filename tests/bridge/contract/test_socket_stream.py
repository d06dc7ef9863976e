"""The byte stream over a socket of ours."""

import socket
from collections.abc import AsyncIterator

import anyio
import pytest

from bridge.contract.socket_stream import SocketStream

BOUND_S = 10
BIG = bytes(4 * 1024 * 1024)


@pytest.fixture
async def ends() -> AsyncIterator[tuple[SocketStream, SocketStream]]:
    ours, theirs = socket.socketpair()
    async with SocketStream(ours) as a, SocketStream(theirs) as b:
        with anyio.fail_after(BOUND_S):
            yield a, b


async def test_what_the_kernel_does_not_take_at_once_is_the_callers_to_send(
    ends: tuple[SocketStream, SocketStream],
) -> None:
    a, b = ends
    rest = a.send_now(BIG)
    assert 0 < len(rest) < len(BIG)
    received = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(a.send, rest)
        while received < len(BIG):
            received += len(await b.receive())
    assert received == len(BIG)


async def test_a_stream_that_is_closed_wakes_its_reader_and_takes_nothing_more(
    ends: tuple[SocketStream, SocketStream],
) -> None:
    a, _ = ends

    async def read() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await a.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await a.aclose()
        await a.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        a.send_now(b"x")


async def test_the_other_end_is_the_end_of_the_stream(ends: tuple[SocketStream, SocketStream]) -> None:
    a, b = ends
    a.send_now(b"last")
    await a.send_eof()
    assert await b.receive() == b"last"
    with pytest.raises(anyio.EndOfStream):
        await b.receive()
    await b.aclose()
    with pytest.raises(anyio.BrokenResourceError):
        a.send_now(b"x")
