"""The one door through which the host runs git.

Everything here is fixed words and data on standard input: no shell, no hooks, no file system monitor, no pager, no
editor, no prompt, no network, bounded time and bounded output. It knows nothing of workers. Whoever calls it never
names a folder that a worker can write, neither as the current folder nor as work tree nor as git directory
(architecture.md, decision 10). Above it stands everything else in `supervisor.repo`; below it the `git` program.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process

from supervisor.repo.repository_error import RepositoryError

QUICK_S = 60.0
"""For commands whose work does not grow with the repository's history; a network disk may still be slow."""
LONG_S = 900.0
"""For commands that read or write a whole tree."""
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""A listing of a million paths fits; more is refused rather than held in memory."""
MAX_ERROR_BYTES = 64 * 1024

WORKER_NAME = "worker"
WORKER_EMAIL = "worker@mxs.invalid"

_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.logAllRefUpdates=false",
    "core.alternateRefsCommand=true",
    "core.splitIndex=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "safe.directory=*",
    "submodule.recurse=false",
    "advice.detachedHead=false",
)
_ISOLATED_CONFIG = ("core.attributesFile=/dev/null", "core.excludesFile=/dev/null")
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": WORKER_NAME,
    "GIT_AUTHOR_EMAIL": WORKER_EMAIL,
    "GIT_COMMITTER_NAME": WORKER_NAME,
    "GIT_COMMITTER_EMAIL": WORKER_EMAIL,
}
_ISOLATED_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
}
_USERS_VARIABLES = ("HOME", "XDG_CONFIG_HOME")
_UNSAFE_ON_TERMINALS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class GitFailedError(RepositoryError):
    """A git command ended with `returncode`, or over a bound (None). `stderr` is git's own text, safe to print."""

    def __init__(self, command: str, returncode: int | None, stderr: str) -> None:
        self.command = command
        self.returncode = returncode
        self.stderr = stderr
        said = stderr.strip() or f"it ended with {returncode}"
        super().__init__(f"git {command} failed: {said}", "Run `git fsck` in the repository, and look at its disk.")


@dataclass(frozen=True)
class Git:
    """git on one git directory. `users_config`: the user's own global configuration counts, because the command
    reads or writes the user's work tree and the user's filters belong to it; hooks and the rest stay off."""

    git_dir: Path
    work_tree: Path | None = None
    users_config: bool = False
    config: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_environment(self, **variables: str) -> "Git":
        """The same directory, with more variables (an index file, an object folder)."""
        return replace(self, environment={**self.environment, **variables})

    async def run(
        self,
        *words: str | bytes,
        stdin: bytes | int = b"",
        stdout: int | None = None,
        timeout_s: float = QUICK_S,
        ok: tuple[int, ...] = (0,),
    ) -> bytes:
        """Run one command to its end and return what it wrote. `stdin` is bytes or a file descriptor to read from;
        with `stdout`, a descriptor, the output goes there. Raises `GitFailedError`."""
        return (await self.call(*words, stdin=stdin, stdout=stdout, timeout_s=timeout_s, ok=ok))[1]

    async def call(
        self,
        *words: str | bytes,
        stdin: bytes | int = b"",
        stdout: int | None = None,
        timeout_s: float = QUICK_S,
        ok: tuple[int, ...] = (0,),
    ) -> tuple[int, bytes]:
        """Like `run`, and also returns the exit code, for commands where it is an answer."""
        command = [*self._command(), *words]
        return await run_words(command, self._environment(), self.work_tree or Path("/"), stdin, stdout, timeout_s, ok)

    async def line(self, *words: str | bytes, ok: tuple[int, ...] = (0,)) -> str | None:
        """The one line that a command prints, without its newline; None if it printed nothing."""
        text = os.fsdecode(await self.run(*words, ok=ok))
        return text.removesuffix("\n") or None

    def _command(self) -> list[str | bytes]:
        place = [f"--git-dir={self.git_dir}"]
        if self.work_tree is not None:
            place.append(f"--work-tree={self.work_tree}")
        return ["git", *_config_words(self.users_config, self.config), *place]

    def _environment(self) -> dict[str, str]:
        return {**_base_environment(self.users_config), **self.environment}


