"""The permission file on disk: loaded, watched, and swapped as a whole.

Below: `permission_file`, watchfiles. Above: the bridge's assembly, which records `policy.loaded` and `policy.refused`
in the two callbacks. A version that is bad, half-written or gone changes nothing: the last good one stays in force, and
the problem is reported once. It decides nothing; whoever does reads `permissions` at each decision.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
from watchfiles import awatch

from bridge.policy.permission_file import MAX_FILE_BYTES, Problem, ReadPolicy, built_in_permissions, read_policy
from bridge.policy.permission_set import PermissionSet

SETTLE_MS: Final = 50
"""Two readings this far apart have to agree: a file cut off in mid-write can be valid and lack its last deny."""

RECHECK_MS: Final = 5000
"""The file is read this often even without a notice, for file systems and links that send none."""

_WATCH_STEP_MS: Final = 50
_WATCH_DEBOUNCE_MS: Final = 400

OnLoaded = Callable[[PermissionSet], Awaitable[None]]
OnRefused = Callable[[tuple[Problem, ...]], Awaitable[None]]


class PermissionFileError(Exception):
    """A permission file that cannot be used; `problems` has each place, reason and mend."""

    def __init__(self, path: Path, problems: tuple[Problem, ...]) -> None:
        self.path = path
        self.problems = problems
        lines = (f"{path}:{p.line}:{p.column}: {p.message}. {p.mend}" for p in problems)
        super().__init__("\n".join(lines))


class PermissionSource:
    """Holds the version in force. Without a path it is the built-in role `default`, for good.

    Raises `PermissionFileError` when the first version is bad: there is no last good one to fall back to.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._permissions = built_in_permissions() if path is None else _first(path)
        self._reported: tuple[Problem, ...] = ()

    @property
    def permissions(self) -> PermissionSet:
        """The version in force now."""
        return self._permissions

    async def watch(self, on_loaded: OnLoaded, on_refused: OnRefused) -> None:
        """Follow the file until cancelled. A new good version is in force before `on_loaded` is called."""
        if self.path is None:
            return
        # The folder and not the file: editors and deployment tools replace files by renaming.
        folders = {self.path.absolute().parent, self.path.resolve().parent}
        await self._check(on_loaded, on_refused)
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_set_at_end, stop)
            async for _ in awatch(
                *folders,
                watch_filter=None,
                recursive=False,
                step=_WATCH_STEP_MS,
                debounce=_WATCH_DEBOUNCE_MS,
                rust_timeout=RECHECK_MS,
                yield_on_timeout=True,
                ignore_permission_denied=True,
                stop_event=stop,
            ):
                await self._check(on_loaded, on_refused)

    async def _check(self, on_loaded: OnLoaded, on_refused: OnRefused) -> None:
        assert self.path is not None
        read = await _settled(self.path, self._permissions.digest)
        if read.permissions is None:
            if read.problems != self._reported:
                self._reported = read.problems
                await on_refused(read.problems)
            return
        self._reported = ()
        if read.permissions.digest != self._permissions.digest:
            self._permissions = read.permissions
            await on_loaded(read.permissions)


def load_policy(path: Path) -> ReadPolicy:
    """Read a permission file from disk. Never raises; at most the size limit and one byte is read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problem = Problem(1, 1, f"the file cannot be read: {error.strerror}", "Check its path and its rights.")
        return ReadPolicy(None, (problem,))
    return read_policy(content)


async def _set_at_end(stop: anyio.Event) -> None:
    """The watcher's thread looks at `stop` every step; without it a cancellation would wait for its time-out."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()


def _first(path: Path) -> PermissionSet:
    read = load_policy(path)
    if read.permissions is None:
        raise PermissionFileError(path, read.problems)
    return read.permissions


async def _settled(path: Path, digest_in_force: str) -> ReadPolicy:
    """Read until two readings agree; one that agrees with the version in force needs no second."""
    before = await anyio.to_thread.run_sync(load_policy, path)
    while before.permissions is None or before.permissions.digest != digest_in_force:
        await anyio.sleep(SETTLE_MS / 1000)
        after = await anyio.to_thread.run_sync(load_policy, path)
        if after == before:
            break
        before = after
    return before
