"""Clone in: tracked files alone, nothing shared, a `.git` without anything of the user."""

import os
from pathlib import Path

import pytest

from supervisor.repo import Owner, PathRules, WorkerRepository, inspect
from tests.supervisor.repo.repositories import UserRepository, fingerprint, inodes, names_below, plain_git, start_worker

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n"


async def test_the_workspace_holds_the_tracked_files_alone(user: UserRepository, tmp_path: Path) -> None:
    user.write({".env": b"KEY=1\n", "shop/cart.py": b"edited, not committed\n"})
    worker = await start_worker(user.top, tmp_path / "w", PathRules(deny=("secrets",)))
    assert set(fingerprint(worker.workspace, but=(".git",))) == {"shop/cart.py", "README.md", "run.sh"}
    assert (worker.workspace / "shop/cart.py").read_bytes() == b"a - b\n"
    assert os.access(worker.workspace / "run.sh", os.X_OK)
    assert [item.path for item in worker.repository.left_out] == ["secrets/key"]


async def test_the_fresh_git_is_one_clean_commit_without_trace_of_the_user(
    user: UserRepository, tmp_path: Path
) -> None:
    user.git("remote", "add", "origin", "https://token@host.invalid/shop")
    user.commit({"later": b"2\n"})
    worker = await start_worker(user.top, tmp_path / "w", PathRules(deny=("secrets",)))

    def git(*words: str) -> str:
        return plain_git(worker.workspace, *words).decode()

    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%an %ae").split("\n")[:-1] == ["worker worker@mxs.invalid"]
    assert git("remote") == ""
    assert "secrets/key" not in git("ls-files")
    assert not (worker.workspace / ".git/hooks").exists()
    objects = git("cat-file", "--batch-all-objects", "--batch-check")
    assert user.git("rev-parse", "HEAD:secrets/key") not in objects
    assert b"token" not in b"".join(p.read_bytes() for p in (worker.workspace / ".git").rglob("*") if p.is_file())


async def test_no_object_file_is_shared_with_the_user(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    assert not inodes(user.git_dir) & (inodes(worker.workspace) | inodes(worker.folder))
    assert "alternates" not in names_below(tmp_path / "w")
    assert plain_git(worker.folder / "trusted.git", "rev-list", "--all", "--count") == b"1\n"


async def test_odd_names_arrive_as_they_are(user: UserRepository, tmp_path: Path) -> None:
    names = ["new\nline", 'quo"te', "-dash", "sp ace/ü", os.fsdecode(b"raw\xff"), "back\\slash", "tab\t", ":(top)x"]
    user.commit({name: name.encode("utf-8", "surrogateescape") for name in names})
    worker = await start_worker(user.top, tmp_path / "w")
    for name in names:
        assert (worker.workspace / name).read_bytes() == os.fsencode(name)
    (worker.workspace / names[0]).write_bytes(b"changed")
    record = await worker.repository.record_changes("c", "m")
    assert record is not None
    assert [(file.kind, file.left_behind) for file in record.files] == [("modified", None)]


async def test_submodules_and_lfs_pointers_are_said(user: UserRepository, tmp_path: Path) -> None:
    library = UserRepository(tmp_path / "library")
    library.commit({"lib.py": b"1\n"})
    user.git("submodule", "--quiet", "add", str(library.top), "vendor/library")
    user.commit({"big.bin": POINTER})
    worker = await start_worker(user.top, tmp_path / "w")
    said = {item.path: item.why for item in worker.repository.left_out}
    assert said["vendor/library"] == "a submodule"
    assert "git-lfs" in said["big.bin"]
    assert (worker.workspace / "big.bin").read_bytes() == POINTER
    worker.write("vendor/library/x.py", b"inside")
    record = await worker.repository.record_changes("c", "m")
    assert record is not None
    assert record.commit is None


async def test_links_that_lead_out_are_not_made(user: UserRepository, tmp_path: Path) -> None:
    (user.top / "inside").symlink_to("shop/cart.py")
    (user.top / "outside").symlink_to("/etc/passwd")
    (user.top / "shop/up").symlink_to("../../etc")
    user.commit()
    worker = await start_worker(user.top, tmp_path / "w")
    assert (worker.workspace / "inside").readlink() == Path("shop/cart.py")
    assert "outside" not in names_below(worker.workspace)
    assert {item.path for item in worker.repository.left_out} == {"outside", "shop/up"}
    assert await worker.repository.record_changes("c", "m") is None


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
async def test_both_object_formats_and_every_kind_of_head_work(tmp_path: Path, object_format: str) -> None:
    user = UserRepository(tmp_path / "user", object_format=object_format)
    for place in ("unborn", "born", "detached"):
        worker = await start_worker(user.top, tmp_path / place, worker_id=f"codex-{place}")
        worker.write(f"{place}.txt", b"new\n")
        result = await worker.repository.hand_over()
        assert (
            user.git("diff", "--name-status", result.base or user.git("mktree"), str(result.branch))
            == f"A\t{place}.txt"
        )
        user.commit({"first": b"1\n"})
        user.git("checkout", "-q", "--detach" if place == "born" else "trunk")


async def test_a_shallow_clone_and_borrowed_objects_work(user: UserRepository, tmp_path: Path) -> None:
    user.commit({"second": b"2\n"})
    for n, words in enumerate((["--depth=1"], ["--shared"])):
        user.git("clone", "-q", *words, f"file://{user.top}" if n == 0 else str(user.top), str(tmp_path / f"clone{n}"))
        clone = UserRepository(tmp_path / f"clone{n}", git_dir=tmp_path / f"clone{n}/.git")
        before = fingerprint(clone.git_dir, but=("objects", "refs/heads/mxs"))
        worker = await start_worker(clone.top, tmp_path / f"w{n}")
        worker.write("shop/cart.py", b"fixed\n")
        result = await worker.repository.hand_over()
        assert clone.git("diff", "--name-only", str(result.base), str(result.branch)) == "shop/cart.py"
        assert fingerprint(clone.git_dir, but=("objects", "refs/heads/mxs")) == before
        assert clone.git("fsck", "--connectivity-only") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_everything_in_the_workspace_belongs_to_the_worker(user: UserRepository, tmp_path: Path) -> None:
    (user.top / "link").symlink_to("README.md")
    user.commit()
    workspace = tmp_path / "w"
    await WorkerRepository.prepare(
        await inspect(user.top), "claude-aaaaaa", tmp_path / "state", workspace, owner=Owner(4242, 4243)
    )
    for path in (workspace, *workspace.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (4242, 4243), path
