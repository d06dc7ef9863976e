"""The gateway's workers: opens their sockets, counts for them, closes them. Assembles the parts of one worker.

Below: everything of the worker side. Above: `control`. An async context manager; leaving it closes every socket.
"""

from dataclasses import dataclass
from typing import Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from sandboxes.gateway.event_feed import EventFeed
from sandboxes.gateway.key_ring import KeyRing
from sandboxes.gateway.peer_socket import PeerSocket
from sandboxes.gateway.providers import ModelProvider, RealProvider, ScriptProvider
from sandboxes.gateway.script.script_file import parse_script
from sandboxes.gateway.script.scripted_provider import CODEX_MODELS, ScriptedProvider
from sandboxes.gateway.upstream import Upstreams
from sandboxes.gateway.worker_gate import WorkerGate
from sandboxes.gateway.worker_opening import Failure, ScriptState, WorkerFigures, WorkerOpened, WorkerOpening
from sandboxes.gateway.worker_reports import WorkerReports


class WorkerOpenError(Exception):
    """This worker is open already."""


@dataclass(frozen=True)
class _Worker:
    opening: WorkerOpening
    gate: WorkerGate
    script: ScriptedProvider | None
    scope: anyio.CancelScope
    closed: anyio.Event


class Gateway:
    """All workers of one supervisor."""

    def __init__(self) -> None:
        self.feed = EventFeed()
        self.keys = KeyRing()
        self._upstreams = Upstreams()
        self._workers: dict[str, _Worker] = {}
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._upstreams.__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._upstreams.__aexit__(*exception)

    async def open_worker(self, opening: WorkerOpening) -> WorkerOpened:
        """Listen for a worker.

        Raises `WorkerOpenError`, `ScriptFileError`, `EgressEntryError`, `OSError` (the socket cannot be made).
        """
        script = None if opening.script is None else await anyio.to_thread.run_sync(parse_script, opening.script)
        if opening.worker in self._workers:
            raise WorkerOpenError(f"The worker {opening.worker!r} is open already; close it first.")
        scripted = None if script is None else ScriptedProvider(script, opening.kind, opening.tool_names)
        reports = WorkerReports(opening, self.feed)
        gate = WorkerGate(opening, self._provider(opening, scripted, reports), reports)
        listener = PeerSocket(opening.socket, opening.uid, gate.handle, gate.reject)
        worker = _Worker(opening, gate, scripted, anyio.CancelScope(), anyio.Event())
        self._workers[opening.worker] = worker
        if opening.key_handle is not None:
            self.keys.hold(opening.key_handle)
        self._tasks.start_soon(self._serve, worker, listener)
        if script is None or opening.kind == "claude":
            return WorkerOpened()
        return WorkerOpened(codex_surface=script.codex_surface, model=CODEX_MODELS[script.codex_surface])

    def figures(self, worker_id: str) -> WorkerFigures | None:
        """What the worker has used so far; None if it is not open."""
        worker = self._workers.get(worker_id)
        return None if worker is None else _figures(worker)

    async def close_worker(self, worker_id: str) -> WorkerFigures | None:
        """Close the worker's socket and connections; its last figures. The event `closed` is its last."""
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return None
        worker.scope.cancel()
        await worker.closed.wait()
        self.feed.emit(worker_id, "closed", {})
        if worker.opening.key_handle is not None:
            self.keys.release(worker.opening.key_handle)
        return _figures(worker)

    def _provider(
        self, opening: WorkerOpening, scripted: ScriptedProvider | None, reports: WorkerReports
    ) -> ModelProvider:
        if scripted is not None:
            return ScriptProvider(scripted)
        idle_s = opening.infer_timeout_ms / 1000
        waiting = reports.waiting_for_key
        return RealProvider(opening.kind, opening.key_handle, self.keys, self._upstreams, idle_s, waiting)

    async def _serve(self, worker: _Worker, listener: PeerSocket) -> None:
        try:
            with worker.scope:
                await listener.serve()
        finally:
            worker.closed.set()


def _figures(worker: _Worker) -> WorkerFigures:
    script = ScriptState()
    if worker.script is not None:
        error = worker.script.error
        failure = None if error is None else Failure(code=error.code, message=error.message)
        script = ScriptState(finished=worker.script.finished, error=failure)
    return WorkerFigures(inferences=worker.gate.meter.inferences, tokens=worker.gate.meter.tokens, script=script)
