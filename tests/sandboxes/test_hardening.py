"""What a started container can and cannot do, asked from inside (threats.md C1, C2, C3, C5, N1).

The same questions are put to a plain container of the same image, so that a check that could not fail is seen.
"""

import errno
import json
import os
import platform
import secrets
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
import pytest

from sandboxes import ReadOnlyMount, SandboxLimits, worker_image_tag
from sandboxes.docker_sandbox import DockerSandboxes
from sandboxes.sandbox_spec import MEBIBYTE
from tests.sandboxes.place import Place, place_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the call numbers are those of x86-64"),
]
INSIDE = Path(__file__).with_name("inside.py")
INSIDE_TARGET = PurePosixPath("/opt/test/inside.py")
BRIDGE_ADDRESS = "172.17.0.1"
PATIENCE_S = 60


@dataclass(frozen=True)
class Canaries:
    """Things of the host that a container must not find: listeners on a port and a name, and a file of that name."""

    name: str
    listeners: tuple[socket.socket, ...]

    @property
    def port(self) -> int:
        return int(self.listeners[0].getsockname()[1])

    def visitors(self) -> int:
        """How many connections arrived."""
        arrived = 0
        for listener in self.listeners:
            listener.setblocking(False)
            try:
                listener.accept()[0].close()
                arrived += 1
            except BlockingIOError:
                continue
        return arrived


