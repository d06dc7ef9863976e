"""A run that is still going on: the real command started beside the test, its events read as they come."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

EVENT_TIMEOUT_S = 60
END_TIMEOUT_S = 60


class LiveRun:
    """`mxs run … --json` as a process. Every wait is bounded, and ends when its event comes."""

    def __init__(self, mxs, kind, words):
        self._process: Any = subprocess.Popen(
            [sys.executable, "-P", "-m", "supervisor", "run", kind, "Do it.", "--json", "--no-input", *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
            env=mxs.environment(),
        )  # fmt: skip
        self.events = []
        self._ended = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, kind, nth=0, **fields):
        """The `nth` event (from 0) of this type with these fields."""

        def found():
            return [e for e in list(self.events) if e["type"] == kind and fields.items() <= e.items()][nth:]

        with self._more:
            self._more.wait_for(lambda: found() or self._ended, EVENT_TIMEOUT_S)
        assert found(), f"no event {kind} {fields} in {self.events}"
        return found()[0]

    def wait_until_waiting(self):
        """The second call of the script was allowed: what the first one did is done."""
        self.wait_for("call.result", op="shell.exec", outcome="ok")
        return self.wait_for("call", op="shell.exec", nth=1)

    @property
    def pid(self):
        """The command's own process."""
        return self._process.pid

    @property
    def worker(self):
        """The worker's id."""
        return self.wait_for("state")["worker"]

    @property
    def container(self):
        """The container's name."""
        return f"mxs-{self.worker}"

    def interrupt(self):
        """What Ctrl-C does to the command."""
        self._process.send_signal(signal.SIGINT)

    def end(self):
        """Wait for the command's end: its exit code, its last event, what it said on standard error."""
        code = self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        return code, self.events[-1] if self.events else None, self._process.stderr.read()

    def _read(self):
        for line in self._process.stdout:
            with self._more:
                self.events.append(json.loads(line))
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def close(self):
        """End the command if the test left it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        self._process.stdout.close()
        self._process.stderr.close()


@contextmanager
def live_run(mxs, kind, *words):
    """Start a run and end it with the test."""
    run = LiveRun(mxs, kind, words)
    try:
        yield run
    finally:
        run.close()


def containers_of(mxs):
    """The names of all containers that this state folder owns, in whatever state."""
    return _docker("ps", "-a", "--filter", f"label=mxs.owner={mxs.home}", "--format", "{{.Names}}").split()


def worker_processes(container):
    """Host process ids of what runs in a container, by the name of its program."""
    listed = _docker("top", container, "-eo", "pid,comm").splitlines()[1:]
    return {name: int(pid) for pid, name in (line.split(None, 1) for line in listed)}


def status(mxs):
    """`mxs status --json`."""
    return json.loads(mxs("status", "--json", check=0).stdout)


def kill(pid):
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


def processes_naming(text):
    """Command lines of the processes that name `text`, but for this one's own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found


def _docker(*words):
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


def container_processes(container):
    """Host process ids of everything that runs in a container."""
    return list(worker_processes(container).values())


def process_texts():
    """What each process of this machine was started with: its words and its variables."""
    texts = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            texts[int(folder.name)] = ((folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()).decode(
                errors="replace"
            )
    return texts


def inspected(container):
    """`docker inspect` of a container that is there."""
    return json.loads(_docker("inspect", container))[0]