async def discover(folder: Path, *words: str) -> str | None:
    """Ask `git rev-parse` about the repository that holds `folder`, one answer a call; None where it says no."""
    command = ["git", *_config_words(users_config=False), "rev-parse", *words]
    code, out = await run_words(command, _base_environment(users_config=False), folder, b"", None, QUICK_S, (0, 1, 128))
    return os.fsdecode(out).removesuffix("\n") if code == 0 else None


async def init(git_dir: Path, object_format: str, *, bare: bool, branch: str = "main") -> Git:
    """Make an empty repository without template: no sample hooks, no description, nothing but what git needs."""
    place = str(git_dir if bare else git_dir.parent)
    words = ["init", "-q", "--template=", f"--object-format={object_format}", f"--initial-branch={branch}"]
    kind = ["--bare"] if bare else []
    command = ["git", *_config_words(users_config=False), *words, *kind, "--", place]
    await run_words(command, _base_environment(users_config=False), Path("/"), b"", None, QUICK_S, (0,))
    return Git(git_dir)


def _config_words(users_config: bool, more: tuple[str, ...] = ()) -> list[str]:
    settings = (*_CONFIG, *(() if users_config else _ISOLATED_CONFIG), *more)
    return ["--no-pager", *(word for setting in settings for word in ("-c", setting))]


def _base_environment(users_config: bool) -> dict[str, str]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT}
    if not users_config:
        return environment | _ISOLATED_ENVIRONMENT
    return environment | {name: os.environ[name] for name in _USERS_VARIABLES if name in os.environ}


async def run_words(
    command: list[str] | list[str | bytes],
    environment: Mapping[str, str],
    folder: Path,
    stdin: bytes | int,
    stdout: int | None,
    timeout_s: float,
    ok: tuple[int, ...],
) -> tuple[int, bytes]:
    """Run `command` in `folder` within the bounds. Returns (exit code, output); raises `GitFailedError`."""
    name = _command_name(command)
    try:
        with anyio.fail_after(timeout_s):
            process = await anyio.open_process(
                [os.fsencode(word) for word in command],
                stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=subprocess.PIPE if stdout is None else stdout,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
            )
            async with process:
                out, err = await _exchange(process, stdin if isinstance(stdin, bytes) else None, name)
                code = await process.wait()
    except FileNotFoundError as missing:
        raise RepositoryError("The program 'git' was not found.", "Install git 2.39 or newer.", 3) from missing
    except TimeoutError as late:
        raise GitFailedError(name, None, f"it took longer than {timeout_s:g} s") from late
    if code not in ok:
        raise GitFailedError(name, code, _UNSAFE_ON_TERMINALS.sub("?", err.decode("utf-8", "replace")))
    return code, out


def _command_name(command: list[str] | list[str | bytes]) -> str:
    words = iter([os.fsdecode(word) for word in command[1:]])
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return "?"


async def _exchange(process: Process, stdin: bytes | None, name: str) -> tuple[bytes, bytes]:
    out, err = bytearray(), bytearray()

    async def feed() -> None:
        assert process.stdin is not None
        try:
            await process.stdin.send(stdin or b"")
            await process.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, BrokenPipeError, ConnectionResetError):
            return  # git ended before it read everything; its exit code says why

    async def collect(stream: ByteReceiveStream, into: bytearray, limit: int, *, strict: bool) -> None:
        async for chunk in stream:
            if len(into) + len(chunk) <= limit:
                into.extend(chunk)
            elif strict:
                process.kill()
                raise GitFailedError(name, None, f"it printed more than {limit} bytes")

    try:
        async with anyio.create_task_group() as group:
            if stdin is not None:
                group.start_soon(feed)
            if process.stdout is not None:
                group.start_soon(lambda: collect(_open(process.stdout), out, MAX_OUTPUT_BYTES, strict=True))
            group.start_soon(lambda: collect(_open(process.stderr), err, MAX_ERROR_BYTES, strict=False))
    except* GitFailedError as over:
        raise over.exceptions[0] from None
    return bytes(out), bytes(err)


def _open(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    assert stream is not None
    return stream
