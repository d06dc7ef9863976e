"""Apply: three-way, uncommitted, all or nothing, on whatever state the user's work tree is in."""

import os
from pathlib import Path

import pytest

from supervisor.repo import ApplyConflictError, RepositoryError
from tests.supervisor.repo.repositories import UserRepository, Worker, fingerprint, start_worker

LINES = b"".join(b"line %d\n" % n for n in range(20))


async def finished(user: UserRepository, place: Path) -> Worker:
    """A worker that changed line 2, added a file, made one executable, deleted one, and handed over."""
    user.commit({"text": LINES, "old/gone": b"gone\n"})
    worker = await start_worker(user.top, place)
    worker.write("text", LINES.replace(b"line 2\n", b"LINE TWO\n"))
    worker.write("deep/new", b"new\n")
    worker.write("tool", b"#!/bin/sh\n").chmod(0o755)
    (worker.workspace / "old/gone").unlink()
    await worker.repository.hand_over()
    return worker


async def test_it_writes_the_work_tree_and_nothing_else(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    before = fingerprint(user.git_dir)
    assert set(await worker.repository.apply()) == {"text", "deep/new", "tool", "old/gone"}
    assert fingerprint(user.git_dir) == before
    assert (user.top / "text").read_bytes() == LINES.replace(b"line 2\n", b"LINE TWO\n")
    assert os.access(user.top / "tool", os.X_OK)
    assert not (user.top / "old").exists()
    assert user.git("diff", "--cached", "--name-only") == ""


async def test_the_users_own_edits_are_merged_with(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    user.commit({"text": LINES.replace(b"line 18\n", b"committed later\n")})
    user.write(
        {"text": (user.top / "text").read_bytes().replace(b"line 10\n", b"not committed\n"), "README.md": b"edit\n"}
    )
    await worker.repository.apply()
    text = (user.top / "text").read_bytes()
    assert all(part in text for part in (b"LINE TWO", b"committed later", b"not committed"))
    assert (user.top / "README.md").read_bytes() == b"edit\n"


@pytest.mark.parametrize("committed", [True, False])
async def test_a_conflict_changes_nothing_and_names_the_files(
    user: UserRepository, tmp_path: Path, committed: bool
) -> None:
    worker = await finished(user, tmp_path / "w")
    user.write({"text": LINES.replace(b"line 2\n", b"my two\n")})
    if committed:
        user.commit()
    before = fingerprint(user.top)
    with pytest.raises(ApplyConflictError) as refused:
        await worker.repository.apply()
    assert (refused.value.files, refused.value.exit_code) == (("text",), 1)
    assert fingerprint(user.top) == before


async def test_an_untracked_file_in_the_way_is_not_overwritten(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    user.write({"deep/new": b"the user's\n"})
    before = fingerprint(user.top)
    with pytest.raises(ApplyConflictError, match="in the way"):
        await worker.repository.apply()
    assert fingerprint(user.top) == before


async def test_it_never_writes_through_a_link(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    (tmp_path / "elsewhere").mkdir()
    (user.top / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ApplyConflictError):
        await worker.repository.apply()
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_disk_that_refuses_in_the_middle_puts_everything_back(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    user.write({"tool/untracked": b"a folder where a file should go\n"})
    before = fingerprint(user.top)
    with pytest.raises(RepositoryError):
        await worker.repository.apply()
    assert fingerprint(user.top) == before


async def test_an_edit_that_git_was_told_to_overlook_is_not_lost(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    user.git("update-index", "--assume-unchanged", "text")
    user.write({"text": LINES.replace(b"line 2\n", b"overlooked\n")})
    with pytest.raises(ApplyConflictError):
        await worker.repository.apply()
    assert b"overlooked" in (user.top / "text").read_bytes()


async def test_applying_twice_changes_nothing_more(user: UserRepository, tmp_path: Path) -> None:
    worker = await finished(user, tmp_path / "w")
    await worker.repository.apply()
    before = fingerprint(user.top)
    await worker.repository.apply()
    assert fingerprint(user.top) == before


async def test_no_commit_yet_and_a_detached_head_work(tmp_path: Path, user: UserRepository) -> None:
    empty = UserRepository(tmp_path / "empty")
    worker = await start_worker(empty.top, tmp_path / "w1")
    worker.write("first", b"1\n")
    await worker.repository.hand_over()
    assert await worker.repository.apply() == ("first",)
    assert (empty.top / "first").read_bytes() == b"1\n"
    user.git("checkout", "-q", "--detach")
    detached = await start_worker(user.top, tmp_path / "w2")
    detached.write("shop/cart.py", b"a + b\n")
    await detached.repository.hand_over()
    assert await detached.repository.apply() == ("shop/cart.py",)


async def test_without_a_branch_or_a_work_tree_it_says_so(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    with pytest.raises(RepositoryError, match="has no branch"):
        await worker.repository.apply()
    user.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    bare = await start_worker(tmp_path / "bare.git", tmp_path / "w2")
    bare.write("shop/cart.py", b"a + b\n")
    assert (await bare.repository.hand_over()).branch == "mxs/claude-7f3k2m"
    with pytest.raises(RepositoryError, match="is bare"):
        await bare.repository.apply()


async def test_the_users_filters_apply_and_those_a_result_names_do_not_run(
    user: UserRepository, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    user.commit({".gitattributes": b"*.up filter=upper\n*.crlf text eol=crlf\n", "a.up": b"low\n", "b.crlf": b"1\n"})
    user.git("config", "filter.upper.smudge", "tr a-z A-Z")
    user.git("config", "filter.upper.clean", "tr A-Z a-z")
    user.git("config", "filter.armed.smudge", f"touch '{marker}'; cat")
    user.git("config", "filter.armed.clean", f"touch '{marker}'; cat")
    (user.top / "a.up").write_bytes(b"LOW\n")
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("a.up", b"low\nmore\n")
    worker.write("b.crlf", b"1\n2\n")
    worker.write("sub/.gitattributes", b"* filter=armed\n")
    worker.write("sub/bait", b"bait\n")
    await worker.repository.hand_over()
    await worker.repository.apply()
    assert (user.top / "a.up").read_bytes() == b"LOW\nMORE\n"
    assert (user.top / "b.crlf").read_bytes() == b"1\r\n2\r\n"
    assert (user.top / "sub/bait").read_bytes() == b"bait\n"
    assert not marker.exists()
