"""Finds and removes containers that a dead supervisor left. Only those that carry this owner's label, compared whole.

Names are never looked at: somebody else's `mxs-…` container is somebody else's. Above: the supervisor, which says which
workers it still has.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from sandboxes.docker_engine import DockerEngine, labelled_containers, remove_container
from sandboxes.docker_options import OWNER_LABEL, WORKER_LABEL


@dataclass(frozen=True)
class OwnedContainer:
    """One container of an owner, as the engine lists it."""

    container_id: str
    worker_id: str
    is_running: bool


async def owned_containers(engine: DockerEngine, owner: str) -> list[OwnedContainer]:
    """All containers of `owner`, whatever their state. Raises `SandboxError`."""
    entries = await engine.call("list its containers", partial(labelled_containers, OWNER_LABEL, owner))
    return [
        OwnedContainer(entry["Id"], entry["Labels"].get(WORKER_LABEL, ""), entry["State"] == "running")
        for entry in entries
    ]


async def reap(engine: DockerEngine, owner: str, keep: Collection[str] = ()) -> list[str]:
    """Remove every container of `owner` but those of the workers in `keep`; returns the worker ids removed."""
    removed = []
    for container in await owned_containers(engine, owner):
        if container.worker_id in keep:
            continue
        await engine.call("remove a container", partial(remove_container, container.container_id))
        removed.append(container.worker_id)
    return removed
