"""What every implementation of `Sandboxes` does, whatever its walls are made of."""

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from sandboxes import SandboxExit
from tests.contracts.sandboxes.conftest import FLOOD_BYTES, Bench

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


async def test_what_is_sent_comes_back_and_the_end_of_input_reaches_the_process(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("echo")) as sandbox:
            await sandbox.stdio.send(b"first\n")
            assert await BufferedByteReceiveStream(sandbox.stdio).receive_until(b"\n", 100) == b"first"
            await sandbox.stdio.send_eof()
            assert await sandbox.wait() == SandboxExit(0, "exited")
            with pytest.raises(anyio.EndOfStream):
                await sandbox.stdio.receive()


async def test_a_message_larger_than_every_buffer_passes_whole_in_both_directions(bench: Bench) -> None:
    message = bytes(range(256)) * 16384
    received = bytearray()
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("echo")) as sandbox, anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.stdio.send, message)
            while len(received) < len(message):
                received += await sandbox.stdio.receive()
    assert bytes(received) == message


async def test_a_reader_that_comes_late_loses_nothing(bench: Bench) -> None:
    received = 0
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("flood")) as sandbox:
            async for piece in sandbox.stdio:
                received += len(piece)
            assert await sandbox.wait() == SandboxExit(0, "exited")
    assert received == FLOOD_BYTES


async def test_no_more_is_received_than_was_asked_for(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("echo")) as sandbox:
            await sandbox.stdio.send(b"abcdef")
            assert [await sandbox.stdio.receive(1) for _ in range(3)] == [b"a", b"b", b"c"]


async def test_the_exit_code_is_the_process_own(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("seven")) as sandbox:
            assert await sandbox.wait() == SandboxExit(7, "exited")
            assert await sandbox.wait() == SandboxExit(7, "exited")


async def test_the_end_of_standard_error_is_kept_and_no_more_than_eight_kibibytes(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("complain")) as sandbox:
            await sandbox.wait()
            tail = await sandbox.stderr_tail()
    assert tail.endswith("the end\n")
    assert len(tail) <= 8192


async def test_kill_ends_a_process_that_ignores_everything_and_may_be_repeated(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("forever")) as sandbox:
            await sandbox.kill()
            assert await sandbox.wait() == SandboxExit(137, "killed")
            await sandbox.kill()


async def test_running_out_of_memory_is_called_that(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("hog")) as sandbox:
            assert await sandbox.wait() == SandboxExit(137, "oom")


async def test_a_command_runs_beside_the_process_and_answers_with_code_and_output(bench: Bench) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with bench.sandboxes.start(bench.spec("forever")) as sandbox:
            assert await sandbox.run_command(("sh", "-c", "echo here; exit 3")) == (3, b"here\n")
            await sandbox.kill()


async def test_leaving_the_context_stops_a_process_that_ignores_its_end_of_input(bench: Bench) -> None:
    async with bench.sandboxes.start(bench.spec("forever")) as sandbox:
        began = anyio.current_time()
    assert anyio.current_time() - began <= 3.0  # the grace of one second, and two
    assert (await sandbox.wait()).reason == "killed"


async def test_a_cancelled_user_leaves_no_process(bench: Bench) -> None:
    async with anyio.create_task_group() as tasks, bench.sandboxes.start(bench.spec("forever")) as sandbox:
        tasks.cancel_scope.cancel()
        await anyio.sleep_forever()
    assert (await sandbox.wait()).reason == "killed"
