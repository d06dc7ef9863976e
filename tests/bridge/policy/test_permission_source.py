"""The permission file on disk, changed under a running bridge."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from bridge.policy import permission_source
from bridge.policy.permission_file import MAX_FILE_BYTES, Problem, built_in_permissions, policy_digest
from bridge.policy.permission_set import PermissionSet
from bridge.policy.permission_source import PermissionFileError, PermissionSource, load_policy

pytestmark = pytest.mark.anyio

GOOD = "version = 1\n[roles.one]\n"
BETTER = "version = 1\n[roles.two]\n"
SECONDS = 15

Events = MemoryObjectReceiveStream[PermissionSet | tuple[Problem, ...]]


@asynccontextmanager
async def watched(source: PermissionSource) -> AsyncIterator[Events]:
    """What the source reports while it watches, as a stream."""
    send, receive = anyio.create_memory_object_stream[PermissionSet | tuple[Problem, ...]](10)
    report: Callable[[PermissionSet | tuple[Problem, ...]], Awaitable[None]] = send.send
    async with send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(source.watch, report, report)
        with anyio.fail_after(SECONDS):
            yield receive
        tasks.cancel_scope.cancel()


async def test_a_changed_file_is_swapped_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "permissions.toml"
    path.write_text(GOOD)
    source = PermissionSource(path)
    assert list(source.permissions.roles) == ["one"]
    async with watched(source) as events:
        path.write_text(BETTER)
        loaded = await events.receive()
        assert loaded == source.permissions
        assert source.permissions.digest == policy_digest(BETTER.encode())


async def test_a_file_replaced_by_renaming_and_one_behind_a_link_are_followed(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    (real / "p.toml").write_text(GOOD)
    path = tmp_path / "permissions.toml"
    path.symlink_to(real / "p.toml")
    source = PermissionSource(path)
    async with watched(source) as events:
        (real / "new").write_text(BETTER)
        (real / "new").rename(real / "p.toml")
        assert await events.receive() == source.permissions
        assert list(source.permissions.roles) == ["two"]


async def test_a_file_that_turns_bad_or_vanishes_keeps_the_last_good_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "permissions.toml"
    path.write_text(GOOD)
    source = PermissionSource(path)
    async with watched(source) as events:
        path.write_text("version = 1\n[roles.one]\nallow = 3\n")
        problems = await events.receive()
        assert isinstance(problems, tuple)
        assert problems[0].line == 3
        assert list(source.permissions.roles) == ["one"]
        path.unlink()
        problems = await events.receive()
        assert isinstance(problems, tuple)
        assert "cannot be read" in problems[0].message
        path.write_text(BETTER)
        assert await events.receive() == source.permissions
        assert list(source.permissions.roles) == ["two"]


async def test_without_a_file_the_built_in_role_holds_and_watching_ends_at_once() -> None:
    source = PermissionSource(None)
    assert source.permissions == built_in_permissions()

    async def unexpected(_: object) -> None:
        raise AssertionError

    with anyio.fail_after(SECONDS):
        await source.watch(unexpected, unexpected)


@pytest.mark.parametrize("content", ["", "version = 1\n", "[", None])
def test_a_first_version_that_is_bad_or_missing_is_an_error_with_its_place(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "permissions.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PermissionFileError) as caught:
        PermissionSource(path)
    assert str(caught.value).startswith(f"{path}:1:")


def test_a_huge_file_is_read_no_further_than_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "permissions.toml"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES * 4096)
    assert "over" in load_policy(path).problems[0].message


async def test_a_watch_that_is_cancelled_does_not_wait_for_its_thread(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(GOOD)
    async with watched(PermissionSource(file)) as events:
        file.write_text(BETTER)
        await events.receive()  # it watches
        cancelled = anyio.current_time()
    assert anyio.current_time() - cancelled < permission_source.RECHECK_MS / 1000 / 2
