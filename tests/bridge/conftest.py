"""What the tests of the bridge share: a folder of actors, and a running bridge that hosts it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bridge.running_bridge import RunningBridge, run_bridge
from tests.bridge.shop_actors import SHOP


@pytest.fixture
def actors(tmp_path: Path) -> Path:
    """A folder with the shop's module."""
    folder = tmp_path / "actors"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    return folder


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[RunningBridge]:
    """A bridge without actors but its own."""
    async with run_bridge(tmp_path / "home") as running:
        yield running


@pytest.fixture
async def shop(bridge: RunningBridge, actors: Path) -> RunningBridge:
    """A bridge that hosts the shop."""
    added = await bridge.ask("actors.add", path=str(actors), guarded=False)
    assert added == {"mounts": ["demo.shop"], "warnings": []}
    return bridge
