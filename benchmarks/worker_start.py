"""From nothing to the answered initialize: the bare program under `docker run`, against a worker of ours, in turn.

The bare side is what a person would type: the same image, the same program, a network-less container, its first request
answered. Ours is everything `mxs run` does up to the same point: clone, capability, gateway socket, hardened container,
pins, handshake. Read from the run's own events.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import claude_agent_sdk
import codex_cli_bin

from benchmarks.figures import Figure
from benchmarks.product import Product, product
from sandboxes import worker_image_tag

ROUNDS = 7
ANSWER_TIMEOUT_S = 30
DONE = "steps: [{say: Done.}]\n"

CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
CODEX = Path(codex_cli_bin.__file__).parent
CLAUDE_FLAGS = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
CLAUDE_HELLO = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", "hooks": None}}
CODEX_HELLO = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "b", "title": "b", "version": "0"}}}


def measure() -> list[Figure]:
    """The ratio of medians per kind, and both medians."""
    with product() as made:
        (made.home.parent / "done.yaml").write_text(DONE)
        return [*_compare(made, "claude", _bare_claude), *_compare(made, "codex", _bare_codex)]


def _compare(made: Product, kind: str, bare: Callable[[], float]) -> list[Figure]:
    bare(), _ours(made, kind)
    pairs = [(bare(), _ours(made, kind)) for _ in range(ROUNDS)]
    bare_ms, ours_ms = (statistics.median(side) * 1000 for side in zip(*pairs, strict=True))
    return [
        Figure(f"{kind}: start to answered initialize, ours / bare docker run", ours_ms / bare_ms, "x", aim=1.3),
        Figure(f"{kind}: bare docker run", bare_ms, "ms"),
        Figure(f"{kind}: ours", ours_ms, "ms"),
    ]


def _ours(made: Product, kind: str) -> float:
    """Seconds from the request to the connected worker, by the times of the run's own events."""
    events = made.run(kind, made.home.parent / "done.yaml")
    connected = next(event for event in events if event.get("phase") == "connect")
    return float(connected["sinceRequestMs"]) / 1000


def _bare_claude() -> float:
    mount = ("-v", f"{CLAUDE}:/opt/claude:ro", "-e", "ANTHROPIC_API_KEY=placeholder")
    nonessential = (
        "-e",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:8080",
        "-e",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    )
    return _time_first_answer((*mount, *nonessential), ("/opt/claude", *CLAUDE_FLAGS), CLAUDE_HELLO)


def _bare_codex() -> float:
    words = ("/opt/codex/bin/codex", "app-server", "--listen", "stdio://")
    return _time_first_answer(("-v", f"{CODEX}:/opt/codex:ro"), words, CODEX_HELLO)


def _time_first_answer(options: tuple[str, ...], words: tuple[str, ...], hello: dict[str, Any]) -> float:
    name = f"mxs-bench-bare-{time.monotonic_ns()}"
    run = (
        "docker",
        "run",
        "--rm",
        "-i",
        "--network",
        "none",
        "--name",
        name,
        "--tmpfs",
        "/tmp:exec",
        "-e",
        "HOME=/tmp",
    )
    began = time.monotonic()
    argv = [*run, *options, worker_image_tag(), *words]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(json.dumps(hello) + "\n")
        started.stdin.flush()
        answered = any("response" in line or '"result"' in line for line in iter(started.stdout.readline, ""))
        took = time.monotonic() - began
        subprocess.run(["docker", "kill", name], capture_output=True, check=False, timeout=ANSWER_TIMEOUT_S)
    assert answered, "the bare program did not answer"
    return took
