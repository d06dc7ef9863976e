"""Actors in a repository that a worker was given are never reloaded by themselves."""

import pytest

from bridge.contract.errors import MatrixError
from supervisor.actor_sources import ActorSources
from supervisor.home import StateFolder
from supervisor.worker_spec import WorkerRecord
from supervisor.worker_store import WorkerStore

pytestmark = pytest.mark.anyio


class Bridge:
    """Remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.there = True

    async def __call__(self, method, params):
        assert method == "actors.add"
        if not self.there:
            raise MatrixError("MX_AGENT_BRIDGE_UNAVAILABLE")
        self.asked.append((params["path"], params["guarded"]))
        return {"mounts": []}


@pytest.fixture
def store(tmp_path):
    home = StateFolder(tmp_path / "home")
    home.make()
    return WorkerStore(home)


@pytest.fixture
def repository(tmp_path):
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "src").mkdir()
    (repo / "actors").mkdir()
    return repo


def give_worker(store, repo):
    store.save(
        WorkerRecord(
            id="claude-aaaaaa",
            kind="claude",
            name=None,
            run="run-1",
            prompt="do",
            repo=str(repo),
            role="coder",
            state="running",
            created_at="2026-01-01T00:00:00.000Z",
        )
    )


async def test_actors_that_were_there_before_the_worker_are_guarded_when_it_gets_their_repository(store, repository):
    bridge, path = Bridge(), str(repository / "actors")
    sources = ActorSources(store, bridge)
    await sources.add(path)
    await sources.guard()
    give_worker(store, repository)
    await sources.guard()
    await sources.guard()
    assert bridge.asked == [(path, False), (path, True)]


@pytest.mark.parametrize("given", ["src", "../by-a-link"])
async def test_neither_a_link_nor_a_folder_within_hides_that_it_is_the_same_repository(store, repository, given):
    (repository.parent / "by-a-link").symlink_to(repository)
    give_worker(store, repository / given)
    bridge, path = Bridge(), str(repository / "actors")
    await ActorSources(store, bridge).add(path)
    assert bridge.asked == [(path, True)]


async def test_actors_beside_the_repository_with_a_similar_name_are_not_guarded(store, repository):
    give_worker(store, repository)
    beside = repository.parent / "repository-actors"
    beside.mkdir()
    bridge = Bridge()
    await ActorSources(store, bridge).add(str(beside))
    assert bridge.asked == [(str(beside), False)]


async def test_a_bridge_that_starts_again_gets_what_was_given_as_it_was(store, repository):
    give_worker(store, repository)
    bridge, path = Bridge(), str(repository / "actors")
    sources = ActorSources(store, bridge)
    await sources.add(path)
    bridge.there = False
    with pytest.raises(MatrixError):
        await sources.add("/elsewhere")
    await sources.give_again()
    bridge.there = True
    bridge.asked.clear()
    await sources.give_again()
    assert bridge.asked == [(path, True)]
