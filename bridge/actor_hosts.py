"""The actor hosts of this bridge: one per path, started on request, watched until the bridge ends.

Below: `bus.host_process`, `bus.mounted_buses`. Above: the admin channel. Knows no permission. A host whose mounts
collide with another source is stopped again and refused; the revisions of what it holds are told to `on_revision`.
"""

import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from bridge.bus.host_process import HostProcess, HostSpec
from bridge.bus.mounted_buses import MountedBuses
from bridge.bus.stream_bus import HostListing
from bridge.contract import strict_json
from bridge.contract.declarations import ActorDeclaration
from bridge.contract.errors import MatrixError

MAX_HOSTS: Final = 64

OnRevision = Callable[[str, str, str], Coroutine[None, None, None]]
"""(target, `sha256:<hex>` of its declaration, source) -> None."""


@dataclass(frozen=True)
class AddedActors:
    """The mounts of a source, and what its owner should know: what did not load, which descriptions are missing."""

    mounts: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(eq=False)
class _Running:
    host: HostProcess
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class ActorHosts:
    """Adds, reloads and ends hosts. `tasks` is the group they run in."""

    def __init__(self, root: str, buses: MountedBuses, tasks: TaskGroup, on_revision: OnRevision) -> None:
        self._root = root
        self._buses = buses
        self._tasks = tasks
        self._on_revision = on_revision
        self._running: dict[Path, _Running] = {}
        self._adding = anyio.Lock()
        self._revisions: dict[str, str] = {}

    async def add(self, path: Path, *, guarded: bool) -> AddedActors:
        """Host the actors at `path`; the same path again is the same host, and guarded once is guarded for good.

        Raises `MatrixError`: INVALID_ARGUMENTS (no such path, a mount in use), ACTOR_UNAVAILABLE, LIMIT.
        """
        where = await anyio.to_thread.run_sync(path.resolve)
        if not await anyio.Path(where).exists():
            raise MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"There is no folder or file of actors at {str(path)!r}.")
        async with self._adding:
            known = self._running.get(where)
            if known is None:
                known = await self._start(where, guarded=guarded)
            elif guarded:
                await known.host.guard()
        return _added(known.host.listing)

    async def reload(self, target: str | None) -> AddedActors:
        """Load what changed in the host of `target`, or in all hosts. Raises `MatrixError`, TARGET_NOT_FOUND too."""
        hosts = [running.host for running in self._running.values()]
        if target is not None:
            hosts = [host for host in hosts if host.declaration(target) is not None]
            if not hosts:
                raise MatrixError("MX_AGENT_TARGET_NOT_FOUND", f"No actor host holds {target!r}. Nothing was reloaded.")
        listings = [await host.reload() for host in hosts]
        told = [_added(listing) for listing in listings]
        hidden = tuple(error.message for error in self._buses.hidden())
        return AddedActors(
            tuple(mount for added in told for mount in added.mounts),
            (*(warning for added in told for warning in added.warnings), *hidden),
        )

    async def end_if_hung(self, target: str) -> None:
        """After a call timed out: kill the host of `target` where it no longer answers at all."""
        for running in self._running.values():
            if running.host.declaration(target) is not None:
                await running.host.end_if_hung()

    async def _start(self, where: Path, *, guarded: bool) -> _Running:
        if len(self._running) >= MAX_HOSTS:
            raise MatrixError("MX_AGENT_LIMIT", f"{MAX_HOSTS} actor hosts are running already.")
        spec = HostSpec(where, self._root, guarded=guarded)
        running = _Running(HostProcess(spec, lambda listing: self._note_revisions(where, listing)))
        failure = await self._tasks.start(_run, running)
        if failure is not None:
            raise failure
        try:
            self._buses.add(str(where), running.host)
        except MatrixError:
            running.scope.cancel()
            raise
        self._running[where] = running
        return running

    def _note_revisions(self, where: Path, listing: HostListing) -> None:
        for mount, declaration in listing.declarations.items():
            revision = revision_of(declaration)
            if self._revisions.get(mount) != revision:
                self._revisions[mount] = revision
                self._tasks.start_soon(self._on_revision, mount, revision, str(where))


def revision_of(declaration: ActorDeclaration) -> str:
    """The digest of what an actor declares."""
    text = strict_json.dumps(declaration.to_introspect(""))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


async def _run(running: _Running, *, task_status: TaskStatus[MatrixError | None]) -> None:
    """Keep the host alive; a first start that fails is told to whoever waits, and ends nothing else."""
    with running.scope:
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(running.host.run)
                task_status.started(None)
        except* MatrixError as group:
            task_status.started(_first(group))


def _first(group: BaseExceptionGroup[MatrixError]) -> MatrixError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _added(listing: HostListing) -> AddedActors:
    not_loaded = [
        f"{problem.get('file')}:{problem.get('line')}: {problem.get('message')}" for problem in listing.problems
    ]
    undescribed = [
        f"{mount}: no description at {where}"
        for mount, declaration in listing.declarations.items()
        for where in declaration.missing_descriptions()
    ]
    return AddedActors(tuple(sorted(listing.declarations)), (*not_loaded, *undescribed))