@contextmanager
def canaries_in(folder: Path) -> Iterator[Canaries]:
    name = f"canary-{secrets.token_hex(8)}"
    (folder / name).write_text("secret")
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.socket())
        tcp.bind(("0.0.0.0", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        for listener in (tcp, abstract):
            listener.listen()
        yield Canaries(name, (tcp, abstract))


@dataclass(frozen=True)
class Seen:
    """What `inside.py` printed, and what the host noticed."""

    inside: dict[str, Any]
    place: Place
    visitors: int


@pytest.fixture(scope="module")
def hardened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Our container, asked once."""
    folder = tmp_path_factory.mktemp("hardened")
    with place_in(folder) as place, canaries_in(folder) as canaries:
        output = anyio.run(ask_inside, place, canaries)
        yield Seen(json.loads(output), place, canaries.visitors())


async def ask_inside(place: Place, canaries: Canaries) -> bytes:
    sandboxes = DockerSandboxes()
    argv = ("python3", str(INSIDE_TARGET), str(canaries.port), BRIDGE_ADDRESS, canaries.name)
    spec = place.spec(*argv, mounts=(ReadOnlyMount(INSIDE, INSIDE_TARGET),))
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(spec) as sandbox:
            output = b"".join([piece async for piece in sandbox.stdio])
            assert output, await sandbox.stderr_tail()
    await sandboxes.engine.aclose()
    return output


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The negative control: the same image as `docker run` starts it."""
    folder = tmp_path_factory.mktemp("plain")
    with place_in(folder) as place, canaries_in(folder) as canaries:
        mounts = ("-v", f"{INSIDE}:{INSIDE_TARGET}:ro", "-v", f"{folder}:/found")
        inside = ("python3", str(INSIDE_TARGET), str(canaries.port), BRIDGE_ADDRESS, canaries.name)
        command = ("docker", "run", "--rm", *mounts, worker_image_tag(), *inside)
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
        yield Seen(json.loads(done.stdout), place, canaries.visitors())


def test_no_capability_no_new_privileges_a_filter_and_a_user_of_its_own(hardened: Seen) -> None:
    status = hardened.inside["status"]
    assert {name: value for name, value in status.items() if name.startswith("Cap")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16
    )
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    uid = hardened.place.uid
    assert uid != 0
    assert hardened.inside["ids"] == [uid, uid, uid, [uid]] or hardened.inside["ids"] == [uid, uid, uid, []]


DEVICES = {f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")}


def test_exactly_the_declared_paths_are_writable(hardened: Seen) -> None:
    writable = set(hardened.inside["writable"]) - DEVICES
    declared = {"/workspace", "/tmp", "/home/worker", "/dev/shm", "/run/mxs/gateway.sock"}
    assert writable - {"/dev/mqueue", "/dev/pts/ptmx", "/dev/ptmx"} == declared
    assert hardened.inside["queue"] == errno.EMFILE, "no message queue can be made in /dev/mqueue"


def test_proc_and_sys_are_masked_and_read_only(hardened: Seen) -> None:
    assert all(head in ("", errno.ENOENT, errno.EACCES) for head in hardened.inside["masked"].values())
    assert hardened.inside["firmware"] == []
    assert hardened.inside["writable_sys"] == []
    harmless = {"/proc/interrupts", "/proc/keys", "/proc/timer_list", "/proc/kcore"}  # covered by /dev/null
    assert set(hardened.inside["writable_proc"]) <= harmless


def test_nothing_is_inherited(hardened: Seen) -> None:
    assert hardened.inside["fds"] == [0, 1, 2]
    assert hardened.inside["cwd"] == "/workspace"
    assert set(hardened.inside["environ"]) <= {"HOME", "HOSTNAME", "PATH", "PWD", "LC_CTYPE"}


def test_every_dangerous_call_is_refused(hardened: Seen) -> None:
    expected = dict.fromkeys(hardened.inside["calls"], errno.EPERM) | {"clone3": errno.ENOSYS}
    assert hardened.inside["calls"] == expected


def test_only_plain_socket_families_exist(hardened: Seen) -> None:
    assert hardened.inside["families"] == dict.fromkeys(hardened.inside["families"], errno.EPERM)


def test_there_is_no_network_but_loopback(hardened: Seen) -> None:
    assert hardened.inside["interfaces"] == ["lo"]
    assert hardened.inside["routes"] == []
    assert all(code != 0 for code in hardened.inside["reached"].values()), hardened.inside["reached"]
    assert hardened.visitors == 0


def test_nothing_of_the_host_is_found(hardened: Seen) -> None:
    assert hardened.inside["canary"] == []
    assert hardened.inside["docker_sock"] == []


def test_the_same_questions_find_a_plain_container_open(plain: Seen) -> None:
    inside = plain.inside
    assert inside["status"]["CapEff"] != "0" * 16
    assert inside["ids"][0] == 0
    assert "/" in inside["writable"]
    assert inside["cwd"] != "/workspace"
    open_calls = {name for name, code in inside["calls"].items() if code != errno.EPERM}
    assert {"mknod_char", "chroot"} <= open_calls
    assert inside["families"]["AF_PACKET"] == 0
    assert inside["interfaces"] != ["lo"]
    assert inside["canary"] != []
    assert plain.visitors == 1  # through the bridge


USEFUL = """
import mmap, os, select, socket, subprocess, sys, tempfile, threading
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
os.mkfifo("/tmp/fifo"); os.memfd_create("m"); select.epoll().close(); os.pidfd_open(os.getpid())
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX): socket.socket(family).close()
socket.socketpair(); socket.if_nameindex(); socket.getaddrinfo("localhost", 80)
with open("/tmp/run", "w") as f: f.write("#!/bin/sh\\necho executed\\n")
os.chmod("/tmp/run", 0o755); subprocess.run(["/tmp/run"], check=True)
import multiprocessing
with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, 2]))
commit = "git -c user.name=a -c user.email=b@c commit -q --allow-empty -m x"
for line in ("git init -q", commit, "git gc -q", "rg --version"):
    subprocess.run(line.split(), check=True)
"""


async def test_what_builds_and_tests_need_works(sandboxes: DockerSandboxes, place: Place) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("python3", "-u", "-c", USEFUL)) as sandbox:
            output = b"".join([piece async for piece in sandbox.stdio])
            ended = await sandbox.wait()
            assert ended.code == 0, await sandbox.stderr_tail()
    assert b"thread\nexecuted\n[1, 2]\n" in output


async def test_a_command_from_outside_is_no_freer_than_the_worker(sandboxes: DockerSandboxes, place: Place) -> None:
    line = "grep -E 'CapEff|NoNewPrivs|Seccomp:|^Uid' /proc/self/status; tty; pwd"
    with anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("cat")) as sandbox:
            _, output = await sandbox.run_command(("sh", "-c", line))
    words = output.decode().split()
    assert words[:5] == ["Uid:", *[str(place.uid)] * 4]
    assert words[5:] == ["CapEff:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2", "not", "a", "tty", "/workspace"]


async def test_two_workers_have_users_of_their_own_and_do_not_see_each_other(
    sandboxes: DockerSandboxes, place: Place, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives every worker a user of its own")
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with place_in(other_folder) as other, anyio.fail_after(PATIENCE_S):
        async with sandboxes.start(place.spec("cat")) as first, sandboxes.start(other.spec("cat")) as second:
            ids = {(await sandbox.run_command(("id", "-u")))[1] for sandbox in (first, second)}
            _, processes = await second.run_command(("ps", "-e", "-o", "comm="))
    assert len(ids) == 2
    assert processes.split() == [b"mxs-helper", b"cat", b"ps"]


FORK_BOMB = """
import os
children = 0
try:
    while True:
        if os.fork() == 0:
            os.read(0, 1)
        children += 1
except OSError:
    print(children, flush=True)
"""


async def test_a_fork_bomb_and_a_full_disk_end_at_their_bounds(sandboxes: DockerSandboxes, place: Place) -> None:
    fill = "for d in /tmp /dev/shm /home/worker; do head -c 1G /dev/zero >$d/x 2>/dev/null; stat -c %s $d/x; done"
    with anyio.fail_after(PATIENCE_S):
        limits = SandboxLimits(tmp_bytes=24 * MEBIBYTE, shm_bytes=16 * MEBIBYTE, home_bytes=8 * MEBIBYTE, pids=64)
        async with sandboxes.start(place.spec("cat", limits=limits)) as sandbox:
            _, sizes = await sandbox.run_command(("sh", "-c", fill))
            written = [int(line) for line in sizes.splitlines() if line.isdigit()]
            assert written == [limits.tmp_bytes, limits.shm_bytes, limits.home_bytes]
        async with sandboxes.start(place.spec("python3", "-c", FORK_BOMB, limits=limits)) as sandbox:
            assert int(await sandbox.stdio.receive()) < limits.pids
            await sandbox.kill()
