"""Parts for the tests of the walls: a real engine, a real image, a place to run in."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxes.docker_sandbox import DockerSandboxes
from tests.sandboxes.place import Place, place_in


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A workspace and a gateway socket."""
    with place_in(tmp_path) as made:
        yield made


@pytest.fixture
async def sandboxes() -> AsyncIterator[DockerSandboxes]:
    """The engine of this machine, which `make test` has set up."""
    made = DockerSandboxes()
    yield made
    await made.engine.aclose()
