"""Actor files that change under a running host."""

import py_compile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from bridge.bus.actor_bus import CallContext
from bridge.bus.host_process import HostProcess, HostSpec, RestartLimit
from bridge.bus.stream_bus import HostListing
from bridge.contract.errors import MatrixError
from bridge.contract.tool_invocation import Caller
from tests.bridge.shop_actors import SHOP

BOUND_S = 30
CTX = CallContext(Caller("person", "coder"), "call-1", 15_000)


class Watched:
    """A host, and a way to wait for what it says next."""

    def __init__(self, folder: Path, *, guarded: bool) -> None:
        self.listings: list[HostListing] = []
        self.told = anyio.Event()
        spec = HostSpec(folder, "acme.com", guarded=guarded, restart=RestartLimit(1, 60_000))
        self.host = HostProcess(spec, self.take)

    def take(self, listing: HostListing) -> None:
        self.listings.append(listing)
        self.told.set()

    async def listing_where(self, holds: str) -> HostListing:
        """Wait for a listing that mentions `holds`."""
        with anyio.fail_after(BOUND_S):
            while True:
                if self.listings and holds in str(self.listings[-1]):
                    return self.listings[-1]
                self.told = anyio.Event()
                await self.told.wait()

    async def check(self) -> object:
        return await self.host.request(CTX, "demo.shop", "shop.check", {"sku": "A", "house": "e"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture(params=[False, True], ids=["watching", "guarded"])
async def watched(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Watched]:
    made = Watched(folder, guarded=request.param)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.host.run)
        yield made
        tasks.cancel_scope.cancel()


async def changed(watched: Watched, file: Path, text: str) -> None:
    """Write the file; a guarded host has to be told."""
    await anyio.Path(file).write_text(text)
    if watched.host.spec.guarded:
        await watched.host.reload()


async def test_a_changed_module_is_loaded_and_its_state_is_kept(watched: Watched, folder: Path) -> None:
    await watched.host.request(CTX, "demo.shop", "shop.count", {})
    await changed(watched, folder / "shop.py", SHOP.replace("147", "148").replace('"A shop."', '"A newer shop."'))
    await watched.listing_where("A newer shop.")
    assert await watched.check() == {"available": 148, "house": "e"}
    assert await watched.host.request(CTX, "demo.shop", "$getState", {"key": "count"}) == 1


@pytest.mark.parametrize(
    "broken", ["this is no Python", "raise SystemExit('boom')", SHOP.replace("async def shop_who", "def shop_who")]
)
async def test_a_module_that_does_not_load_leaves_the_running_version(
    watched: Watched, folder: Path, broken: str
) -> None:
    await changed(watched, folder / "shop.py", broken)
    listing = await watched.listing_where(str(folder / "shop.py"))
    assert list(listing.declarations) == ["demo.shop"]
    assert await watched.check() == {"available": 147, "house": "e"}


async def test_a_helper_is_run_from_its_text_and_not_from_bytecode_that_a_folder_brings(
    watched: Watched, folder: Path
) -> None:
    helper = folder / "_stock.py"
    helper.write_text("AVAILABLE = 666\n")
    cached = py_compile.compile(str(helper), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert cached is not None
    assert Path(cached).is_relative_to(folder)
    helper.write_text("AVAILABLE = 148\n")
    await changed(watched, folder / "shop.py", "from _stock import AVAILABLE\n" + SHOP.replace("147", "AVAILABLE"))
    if not watched.host.spec.guarded:
        await watched.host.reload()
    assert await watched.check() == {"available": 148, "house": "e"}


async def test_a_removed_module_takes_its_actor_away(watched: Watched, folder: Path) -> None:
    await changed(
        watched, folder / "other.py", "from bridge import Actor\nclass Other(Actor):\n    mount = 'demo.other'\n"
    )
    await watched.listing_where("demo.other")
    await anyio.Path(folder / "other.py").unlink()
    await changed(
        watched, folder / "more.py", "from bridge import Actor\nclass More(Actor):\n    mount = 'demo.more'\n"
    )
    listing = await watched.listing_where("demo.more")
    assert "demo.other" not in listing.declarations


async def test_a_host_that_dies_too_often_stays_down_until_it_is_reloaded(watched: Watched) -> None:
    assert "reload" in (await crashed_for_good(watched)).message
    await watched.host.reload()
    assert await watched.check() == {"available": 147, "house": "e"}


async def crashed_for_good(watched: Watched) -> MatrixError:
    """Crash the host until it is not started again."""
    with anyio.fail_after(BOUND_S):
        while True:
            try:
                await watched.host.request(CTX, "demo.shop", "shop.crash", {})
            except MatrixError as error:
                assert error.code == "MX_AGENT_ACTOR_UNAVAILABLE"  # noqa: PT017 - which of the attempts is the last, it says
                if "reload" in error.message:
                    return error
                await anyio.sleep(0.01)
