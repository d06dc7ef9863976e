"""Looking at the user's repository: every state is described or is a clear error, and nothing is changed."""

import os
import subprocess
from pathlib import Path

import pytest

from supervisor.repo import RepositoryError, inspect
from supervisor.repo.inspection import read_files
from tests.supervisor.repo.repositories import UserRepository, fingerprint


async def test_a_sub_folder_names_its_top_level(user: UserRepository) -> None:
    state = await inspect(user.top / "shop")
    assert (state.top_level, state.branch, state.object_format) == (user.top, "trunk", "sha1")
    assert state.head == user.git("rev-parse", "HEAD")
    assert not state.uncommitted


async def test_uncommitted_work_is_counted_and_named_and_nothing_is_written(user: UserRepository) -> None:
    user.write({"shop/cart.py": b"edited\n", "staged.txt": b"s\n", "loose/one": b"1", "loose/two": b"2"})
    user.git("add", "staged.txt")
    before = fingerprint(user.top)
    uncommitted = (await inspect(user.top)).uncommitted
    assert (uncommitted.modified, uncommitted.staged, uncommitted.untracked) == (1, 1, 1)
    assert set(uncommitted.names) == {"shop/cart.py", "staged.txt", "loose/"}
    assert fingerprint(user.top) == before


async def test_a_folder_that_is_no_repository_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="not inside a git repository") as refused:
        await inspect(tmp_path)
    assert refused.value.exit_code == 2
    assert "git init" in refused.value.mend


async def test_a_path_that_is_missing_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="not a folder") as refused:
        await inspect(tmp_path / "absent")
    assert refused.value.exit_code == 2


async def test_a_git_directory_is_not_taken_for_a_work_tree(user: UserRepository) -> None:
    with pytest.raises(RepositoryError, match="inside the git directory"):
        await inspect(user.git_dir / "refs")


async def test_no_commit_yet_and_a_detached_head_are_states(tmp_path: Path, user: UserRepository) -> None:
    empty = UserRepository(tmp_path / "empty")
    assert ((await inspect(empty.top)).head, (await inspect(empty.top)).branch) == (None, "trunk")
    user.git("checkout", "-q", "--detach")
    assert (await inspect(user.top)).branch is None


async def test_a_head_whose_commit_is_missing_is_an_error(user: UserRepository) -> None:
    (user.git_dir / "refs/heads/trunk").write_text("0123456789" * 4 + "\n")
    with pytest.raises(RepositoryError, match="names a commit that is missing"):
        await inspect(user.top)


async def test_a_worktree_and_a_bare_repository_are_understood(tmp_path: Path, user: UserRepository) -> None:
    user.git("worktree", "add", "-q", "-b", "second", str(tmp_path / "second tree\n"))
    state = await inspect(tmp_path / "second tree\n")
    assert state.common_dir == user.git_dir
    assert state.top_level == tmp_path / "second tree\n"
    user.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert (await inspect(tmp_path / "bare.git")).top_level is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to somebody else")
async def test_a_repository_of_another_owner_is_read_without_running_its_filters(
    tmp_path: Path, user: UserRepository
) -> None:
    marker = tmp_path / "ran"
    user.commit({".gitattributes": b"*.py filter=evil\n"})
    user.git("config", "filter.evil.clean", f"touch {marker}; cat")
    (user.top / "shop/cart.py").write_bytes(b"edited\n")
    for folder, _, files in os.walk(user.top):
        for path in (folder, *(str(Path(folder) / name) for name in files)):
            os.lchown(path, 4242, 4242)
    assert (await inspect(user.top)).uncommitted.modified == 1
    assert not marker.exists()


async def test_files_at_the_top_of_the_last_commit_are_read_without_a_work_tree(tmp_path):
    repo = tmp_path / "r"
    repo.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    who = ("-c", "user.name=a", "-c", "user.email=b@example.invalid")

    def git(*words):
        subprocess.run(["git", *who, *words], cwd=repo, check=True, capture_output=True, env=environment)

    git("init", "-q")
    (repo / "CLAUDE.md").write_text("Be kind.\n")
    (repo / "AGENTS.md").mkdir()
    (repo / "AGENTS.md" / "file").write_text("a folder of this name is no file\n")
    git("add", "-A")
    git("commit", "-qm", "x")
    (repo / "CLAUDE.md").write_text("changed, not committed\n")
    state = await inspect(repo)
    assert await read_files(state, ("AGENTS.md", "CLAUDE.md", "GONE.md"), 100) == {"CLAUDE.md": "Be kind.\n"}
    assert await read_files(state, ("CLAUDE.md",), 2) == {"CLAUDE.md": "Be"}
