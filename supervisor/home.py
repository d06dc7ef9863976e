"""Where the state lives: `$MXS_HOME`, by default the platform's user state folder. Leaf of `supervisor`.

Every path that more than one file needs is named here once. Folders are made with mode 0700.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

LONGEST_SOCKET_PATH = 107
"""Bytes of a unix socket's path that Linux takes (`sun_path` less its closing zero)."""


def state_home() -> Path:
    """`$MXS_HOME` or the platform's user state folder for `mxs`; absolute, not made here."""
    named = os.environ.get("MXS_HOME")
    return Path(named).expanduser().absolute() if named else platformdirs.user_state_path("mxs")


@dataclass(frozen=True)
class StateFolder:
    """The layout below one `$MXS_HOME`."""

    root: Path

    @property
    def run(self) -> Path:
        """Sockets and the lock; empty when no supervisor runs."""
        return self.root / "run"

    @property
    def control_socket(self) -> Path:
        """Where the supervisor's control API listens."""
        return self.run / "supervisor.sock"

    @property
    def gateway_socket(self) -> Path:
        """Where the gateway's control API listens."""
        return self.run / "gateway.sock"

    @property
    def bridge_socket(self) -> Path:
        """Where callers reach the bridge."""
        return self.run / "bridge.sock"

    @property
    def lock(self) -> Path:
        """Held by the one supervisor of this state folder."""
        return self.root / "supervisor.lock"

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.root / "audit"

    @property
    def keys(self) -> Path:
        """The audit log's signing key, apart from the log."""
        return self.root / "keys"

    @property
    def logs(self) -> Path:
        """Standard error of the supervisor and its children."""
        return self.root / "log"

    @property
    def workers(self) -> Path:
        """One folder a worker."""
        return self.root / "workers"

    @property
    def outbox(self) -> Path:
        """Records that wait for the bridge."""
        return self.root / "outbox"

    @property
    def trusted(self) -> Path:
        """Digests of the configuration files a person trusted."""
        return self.root / "trusted.json"

    def worker(self, worker_id: str) -> "WorkerFolder":
        """The folder of one worker."""
        return WorkerFolder(self.workers / worker_id, self.run / f"{worker_id}.sock")

    def make(self) -> None:
        """Make the folders that every start needs."""
        for folder in (self.root, self.run, self.logs, self.workers, self.outbox):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@dataclass(frozen=True)
class WorkerFolder:
    """The layout of one worker's folder; `socket` is where it reaches the gateway."""

    root: Path
    socket: Path

    @property
    def record(self) -> Path:
        """What is known of the worker, as JSON."""
        return self.root / "worker.json"

    @property
    def events(self) -> Path:
        """What was streamed, one JSON object a line."""
        return self.root / "events.jsonl"

    @property
    def repo(self) -> Path:
        """The clone and the trusted git directory (supervisor.repo)."""
        return self.root / "repo"

    @property
    def pinned(self) -> Path:
        """Files the worker sees read-only."""
        return self.root / "pinned"
