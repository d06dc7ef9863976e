"""What is the engine's own: its refusals as typed errors, nothing left behind, users, bounds, the relay."""

import json
from pathlib import Path, PurePosixPath

import anyio
import anyio.abc
import pytest

from sandboxes import ReadOnlyMount, SandboxError
from sandboxes.docker_engine import DockerEngine
from sandboxes.docker_sandbox import COMMAND_OUTPUT_BYTES, DockerSandboxes
from sandboxes.reaper import owned_containers
from tests.sandboxes.place import Place

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


async def containers_of(sandboxes: DockerSandboxes, place: Place) -> list[str]:
    return [container.worker_id for container in await owned_containers(sandboxes.engine, place.owner)]


async def test_an_image_that_is_not_there_is_said_with_the_mend(sandboxes: DockerSandboxes, place: Place) -> None:
    with pytest.raises(SandboxError, match="No such image") as refused:
        async with sandboxes.start(place.spec("true", image="mxs-test-nowhere:none")):
            pytest.fail("it started")
    assert "docker pull" in refused.value.mend


async def test_a_missing_folder_is_refused_and_leaves_no_container(sandboxes: DockerSandboxes, place: Place) -> None:
    with pytest.raises(SandboxError, match="nowhere"):
        async with sandboxes.start(place.spec("true", workspace=Path("/nowhere/at/all"))):
            pytest.fail("it started")
    assert await containers_of(sandboxes, place) == []


async def test_a_start_that_the_engine_refuses_leaves_no_container(
    sandboxes: DockerSandboxes, place: Place, tmp_path: Path
) -> None:
    blocked = ReadOnlyMount(tmp_path, PurePosixPath("/etc/passwd/below"))
    with pytest.raises(SandboxError, match="could not start"):
        async with sandboxes.start(place.spec("true", mounts=(blocked,))):
            pytest.fail("it started")
    assert await containers_of(sandboxes, place) == []


async def test_a_name_in_use_is_refused_and_its_container_stays(sandboxes: DockerSandboxes, place: Place) -> None:
    spec = place.spec("cat")
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(spec) as sandbox:
            with pytest.raises(SandboxError, match="already in use"):
                async with sandboxes.start(spec):
                    pytest.fail("it started twice")
            assert await sandbox.run_command(("echo", "alive")) == (0, b"alive\n")


async def test_no_engine_is_said_with_the_mend(place: Place, tmp_path: Path) -> None:
    sandboxes = DockerSandboxes(DockerEngine(tmp_path / "no.sock"))
    with pytest.raises(SandboxError, match="No container engine answers") as refused:
        async with sandboxes.start(place.spec("true")):
            pytest.fail("it started")
    assert refused.value.mend


async def test_a_failure_of_the_user_comes_out_as_itself(sandboxes: DockerSandboxes, place: Place) -> None:
    with pytest.raises(ZeroDivisionError):
        async with sandboxes.start(place.spec("cat")):
            raise ZeroDivisionError
    assert await containers_of(sandboxes, place) == []


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.1, 0.3])
async def test_a_cancellation_at_any_time_of_the_start_leaves_no_container(
    sandboxes: DockerSandboxes, place: Place, delay_s: float
) -> None:
    with anyio.move_on_after(delay_s):
        async with sandboxes.start(place.spec("cat")):
            await anyio.sleep_forever()
    assert await containers_of(sandboxes, place) == []


async def test_a_worker_that_floods_an_unread_output_is_still_stopped_in_time(
    sandboxes: DockerSandboxes, place: Place
) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("sh", "-c", "trap '' TERM; exec yes")) as sandbox:
            await sandbox.stdio.receive()
            began = anyio.current_time()
    assert anyio.current_time() - began <= 3.0
    assert await containers_of(sandboxes, place) == []


async def test_a_killed_worker_is_awaited_although_its_output_was_not_read(
    sandboxes: DockerSandboxes, place: Place
) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("yes")) as sandbox:
            await sandbox.stdio.receive()
            await sandbox.kill()
            assert (await sandbox.wait()).reason == "killed"


async def test_no_process_outlives_the_worker(sandboxes: DockerSandboxes, place: Place) -> None:
    line = "for i in 1 2 3; do sh -c 'sleep 300 & sleep 300' & done; exec 0<&- ; exit 4"
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("sh", "-c", line)) as sandbox:
            assert (await sandbox.wait()).code == 4


async def test_orphans_inside_are_reaped(sandboxes: DockerSandboxes, place: Place) -> None:
    line = "for i in 1 2 3 4 5; do sh -c 'true & exec true' & done; wait; echo up; exec cat"
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("sh", "-c", line)) as sandbox:
            await sandbox.stdio.receive()
            _, states = await sandbox.run_command(("ps", "-e", "-o", "stat="))
    assert b"Z" not in states


async def test_the_output_of_a_command_is_bounded(sandboxes: DockerSandboxes, place: Place) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("cat")) as sandbox:
            _, output = await sandbox.run_command(("sh", "-c", "head -c 3000000 /dev/zero"))
    assert len(output) == COMMAND_OUTPUT_BYTES


async def test_what_the_worker_writes_belongs_to_its_user(sandboxes: DockerSandboxes, place: Place) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("sh", "-c", "echo text > made; sync made")) as sandbox:
            await sandbox.wait()
    made = place.workspace / "made"
    assert made.read_text() == "text\n"
    assert made.stat().st_uid == place.uid


ASK = """
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 8080)
connection.request("POST", "/v1/messages", body=b"x" * 300000)
print(connection.getresponse().read().decode())
"""


async def test_the_gateway_is_reached_through_the_relay(sandboxes: DockerSandboxes, place: Place) -> None:
    place.gateway_socket.unlink()
    listener = await anyio.create_unix_listener(place.gateway_socket)
    place.gateway_socket.chmod(0o666)

    async def answer(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            received = 0
            while received < 300_000:
                received += len(await connection.receive())
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nanswered")

    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            async with sandboxes.start(place.spec("python3", "-c", ASK)) as sandbox:
                output = b"".join([piece async for piece in sandbox.stdio])
                assert output == b"answered\n", await sandbox.stderr_tail()
            tasks.cancel_scope.cancel()


async def test_a_started_container_is_what_the_benchmark_of_the_trade_asks_for(
    sandboxes: DockerSandboxes, place: Place
) -> None:
    """threats.md C6: what section 5 of the CIS benchmark reads with `docker inspect`."""
    spec = place.spec("cat")
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(spec):
            shown = json.loads((await anyio.run_process(("docker", "inspect", spec.container_name))).stdout)[0]
    host = shown["HostConfig"]
    assert host["SecurityOpt"] != []
    assert (host["Privileged"], host["ReadonlyRootfs"], host["NetworkMode"]) == (False, True, "none")
    assert min(host["Memory"], host["CpuShares"], host["PidsLimit"]) > 0
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["PidMode"], host["IpcMode"], host["UTSMode"], host["UsernsMode"]) == ("", "private", "", "")
    assert (host["Devices"], host["CapAdd"], host["CgroupParent"]) == ([], [], "")
    assert {mount["Propagation"] for mount in shown["Mounts"] if mount["Type"] == "bind"} == {"rprivate"}
    assert shown["State"]["Health"]["Status"] in ("starting", "healthy")
    assert not any("docker.sock" in mount["Source"] for mount in shown["Mounts"])


async def test_the_health_check_passes_while_the_gateway_listens(sandboxes: DockerSandboxes, place: Place) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("cat")) as sandbox:
            assert await sandbox.run_command(("/opt/mxs/mxs-helper", "health")) == (0, b"")
