"""What is wrong with an engine, told apart with real sockets; and what set-up would do about it, as a pure function."""

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxes import EngineFacts, SandboxError, check_engine, read_facts
from sandboxes.engine import DEFAULT_SOCKET, engine_socket, plan, version_numbers


@contextmanager
def engine_saying(path: Path, answer: bytes) -> Iterator[None]:
    """Something that answers one request on `path`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def version_answer(version: str) -> bytes:
    body = f'{{"Version": "{version}"}}'.encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (version_answer("20.10.24+dfsg1"), "ready"),
        (version_answer("29.1.0-rc.2"), "ready"),
        (version_answer("20.10.9"), "tooOld"),
        (version_answer("19.03.15"), "tooOld"),
        (version_answer("dev"), "tooOld"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}", "silent"),
        (b"", "silent"),
        (b"SSH-2.0-nonsense\r\n", "silent"),
    ],
)
def test_an_engine_is_judged_by_its_answer(tmp_path: Path, answer: bytes, state: str) -> None:
    path = tmp_path / "docker.sock"
    with engine_saying(path, answer):
        assert read_facts(path).state == state


def test_no_socket_and_a_socket_without_an_engine_are_both_absent(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    assert read_facts(path).state == "absent"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    assert read_facts(path).state == "absent"


def facts(**changes: object) -> EngineFacts:
    values = {"state": "absent", "socket_path": DEFAULT_SOCKET, "is_root": True, "has_apt": True, "has_dockerd": False}
    return EngineFacts(**{**values, **changes})  # type: ignore[arg-type]  # the table below is the check


def test_a_running_engine_is_left_as_it_is_whoever_we_are() -> None:
    assert plan(facts(state="ready", is_root=False, has_apt=False)) == ()


def test_a_bare_debian_machine_gets_an_engine() -> None:
    assert plan(facts()) == ("install", "start")
    assert plan(facts(has_dockerd=True)) == ("start",)


@pytest.mark.parametrize(
    ("changes", "mend"),
    [
        ({"is_root": False}, "once as root"),
        ({"is_root": False, "has_dockerd": True}, "Start Docker"),
        ({"has_apt": False}, "Install Docker Engine"),
        ({"socket_path": Path("/run/user/1000/docker.sock")}, "Start Docker"),
        ({"state": "noRights", "is_root": False}, "group"),
        ({"state": "tooOld", "version": "19.03.1"}, "Upgrade"),
        ({"state": "silent"}, "Restart"),
    ],
)
def test_what_set_up_cannot_mend_is_said_with_the_mend(changes: dict[str, object], mend: str) -> None:
    with pytest.raises(SandboxError) as refused:
        plan(facts(**changes))
    assert mend in refused.value.mend


def test_a_remote_engine_is_refused_because_it_cannot_see_our_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.7:2376")
    with pytest.raises(SandboxError, match="another machine"):
        engine_socket()


def test_docker_host_and_the_chosen_context_are_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    assert engine_socket() == Path("/somewhere/docker.sock")
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert engine_socket() == DEFAULT_SOCKET
    write_context(tmp_path, "unix:///home/me/.colima/docker.sock")
    assert engine_socket() == Path("/home/me/.colima/docker.sock")


def write_context(folder: Path, host: str) -> None:
    meta = folder / "contexts" / "meta" / hashlib.sha256(b"colima").hexdigest()
    meta.mkdir(parents=True)
    (folder / "config.json").write_text('{"currentContext": "colima"}')
    (meta / "meta.json").write_text(f'{{"Name": "colima", "Endpoints": {{"docker": {{"Host": "{host}"}}}}}}')


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("20.10.24+dfsg1") == (20, 10, 24)
    assert version_numbers("20.10.9") < version_numbers("20.10.10") < version_numbers("27.0.3~rc1")
    assert version_numbers("master") == ()


def test_the_engine_of_this_machine_is_ready() -> None:
    assert check_engine().state == "ready"


def test_a_socket_that_is_not_ours_is_a_lack_of_rights(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give rights up")
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o600)
        assert state_as_nobody(path, tmp_path) == "noRights"


def state_as_nobody(path: Path, folder: Path) -> str:
    """The state that another user sees, asked in a process of that user."""
    for parent in [folder, *folder.parents][:3]:
        parent.chmod(0o755)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(write, read_facts(path).state.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        state = answer.read().decode()
    os.waitpid(child, 0)
    return state
