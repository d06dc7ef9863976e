"""The command line's end of the control API: finds or starts the supervisor, asks it, follows its events.

Synchronous, because a command does one thing at a time. Keys never pass here: `gateway_keys` hands them to the gateway.
"""

import fcntl
import http.client
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import supervisor
from bridge.contract.json_types import JsonObject
from supervisor.child_process import CA_VARIABLES, PROXY_VARIABLES, child_environment, python_words
from supervisor.home import LONGEST_SOCKET_PATH, StateFolder
from supervisor.refusal import EXIT_UNAVAILABLE, Refusal

START_TIMEOUT_S: Final = 30.0
DOWN_TIMEOUT_S: Final = 60.0
"""Longer than a supervisor takes to stop its runs and then its children."""

POLL_S: Final = 0.02
REQUEST_TIMEOUT_S: Final = 60.0
"""Longer than the slowest request that is not a stream: cloning a large repository is done after the answer."""


END_OF_EVENTS: Final = b"event: end\n"
"""The line after a worker's last event; the API writes it."""


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("supervisor", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class ControlClient:
    """The supervisor of one state folder. The standard library's HTTP, since a command must start at once."""

    def __init__(self, home: StateFolder) -> None:
        self._home = home

    def get(self, path: str) -> JsonObject:
        """The answer to `GET path`. Raises `Refusal`."""
        return self._send("GET", path, None)

    def post(self, path: str, body: JsonObject | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> JsonObject:
        """The answer to `POST path`. Raises `Refusal`."""
        return self._send("POST", path, body or {}, timeout_s)

    def delete(self, path: str) -> JsonObject:
        """The answer to `DELETE path`. Raises `Refusal`."""
        return self._send("DELETE", path, None)

    def bridge(self, method: str, params: JsonObject) -> JsonObject:
        """A method of the bridge that the supervisor passes on (docs/wires.md). Raises `Refusal`."""
        return self.post(f"/bridge/{method}", params)

    def events(self, worker_id: str) -> Iterator[str]:
        """A worker's events from its beginning, one JSON object each, until its last. Raises `Refusal`."""
        with self._asked("GET", f"/workers/{worker_id}/events", None, None) as response:
            for line in iter(response.readline, b""):
                if line == END_OF_EVENTS:
                    return
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ").decode().rstrip("\n")
        raise _gone(self._home)  # a stream that was cut looks like one that ended

    def _send(
        self, method: str, path: str, body: JsonObject | None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> JsonObject:
        with self._asked(method, path, body, timeout_s) as response:
            return cast("JsonObject", json.loads(response.read()))

    @contextmanager
    def _asked(
        self, method: str, path: str, body: JsonObject | None, timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _SocketConnection(self._home.control_socket, timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode())
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise _refusal(response)
            yield response
        except (OSError, http.client.HTTPException) as fault:
            raise _gone(self._home) from fault
        finally:
            connection.close()


def running_supervisor(home: StateFolder) -> ControlClient | None:
    """A client of the supervisor that runs for `home`, or None."""
    if not home.control_socket.exists():
        return None
    client = ControlClient(home)
    try:
        client.get("/status")
    except Refusal:
        return None
    return client


def ensure_supervisor(home: StateFolder, root: str | None) -> ControlClient:
    """The supervisor of `home`, started when none runs. Raises `Refusal`: another version, another root, no start."""
    client = running_supervisor(home) or _start(home, root or "local")
    status = client.get("/status")
    if status.get("version") != supervisor.__version__:
        raise Refusal(
            f"The running supervisor has version {status.get('version')}, this command {supervisor.__version__}.",
            "Run `mxs down`, then this command again.",
            exit_code=EXIT_UNAVAILABLE,
        )
    if root is not None and status.get("root") != root:
        raise Refusal(
            f"The running supervisor has the root {status.get('root')!r}, this command asks for {root!r}.",
            "Run `mxs down` first, or leave --root out.",
        )
    return client


def end_supervisor(client: ControlClient) -> bool:
    """Ask the supervisor to end; True once its process is gone, with everything it had started."""
    process = os.pidfd_open(int(cast("int", client.get("/status")["pid"])))
    try:
        client.post("/down")
        ended, _, _ = select.select([process], [], [], DOWN_TIMEOUT_S)
        return bool(ended)
    finally:
        os.close(process)


def _start(home: StateFolder, root: str) -> ControlClient:
    longest = home.run / "claude-xxxxxx.sock"
    if len(str(longest).encode()) > LONGEST_SOCKET_PATH:
        raise Refusal(
            f"{str(home.root)!r} is too long for the unix sockets in it.",
            "Set MXS_HOME to a folder with a shorter path.",
        )
    home.make()
    process = _spawn(home, root)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if (client := running_supervisor(home)) is not None:
            return client
        if process.poll() and not home.control_socket.exists():
            break
        if process.poll() == 0 and not _is_held(home):  # it gave way to another one, which has ended since
            process = _spawn(home, root)
        time.sleep(POLL_S)
    raise Refusal(
        "The supervisor did not start.",
        f"Its last words are in {home.logs / 'supervisor.log'}.",
        exit_code=EXIT_UNAVAILABLE,
    )


def _spawn(home: StateFolder, root: str) -> "subprocess.Popen[bytes]":
    with (home.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [*python_words("supervisor.daemon"), "--home", str(home.root), "--root", root],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**child_environment(_DAEMON_VARIABLES), "MXS_HOME": str(home.root)},
            start_new_session=True,
            cwd="/",
        )


def _is_held(home: StateFolder) -> bool:
    """Whether some supervisor has the state folder, be it one that is only starting or ending."""
    with home.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


_DAEMON_VARIABLES: Final = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH",
    *PROXY_VARIABLES, *CA_VARIABLES,
)  # fmt: skip


def _gone(home: StateFolder) -> Refusal:
    log = home.logs / "supervisor.log"
    return Refusal(
        "The supervisor does not answer.", f"`mxs up` starts it; its log is {log}.", exit_code=EXIT_UNAVAILABLE
    )


def _refusal(response: http.client.HTTPResponse) -> Refusal:
    try:
        return Refusal.from_json(json.loads(response.read())["error"])
    except (ValueError, KeyError, TypeError):
        mend = "See its log in $MXS_HOME/log."
        return Refusal(f"The supervisor answered {response.status}.", mend, exit_code=EXIT_UNAVAILABLE)
