"""Repositories as people have them: each works or is a clear error, on the real command with both kinds of worker."""

import subprocess

import pytest

from tests.e2e.conftest import git

pytestmark = pytest.mark.container

POLICY = """
version = 1
[roles.writer]
description = "Writes where it likes."
[roles.writer.native]
allow = ["file.read", "file.write", "shell.exec"]
[roles.writer.native.paths]
read = ["."]
write = ["."]
[roles.writer.native.shell]
allow = ["*"]
"""
WRITES = """
steps:
  - call: {tool: shell, args: {command: "echo new > new.txt"}}
  - say: Done.
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n"


@pytest.fixture
def words(tmp_path, script):
    """The words of a run whose worker writes one file."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    return ("--policy", policy, *script(WRITES))


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("a\n")
    commit(folder)
    return folder


def commit(folder):
    """Everything, as one commit."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "A commit")


def untouched(folder):
    """What must be the same before and after a run: everything but the new objects and the one ref."""
    return (
        git(folder, "status", "--porcelain"),
        (folder / ".git" / "HEAD").read_text(),
        (folder / ".git" / "config").read_text(),
        [ref for ref in git(folder, "for-each-ref").splitlines() if "refs/heads/mxs/" not in ref],
        sorted(p.name for p in (folder / ".git" / "hooks").glob("*")),
    )


def brought(repo, outcome):
    """The paths that the result changes against its base."""
    assert outcome.code == 0, outcome.result
    return git(repo, "diff", "--name-only", f"{outcome.result['branch']}~1", outcome.result["branch"]).split()


def test_a_folder_that_is_no_repository_is_refused_with_the_mend(mxs, tmp_path, words):
    (tmp_path / "empty").mkdir()
    done = mxs("run", "claude", "Do it.", "--repo", tmp_path / "empty", *words, check=2)
    assert "git init" in done.stderr
    done = mxs("run", "claude", "Do it.", "--repo", tmp_path / "nowhere", *words, check=2)
    assert "not a folder" in done.stderr
    assert mxs("ps", "--all", "--json", check=0).stdout == ""


def test_a_repository_without_a_commit_starts_empty_and_gets_its_first(mxs, kind, tmp_path, words):
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "-q")
    outcome = mxs.run(kind, "--repo", folder, *words, check=0)
    assert "no commit yet" in outcome.of("notice")[0]["text"]
    assert git(folder, "ls-tree", "--name-only", outcome.result["branch"]).split() == ["new.txt"]
    mxs("apply", outcome.worker, check=0)
    assert (folder / "new.txt").read_text() == "new\n"


def test_a_dirty_work_tree_is_named_and_left_alone(mxs, repo, words):
    (repo / "a.txt").write_text("changed\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "untracked.txt").write_text("untracked\n")
    before = untouched(repo)
    outcome = mxs.run("claude", "--repo", repo, *words)
    said = outcome.of("notice")[0]["text"]
    assert "1 modified, 1 staged, 1 untracked" in said
    assert all(name in said for name in ("a.txt", "staged.txt", "untracked.txt"))
    assert brought(repo, outcome) == ["new.txt"]
    assert untouched(repo) == before
    mxs("apply", outcome.worker, check=0)
    assert (repo / "new.txt").read_text() == "new\n"
    assert (repo / "a.txt").read_text() == "changed\n"


def test_a_detached_head_is_worked_from_and_stays_detached(mxs, repo, words):
    (repo / "b.txt").write_text("b\n")
    commit(repo)
    git(repo, "checkout", "-q", "HEAD~1")
    before = untouched(repo)
    outcome = mxs.run("codex", "--repo", repo, *words)
    assert brought(repo, outcome) == ["new.txt"]
    assert untouched(repo) == before
    assert git(repo, "ls-tree", "--name-only", outcome.result["branch"]).split() == ["a.txt", "new.txt"]


def test_submodules_lfs_pointers_and_odd_names_come_through_or_are_named(mxs, kind, repo, tmp_path, words):
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "i.txt").write_text("i\n")
    commit(inner)
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (repo / "big.bin").write_text(POINTER.format("0" * 64))
    odd = ("with space.txt", "-dash.txt", "ünïcödé.txt", "new\nline.txt", 'quote".txt')
    for name in odd:
        (repo / name).write_text("odd\n")
    commit(repo)
    before = untouched(repo)
    outcome = mxs.run(kind, "--repo", repo, *words)
    said = "\n".join(notice["text"] for notice in outcome.of("notice"))
    assert "sub" in said
    assert "big.bin" in said
    assert brought(repo, outcome) == ["new.txt"]
    assert untouched(repo) == before
    mxs("apply", outcome.worker, check=0)
    assert all((repo / name).read_text() == "odd\n" for name in odd)


def test_a_conflict_applies_nothing_and_says_what_stands_in_the_way(mxs, repo, words):
    outcome = mxs.run("claude", "--repo", repo, *words, check=0)
    (repo / "new.txt").write_text("mine\n")
    done = mxs("apply", outcome.worker, check=1)
    assert "new.txt" in done.stderr
    assert (repo / "new.txt").read_text() == "mine\n"


def test_a_linked_work_tree_and_a_folder_inside_the_repository_are_found(mxs, repo, tmp_path, words):
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "inside").mkdir()
    outcome = mxs.run("codex", "--repo", linked / "inside", *words)
    assert brought(repo, outcome) == ["new.txt"]
    mxs("apply", outcome.worker, check=0)
    assert (linked / "new.txt").read_text() == "new\n"
    assert not (repo / "new.txt").exists()


def test_a_bare_repository_gets_the_branch(mxs, repo, tmp_path, words):
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", repo, bare], check=True, capture_output=True)
    outcome = mxs.run("claude", "--repo", bare, *words)
    assert brought(bare, outcome) == ["new.txt"]
    assert mxs("apply", outcome.worker).returncode in (1, 2)


def test_a_relative_path_and_the_folder_the_command_stands_in_are_understood(mxs, repo, words):
    outcome = mxs("run", "claude", "Do it.", *words, "--no-input", "--json", cwd=repo, check=0)
    assert '"branch": "mxs/claude-' in outcome.stdout
    assert "new.txt" in git(repo, "log", "--all", "--name-only", "--format=")
