"""The reaper removes what is its owner's, whole label compared, and nothing of anybody else."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from sandboxes import worker_image_tag
from sandboxes.docker_sandbox import DockerSandboxes
from sandboxes.reaper import owned_containers, reap

pytestmark = pytest.mark.anyio
OWNER = "/mxs-test/reaper"


def docker(*words: str) -> str:
    return subprocess.run(("docker", *words), capture_output=True, check=True, timeout=60, text=True).stdout.strip()


def leave_container(name: str, *labels: str) -> str:
    """A running container as a dead supervisor leaves it; returns its id."""
    words = [word for label in labels for word in ("--label", label)]
    return docker("run", "--detach", "--network", "none", "--name", name, *words, worker_image_tag(), "sleep", "300")


Leave = Callable[..., str]


@pytest.fixture
def leave() -> Iterator[Leave]:
    """Leaves containers, and removes at the end what the reaper should not."""
    names: list[str] = []

    def leave_named(name: str, *labels: str) -> str:
        names.append(name)
        return leave_container(name, *labels)

    yield leave_named
    docker("rm", "--force", "--volumes", *names)


async def test_only_the_owners_containers_go(sandboxes: DockerSandboxes, leave: Leave) -> None:
    mine = leave("mxs-test-reap-1", f"mxs.owner={OWNER}", "mxs.worker=test-1")
    kept = leave("mxs-test-reap-2", f"mxs.owner={OWNER}", "mxs.worker=test-2")
    others = [
        leave("mxs-test-reap-3"),
        leave("mxs-test-reap-4", f"mxs.owner={OWNER}2", "mxs.worker=test-1"),
        leave("mxs-test-reap-5", f"mxs.ownership={OWNER}"),
        leave("mxs-test-reap-6", f"mxs.owner={OWNER}/below"),
    ]
    assert {owned.container_id for owned in await owned_containers(sandboxes.engine, OWNER)} == {mine, kept}
    assert await reap(sandboxes.engine, OWNER, keep={"test-2"}) == ["test-1"]
    left = docker("ps", "--quiet", "--no-trunc", "--filter", "name=mxs-test-reap-").split()
    assert set(left) == {kept, *others}


async def test_containers_that_never_started_or_have_ended_go_too(sandboxes: DockerSandboxes, leave: Leave) -> None:
    leave("mxs-test-reap-7", f"mxs.owner={OWNER}/ended", "mxs.worker=test-7")
    docker("kill", "mxs-test-reap-7")
    (ended,) = await owned_containers(sandboxes.engine, f"{OWNER}/ended")
    assert not ended.is_running
    assert await reap(sandboxes.engine, f"{OWNER}/ended") == ["test-7"]
    assert await reap(sandboxes.engine, f"{OWNER}/ended") == []
