"""The hook of the static helper, run on the host with real sockets: what is not a clear yes is a no with a reason."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxes.helper import helper_path

Judge = Callable[[socket.socket], None]
PATIENCE_S = 20
CALL = b'{"tool_name": "exec_command"}'


def http(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


def read_request(connection: socket.socket) -> bytes:
    """The body of the helper's request."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return body


def answering(answer: bytes) -> Judge:
    def judge(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    return judge


@contextmanager
def judge_at(path: Path, judge: Judge) -> Iterator[None]:
    """Serve one connection with `judge`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(PATIENCE_S)

        def serve() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    judge(connection)
            except OSError:
                return  # the helper left before the answer, which some tests want

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_S)
            path.unlink()


def run_hook(path: Path, call: bytes = CALL, seconds: int = 10) -> subprocess.CompletedProcess[bytes]:
    words = [str(helper_path()), "hook", "--seconds", str(seconds), "--socket", str(path)]
    return subprocess.run(words, input=call, capture_output=True, timeout=PATIENCE_S, check=False)


def assert_refused(done: subprocess.CompletedProcess[bytes], because: str) -> None:
    assert done.returncode == 2
    assert because in done.stderr.decode()
    assert done.stderr.strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.sock"


@pytest.mark.parametrize("answer", [b'{"allow": true}', b' {"message":"", "allow":true}\r\n'])
def test_a_clear_yes_lets_the_call_pass_in_silence(path: Path, answer: bytes) -> None:
    with judge_at(path, answering(http(answer))):
        done = run_hook(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_judge_gets_exactly_what_the_worker_said(path: Path) -> None:
    seen: list[bytes] = []

    def judge(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(http(b'{"allow": true}'))

    call = json.dumps({"tool_input": {"command": "x" * 900_000}, "odd": "\u20ac\u0000"}).encode()
    with judge_at(path, judge):
        assert run_hook(path, call).returncode == 0
    assert seen == [call]


def test_a_no_shows_the_judges_message(path: Path) -> None:
    message = 'Not "here":\tthe grant\nallows shop/ \u2014 \u00e4, \U0001f40d raw'
    answer = json.dumps({"allow": False, "message": message}, ensure_ascii=False).encode()
    with judge_at(path, answering(http(answer))):
        done = run_hook(path)
    assert_refused(done, 'Not "here": the grant\nallows shop/ \u2014 \u00e4, \U0001f40d raw\n')


@pytest.mark.parametrize("message", ["", " \\n ", "\\u001b\\u0000"])
def test_a_no_without_a_reason_still_says_something(path: Path, message: str) -> None:
    with judge_at(path, answering(http(f'{{"allow": false, "message": "{message}"}}'.encode()))):
        assert_refused(run_hook(path), "Refused by the role's permissions.")


def test_no_control_character_of_a_message_reaches_the_worker(path: Path) -> None:
    with judge_at(path, answering(http(b'{"allow": false, "message": "a\\u001b[2Jb\\u009bc\\r\\u0007"}'))):
        assert run_hook(path).stderr == b"a [2Jb c  \n"


def test_a_long_message_is_cut(path: Path) -> None:
    with judge_at(path, answering(http(b'{"allow": false, "message": "' + b"x" * 20000 + b'"}'))):
        done = run_hook(path)
    assert done.returncode == 2
    assert len(done.stderr) == 8192


def test_no_socket_is_a_refusal(path: Path) -> None:
    assert_refused(run_hook(path), "cannot be reached")


def test_nobody_behind_the_socket_is_a_refusal(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    assert_refused(run_hook(path), "cannot be reached")


def test_a_judge_that_says_nothing_is_refused_by_our_own_clock(path: Path) -> None:
    with judge_at(path, lambda connection: assert_ends(connection)):
        assert_refused(run_hook(path, seconds=1), "in time")


def assert_ends(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)


def test_a_judge_that_dribbles_is_refused_by_our_own_clock(path: Path) -> None:
    def judge(connection: socket.socket) -> None:
        read_request(connection)
        connection.settimeout(0.05)
        for byte in http(b'{"allow": true}')[:-1].ljust(400):
            connection.sendall(bytes([byte]))
            try:
                connection.recv(1)
                return
            except TimeoutError:
                continue

    with judge_at(path, judge):
        assert_refused(run_hook(path, seconds=1), "in time")


def test_input_that_never_ends_is_refused_by_our_own_clock(path: Path) -> None:
    words = [str(helper_path()), "hook", "--seconds", "1", "--socket", str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert b"in time" in process.stderr.read()
        assert process.wait(PATIENCE_S) == 2


def test_input_over_a_mebibyte_is_refused(path: Path) -> None:
    assert_refused(run_hook(path, b"x" * (1024 * 1024 + 1)), "over 1 MiB")


NONSENSE = {
    "closed without an answer": b"",
    "closed in the head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "closed in the body": http(b'{"allow": true}')[:-1],
    "more than announced": http(b'{"allow": true}') + b" ",
    "no length": b'HTTP/1.1 200 OK\r\n\r\n{"allow": true}',
    "a length in the body": b'HTTP/1.1 200 OK\r\n\r\n{"allow": true}\r\ncontent-length: 0',
    "chunks": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\r\n{"allow": true}\r\n0\r\n\r\n',
    "an error": http(b'{"allow": true}', "500 Oh"),
    "a redirect": http(b'{"allow": true}', "302 Found"),
    "not HTTP": b'{"allow": true}',
    "no JSON": http(b"true"),
    "an empty object": http(b"{}"),
    "an array": http(b'[{"allow": true}]'),
    "a word": http(b'{"allow": "true"}'),
    "a number": http(b'{"allow": 1}'),
    "null": http(b'{"allow": null}'),
    "almost true": http(b'{"allow": trueish}'),
    "another key": http(b'{"allow": true, "but": false}'),
    "both": http(b'{"allow": true, "allow": false}'),
    "trailing comma": http(b'{"allow": true,}'),
    "trailing text": http(b'{"allow": true} {"allow": false}'),
    "cut": http(b'{"allow": true'),
    "a zero byte": http(b'{"allow": true}\x00'),
    "an escaped key with a half pair": http(b'{"all\\ud800ow": true}'),
    "a bad escape": http(b'{"message": "\\x", "allow": true}'),
    "a cut escape": http(b'{"allow": true, "message": "\\u00'),
    "too large": http(b'{"allow": true, "message": "' + b"x" * 70000 + b'"}'),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_an_answer_that_is_not_exactly_right_is_a_refusal(path: Path, answer: bytes) -> None:
    with judge_at(path, answering(answer)):
        assert_refused(run_hook(path), "Refused: ")


def test_a_judge_that_closes_before_it_reads_is_a_refusal(path: Path) -> None:
    with judge_at(path, lambda connection: connection.close()):
        assert_refused(run_hook(path, b"x" * 500_000), "Refused: ")


@given(body=st.binary(max_size=60).map(lambda noise: b'{"allow": true' + noise))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_what_strict_json_reads_as_a_yes_is_a_yes(path: Path, body: bytes) -> None:
    with judge_at(path, answering(http(body))):
        done = run_hook(path)
    if done.returncode == 0:
        assert json.loads(body).get("allow") is True
    else:
        assert_refused(done, "")


@pytest.mark.parametrize("words", [["hook", "--seconds", "0"], ["hook", "--what"], ["hook", "extra"]])
def test_a_hook_called_wrongly_refuses(words: list[str]) -> None:
    done = subprocess.run([str(helper_path()), *words], capture_output=True, timeout=PATIENCE_S, check=False)
    assert_refused(done, "usage")
