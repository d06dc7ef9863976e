"""The folders and files of actors that the supervisor was given: until `down`, over every restart of the bridge.

Actors inside a repository that a worker was given are guarded: what changes in them is loaded only when a person asks
(architecture.md, decision 9). Above: `supervisor`. Below: a word to the bridge.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from supervisor.repo import work_tree_around
from supervisor.worker_store import WorkerStore

AskBridge = Callable[[str, JsonObject], Awaitable[JsonObject]]


class ActorSources:
    """What was given, each path once."""

    def __init__(self, store: WorkerStore, ask: AskBridge) -> None:
        self._store = store
        self._ask = ask
        self._guarded: dict[str, bool] = {}  # by path

    async def add(self, path: str) -> JsonObject:
        """Have the actors at `path` hosted; the bridge's answer. Raises `MatrixError`."""
        guarded = self._is_within_a_repository(path)
        answer = await self._ask("actors.add", {"path": path, "guarded": guarded})
        self._guarded[path] = guarded
        return answer

    async def guard(self) -> None:
        """A worker was given a repository: guard what lies in it from now on. Raises `MatrixError`."""
        for path in [path for path, guarded in self._guarded.items() if not guarded]:
            if self._is_within_a_repository(path):
                await self.add(path)

    async def give_again(self) -> None:
        """To a bridge that knows none of them yet."""
        for path, guarded in self._guarded.items():
            try:
                await self._ask("actors.add", {"path": path, "guarded": guarded})
            except MatrixError:
                continue  # the bridge's log says why; `mxs actors list` shows what is there

    def _is_within_a_repository(self, path: str) -> bool:
        trees = {work_tree_around(Path(record.repo)) for record in self._store.all()}
        return any(Path(path).resolve().is_relative_to(tree) for tree in trees)
