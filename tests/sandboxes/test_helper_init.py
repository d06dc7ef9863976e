"""The helper as a worker's parent, run on the host: its relay with real sockets, its signals, its exit codes."""

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandboxes.helper import helper_path

PATIENCE_S = 20
CONNECTIONS = 64  # RELAY_CONNECTIONS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def helper(path: Path, port: int, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """The helper with `argv` as its worker; ended at the end."""
    words = [str(helper_path()), "init", "--port", str(port), "--socket", str(path), "--", *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.terminate()


class Relay:
    """A running relay and the gateway's side of it."""

    def __init__(self, port: int, listener: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._port = port
        self.process = process
        self.listener = listener

    def client(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """A client and the connection that the gateway got for it."""
        client = self.client()
        gateway, _ = self.listener.accept()
        gateway.settimeout(PATIENCE_S)
        return client, gateway


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    path, port = tmp_path / "gateway.sock", free_port()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(2 * CONNECTIONS)
        listener.settimeout(PATIENCE_S)
        with helper(path, port, "sh", "-c", "echo up; exec cat") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield Relay(port, listener, process)


def receive_all(connection: socket.socket) -> bytes:
    received = bytearray()
    while piece := connection.recv(65536):
        received += piece
    return bytes(received)


def fill_up(connection: socket.socket) -> None:
    """Send until nothing more fits anywhere on the way."""
    connection.settimeout(0.2)
    try:
        while True:
            connection.send(b"x" * 65536)
    except TimeoutError:
        return


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_bytes_pass_in_both_directions(relay: Relay) -> None:
    client, gateway = relay.pair()
    with client, gateway:
        client.sendall(b"request")
        assert gateway.recv(100) == b"request"
        gateway.sendall(b"answer")
        assert client.recv(100) == b"answer"


def test_the_end_of_one_direction_leaves_the_other_open(relay: Relay) -> None:
    client, gateway = relay.pair()
    with client, gateway:
        client.sendall(b"last")
        client.shutdown(socket.SHUT_WR)
        assert receive_all(gateway) == b"last"
        gateway.sendall(b"still here")
        gateway.close()
        assert receive_all(client) == b"still here"


def test_large_streams_pass_whole_and_a_slow_reader_stops_only_its_own_writer(relay: Relay) -> None:
    slow_client, slow_gateway = relay.pair()
    client, gateway = relay.pair()
    content = bytes(range(256)) * 16384
    with slow_client, slow_gateway, client, gateway:
        writers = [threading.Thread(target=send_and_end, args=(end, content)) for end in (slow_client, client)]
        for writer in writers:
            writer.start()
        assert receive_all(gateway) == content
        assert receive_all(slow_gateway) == content
        for writer in writers:
            writer.join(PATIENCE_S)


def send_and_end(connection: socket.socket, content: bytes) -> None:
    connection.sendall(content)
    connection.shutdown(socket.SHUT_WR)


def test_a_client_that_aborts_closes_its_gateway_connection(relay: Relay) -> None:
    client, gateway = relay.pair()
    with gateway:
        client.close()
        assert gateway.recv(1) == b""


def test_a_gateway_that_is_gone_closes_the_client(relay: Relay) -> None:
    relay.listener.close()
    with relay.client() as client:
        assert client.recv(1) == b""


def test_more_connections_than_the_bound_wait_and_are_then_served(relay: Relay) -> None:
    pairs = [relay.pair() for _ in range(CONNECTIONS)]
    with relay.client() as waiting:
        relay.listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            relay.listener.accept()
        relay.listener.settimeout(PATIENCE_S)
        for connection in pairs.pop():
            connection.close()
        with closing(relay.listener.accept()[0]) as gateway:
            waiting.sendall(b"at last")
            assert gateway.recv(100) == b"at last"
    for pair in pairs:
        for connection in pair:
            connection.close()


def test_half_closed_and_full_connections_cost_no_time(relay: Relay) -> None:
    client, gateway = relay.pair()
    stuck_client, stuck_gateway = relay.pair()
    with client, gateway, stuck_client, stuck_gateway:
        client.shutdown(socket.SHUT_WR)
        fill_up(stuck_client)
        before = cpu_ticks(relay.process.pid)
        began = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            relay.process.wait(0.5)
        assert cpu_ticks(relay.process.pid) - before <= 5, f"busy for {time.monotonic() - began} s"


@pytest.mark.parametrize(("line", "code"), [("exit 0", 0), ("exit 41", 41), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_exit_code_is_the_workers(tmp_path: Path, line: str, code: int) -> None:
    with helper(tmp_path / "none", free_port(), "sh", "-c", line) as process:
        assert process.wait(PATIENCE_S) == code


def test_signals_are_passed_on(tmp_path: Path) -> None:
    line = "trap 'echo heard; exit 5' USR1; echo up; while :; do read -r _ || :; done"
    with helper(tmp_path / "none", free_port(), "bash", "-c", line) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == b"heard\n"
        assert process.wait(PATIENCE_S) == 5


def test_the_ends_of_input_and_output_are_the_workers_own(tmp_path: Path) -> None:
    with helper(tmp_path / "none", free_port(), "sh", "-c", "cat; exec >&-; exec sleep 60") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"text")
        process.stdin.close()
        assert process.stdout.read() == b"text"  # returns although the worker still runs


def test_the_worker_starts_without_blocked_or_ignored_signals_and_without_our_descriptors(tmp_path: Path) -> None:
    line = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l"
    words = [str(helper_path()), "init", "--port", str(free_port()), "--socket", str(tmp_path / "none"), "--"]
    plain = subprocess.run(["sh", "-c", line], capture_output=True, timeout=PATIENCE_S, check=True)
    under = subprocess.run([*words, "sh", "-c", line], capture_output=True, timeout=PATIENCE_S, check=True)
    assert under.stdout == plain.stdout


@pytest.mark.parametrize(("argv", "code"), [(["/nonexistent"], 127), (["/etc/passwd"], 126)])
def test_a_program_that_cannot_run_is_said(tmp_path: Path, argv: list[str], code: int) -> None:
    with helper(tmp_path / "none", free_port(), *argv) as process:
        assert process.stderr is not None
        assert process.wait(PATIENCE_S) == code
        assert f"cannot run {argv[0]}".encode() in process.stderr.read()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with helper(tmp_path / "none", taken.getsockname()[1], "true") as process:
            assert process.wait(PATIENCE_S) == 125


def test_health_is_whether_the_gateway_listens(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    words = [str(helper_path()), "health", "--socket", str(path)]
    assert subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 1
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
