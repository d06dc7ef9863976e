"""Who may call the bridge, and what becomes of calls when one side goes away."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest

from bridge.client import connect
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from bridge.worker_channel import MAX_LINE_BYTES
from tests.bridge.running_bridge import RunningBridge, run_bridge

BOUND_S = 30


async def assert_cannot_bind(bridge: RunningBridge, capability: str) -> None:
    """The capability is refused at `hello`."""
    with pytest.raises(MatrixError) as caught, anyio.fail_after(BOUND_S):
        async with connect(bridge.socket, capability):
            pass
    assert caught.value.code == "MX_AGENT_BRIDGE_UNAVAILABLE"


async def test_a_capability_binds_one_connection_and_no_second_one(bridge: RunningBridge) -> None:
    capability = await bridge.capability()
    async with connect(bridge.socket, capability) as client:
        assert (client.worker, client.role) == ("claude-abc234", "coder")
        await assert_cannot_bind(bridge, capability)
    await assert_cannot_bind(bridge, capability)
    await assert_cannot_bind(bridge, "guessed")


async def test_closing_a_caller_ends_its_channel_and_its_running_calls(shop: RunningBridge) -> None:
    capability = await shop.capability()
    errors: list[MatrixError] = []
    async with connect(shop.socket, capability) as client:

        async def hang() -> None:
            try:
                await client.invoke("demo.shop", "shop.hang", {})
            except MatrixError as error:
                errors.append(error)

        with anyio.fail_after(BOUND_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                await shop.event("shop.hang", "call")
                closed = await shop.ask("caller.close", capability=capability)
        recorded = [record["kind"] for record in shop.records("tool.call", "tool.result")]
        assert recorded == ["tool.call", "tool.result"], "its calls have ended when a caller is closed"
        assert closed == {"events": 2}
        with pytest.raises(MatrixError):
            await client.invoke("demo.shop", "shop.check", {"sku": "A"})
    ended = await shop.event("shop.hang", "result")
    assert ended["outcome"] == "cancelled"
    assert errors[0].code in ("MX_AGENT_CANCELLED", "MX_AGENT_BRIDGE_RESTARTED")
    await assert_cannot_bind(shop, capability)


async def test_a_call_before_hello_is_refused(bridge: RunningBridge) -> None:
    answer = await talk(bridge, b'{"id":1,"method":"tool.invoke","params":{"target":"a","op":"b"}}\n')
    assert answer["error"]["data"]["code"] == "MX_AGENT_BRIDGE_UNAVAILABLE"  # type: ignore[index, call-overload] # the form of docs/wires.md


async def talk(bridge: RunningBridge, *lines: bytes) -> JsonObject:
    """Write lines to the socket as they are; the answer to the last one."""
    answer: JsonObject = {}
    async with await anyio.connect_unix(bridge.socket) as stream:
        with anyio.fail_after(BOUND_S):
            for line in lines:
                await stream.send(line)
                received = b""
                while not received.endswith(b"\n"):
                    received += await stream.receive()
                answer = json.loads(received)
    return answer


async def test_duplicate_keys_in_a_payload_are_refused_and_recorded(shop: RunningBridge) -> None:
    hello = json.dumps({"id": 1, "method": "hello", "params": {"capability": await shop.capability()}}).encode()
    params = b'{"target":"demo.shop","op":"shop.check","payload":{"sku":1,"sku":2}}'
    twice = b'{"id":2,"method":"tool.invoke","params":' + params + b"}\n"
    answer = await talk(shop, hello + b"\n", twice)
    assert answer["id"] == 2
    assert "result" not in answer
    (record,) = shop.records("tool.call")
    assert (record["op"], record["payload"]) == ("shop.check", None)
    assert [ended["outcome"] for ended in shop.records("tool.result")] == ["invalid"]


async def test_a_line_over_the_limit_ends_the_connection_and_not_the_bridge(bridge: RunningBridge) -> None:
    answer = await talk(bridge, b"y" * (MAX_LINE_BYTES + 1))
    assert answer["error"]["data"]["code"] == "MX_AGENT_TOO_LARGE"  # type: ignore[index, call-overload] # the form of docs/wires.md
    assert (await bridge.ask("bridge.hello"))["root"] == "acme.com"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_of_the_host_cannot_talk_to_the_bridge(bridge: RunningBridge) -> None:
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "folder = os.open(os.path.dirname(sys.argv[1]), os.O_PATH)\n"
        "os.fchdir(os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY))\n"
        "os.setuid(65534)\n"
        "try:\n    s.connect('bridge.sock')\n    s.settimeout(20)\n    print(s.recv(1))\n"
        "except OSError as error:\n    print('refused')\n"
    )
    bridge.socket.chmod(0o777)  # past the file's own rights, the uid is looked at
    bridge.socket.parent.chmod(0o777)
    ended = await anyio.run_process([sys.executable, "-c", program, str(bridge.socket)])
    assert ended.stdout.strip() in (b"b''", b"refused")


async def test_a_call_in_flight_when_the_bridge_dies_has_an_unknown_outcome_and_is_ended_by_the_next(
    tmp_path: Path, actors: Path
) -> None:
    home = tmp_path / "home"
    async with run_bridge(home) as bridge:
        await bridge.ask("actors.add", path=str(actors))
        errors: list[MatrixError] = []
        async with connect(bridge.socket, await bridge.capability()) as client:

            async def hang() -> None:
                try:
                    await client.invoke("demo.shop", "shop.hang", {})
                except MatrixError as error:
                    errors.append(error)

            with anyio.fail_after(BOUND_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hang)
                    call = str((await bridge.event("shop.hang", "call"))["call"])
                    bridge.process.send_signal(signal.SIGKILL)
            with pytest.raises(MatrixError) as later:
                await client.invoke("demo.shop", "shop.check", {"sku": "A"})
    assert errors[0].code == "MX_AGENT_BRIDGE_RESTARTED"
    assert later.value.code == "MX_AGENT_BRIDGE_UNAVAILABLE"
    async with run_bridge(home) as bridge:
        assert [record["kind"] for record in bridge.of_call(call)] == ["tool.call", "tool.result"]
        assert bridge.of_call(call)[1]["outcome"] == "unknown"


async def test_without_a_bridge_connecting_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(MatrixError) as caught:
        async with connect(tmp_path / "none.sock", "x"):
            pass
    assert caught.value.code == "MX_AGENT_BRIDGE_UNAVAILABLE"


def bytes_in(folder: Path) -> int:
    """The size of the largest file."""
    return max(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def test_a_log_that_cannot_be_written_stops_every_effect(shop: RunningBridge, tmp_path: Path) -> None:
    import resource

    async with connect(shop.socket, await shop.capability()) as client:
        used = bytes_in(shop.home / "audit")
        resource.prlimit(shop.process.pid, resource.RLIMIT_FSIZE, (used, used))  # as if the disk were full
        with pytest.raises(MatrixError) as caught, anyio.fail_after(BOUND_S):
            await client.invoke("demo.shop", "shop.touch", {"path": str(tmp_path / "effect")})
    assert caught.value.code == "MX_AGENT_AUDIT_UNAVAILABLE"
    assert not (tmp_path / "effect").exists()


def is_there(pid: str) -> bool:
    """Whether the process exists."""
    return Path(f"/proc/{pid}").exists()


def children_of(pid: int) -> list[str]:
    """The processes that it started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_the_bridge_ends_with_its_hosts_and_removes_its_socket_when_the_supervisor_is_gone(
    tmp_path: Path, actors: Path
) -> None:
    async with run_bridge(tmp_path / "home") as bridge:
        await bridge.ask("actors.add", path=str(actors))
        assert bridge.socket.stat().st_mode & 0o777 == 0o600
        assert bridge.socket.parent.stat().st_mode & 0o777 == 0o700
        children = children_of(bridge.process.pid)
        assert children
    assert not bridge.socket.exists()
    assert not [child for child in children if is_there(child)]
    assert bridge.process.returncode == 0


def test_a_malformed_root_is_one_line_of_typed_error(tmp_path: Path) -> None:
    import subprocess

    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-P", "-m", "bridge", "--admin-fd", str(theirs.fileno()), "--home", str(tmp_path)]
    ended = subprocess.run(
        [*argv, "--root", "not a root"], pass_fds=(theirs.fileno(),), capture_output=True, timeout=30
    )
    ours.close()
    theirs.close()
    assert ended.returncode == 3
    assert json.loads(ended.stderr)["error"]["code"] == "MX_AGENT_MALFORMED_NAME"
