"""The result's way out: one ref, everything else in the user's repository as it was."""

import os
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.repo import RepositoryError, inspect
from supervisor.repo.git import Git
from supervisor.repo.hand_over import deliver
from tests.supervisor.repo.repositories import SHOP, UserRepository, fingerprint, plain_git, start_worker

REF = "refs/heads/mxs/claude-7f3k2m"
NEW = (".git/objects", ".git/refs/heads/mxs")


async def test_the_users_repository_is_byte_identical_but_for_one_ref(user: UserRepository, tmp_path: Path) -> None:
    marker = tmp_path / "hook-ran"
    for hook in ("post-checkout", "post-update", "reference-transaction", "post-merge", "pre-auto-gc"):
        (user.git_dir / "hooks").mkdir(exist_ok=True)
        (user.git_dir / "hooks" / hook).write_text(f"#!/bin/sh\ntouch '{marker}'\n")
        (user.git_dir / "hooks" / hook).chmod(0o755)
    user.git("tag", "v1")
    user.write({"shop/cart.py": b"the user's own edit\n", "untracked": b"u\n"})
    user.git("config", "fetch.prune", "true")
    user.git("config", "core.fsmonitor", f"touch '{marker}'")
    before, refs = fingerprint(user.top, but=NEW), user.git("-c", "core.hooksPath=/dev/null", "show-ref")
    marker.unlink(missing_ok=True)
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    result = await worker.repository.hand_over()
    await worker.repository.diff()
    assert not marker.exists()
    assert fingerprint(user.top, but=NEW) == before
    new_refs = set(user.git("-c", "core.fsmonitor=false", "show-ref").split("\n")) - set(refs.split("\n"))
    assert [line.split()[1] for line in new_refs] == [REF]
    assert (result.branch, result.commits, result.nothing_changed) == ("mxs/claude-7f3k2m", 1, False)
    assert (result.files.changed, result.files.insertions, result.files.deletions) == (1, 1, 1)


async def test_handing_over_again_says_the_same(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    first = await worker.repository.hand_over()
    assert first.last is not None
    second = await worker.repository.hand_over()
    assert (second.branch, second.commits, second.files, second.last) == (first.branch, 1, first.files, None)


async def test_nothing_changed_makes_no_ref(user: UserRepository, tmp_path: Path) -> None:
    before = fingerprint(user.top)
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    await worker.repository.record_changes("c-1", "there")
    worker.write("shop/cart.py", b"a - b\n")
    await worker.repository.record_changes("c-2", "and back")
    result = await worker.repository.hand_over()
    assert (result.branch, result.nothing_changed, result.files.changed) == (None, True, 0)
    assert fingerprint(user.top) == before


@pytest.mark.parametrize("taken", ["mxs/claude-7f3k2m", "mxs"])
async def test_a_taken_branch_name_is_refused_and_the_result_is_kept(
    user: UserRepository, tmp_path: Path, taken: str
) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    user.git("branch", taken)
    with pytest.raises(RepositoryError, match="already has a branch"):
        await worker.repository.hand_over()
    assert user.git("rev-parse", taken) == user.git("rev-parse", "trunk")
    with pytest.raises(RepositoryError, match="neither handed over nor applied"):
        await worker.repository.remove()
    user.git("branch", "-m", taken, "mine")
    assert (await worker.repository.hand_over()).branch == "mxs/claude-7f3k2m"


async def test_removal_keeps_what_is_nowhere_else(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    await worker.repository.record_changes("c", "m")
    with pytest.raises(RepositoryError, match="neither handed over nor applied"):
        await worker.repository.remove()
    assert worker.workspace.exists()
    await worker.repository.hand_over()
    await worker.repository.remove()
    assert not worker.workspace.exists()
    assert not (worker.folder / "trusted.git").exists()
    assert user.git("show", f"{REF}:shop/cart.py") == "a + b"


async def test_removal_by_force_deletes_the_result_too(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    await worker.repository.record_changes("c", "m")
    await worker.repository.remove(force=True)
    assert not worker.workspace.exists()


async def test_what_runs_by_itself_is_listed_for_review(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    for name in (".github/workflows/ci.yml", "sub/.claude/settings.json", ".husky/pre-commit", "uv.lock", "plain.py"):
        worker.write(name, b"x\n")
    worker.write("tool", b"#!/bin/sh\n").chmod(0o755)
    result = await worker.repository.hand_over()
    assert {(item.path, item.why) for item in result.review} == {
        (".github/workflows/ci.yml", "continuous integration"),
        ("sub/.claude/settings.json", "agent configuration"),
        (".husky/pre-commit", "hooks"),
        ("uv.lock", "lock file"),
        ("tool", "executable bit turned on"),
    }


async def test_a_worktree_gets_the_ref_of_its_repository(user: UserRepository, tmp_path: Path) -> None:
    user.git("worktree", "add", "-q", "-b", "second", str(tmp_path / "second"))
    worker = await start_worker(tmp_path / "second", tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    await worker.repository.hand_over()
    assert user.git("show", f"{REF}:shop/cart.py") == "a + b"
    await worker.repository.apply()
    assert (tmp_path / "second/shop/cart.py").read_bytes() == b"a + b\n"
    assert user.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("mode", "name", "content"),
    [
        (b"100755", b".git/hooks/x", b"#!/bin/sh\n"),
        (b"120000", b"link", b"/etc/passwd"),
        (b"100644", b"readme.md", b"twin"),
        (b"100644", b"esc\x1b", b"escape"),
    ],
)
async def test_a_commit_that_our_recorder_would_never_make_does_not_arrive(
    user: UserRepository, tmp_path: Path, mode: bytes, name: bytes, content: bytes
) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    trusted = Git(worker.folder / "trusted.git")
    stream = b"commit %s\ncommitter w <w@i> 1 +0000\ndata 1\nm\nfrom %s^0\n" % (REF.encode(), REF.encode())
    stream += b"M %s inline %s\ndata %d\n%s\ndone\n" % (mode, name, len(content), content)
    await trusted.run("fast-import", "--quiet", "--done", stdin=stream)
    before = fingerprint(user.top)
    with pytest.raises(RepositoryError, match="was not handed over"):
        await deliver(trusted, await inspect(user.top), "mxs/claude-7f3k2m", worker.repository.base)
    assert fingerprint(user.top) == before


@pytest.mark.parametrize("name", [b".gitmodules", b"odd"])
async def test_what_git_itself_refuses_does_not_arrive(user: UserRepository, tmp_path: Path, name: bytes) -> None:
    """The last wall is git's own check on the final step: here a submodule URL that is an option, and a bad tree."""
    worker = await start_worker(user.top, tmp_path / "w")
    trusted = Git(worker.folder / "trusted.git")
    content = b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=evil\n' if name == b".gitmodules" else b"x"
    head = b"committer w <w@i> 1 +0000" if name == b".gitmodules" else b"committer <w@i 1 +0000"
    blob = (await trusted.run("hash-object", "-w", "--stdin", stdin=content)).strip()
    tree = (await trusted.run("mktree", stdin=b"100644 blob %s\t%s\n" % (blob, name))).strip()
    commit = b"tree %s\nparent %s\nauthor w <w@i> 1 +0000\n%s\n\nm\n" % (
        tree,
        (worker.repository.base or "").encode(),
        head,
    )
    oid = (
        (await trusted.run("hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=commit))
        .decode()
        .strip()
    )
    await trusted.run("update-ref", REF, oid)
    before = fingerprint(user.top, but=NEW)
    with pytest.raises(RepositoryError, match="git refused the result"):
        await deliver(trusted, await inspect(user.top), "mxs/claude-7f3k2m", worker.repository.base)
    assert fingerprint(user.top, but=(".git/objects",)) == before


NAMES = st.sampled_from(
    ["a", "b", "dir/a", "dir/b", "dir/sub/c", ":(top)x", "-x", "ü", 'q"uote', "shop/cart.py", "run.sh"]
)
EDITS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=40)), st.booleans()), min_size=1, max_size=10)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(EDITS, min_size=1, max_size=2))
def test_base_and_returned_diff_make_the_workers_tree(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[str, bytes | None, bool]]]
) -> None:
    anyio.run(_round_trip, tmp_path_factory.mktemp("trip"), rounds)


async def _round_trip(place: Path, rounds: list[list[tuple[str, bytes | None, bool]]]) -> None:
    user = UserRepository(place / "user")
    user.commit(SHOP)
    worker = await start_worker(user.top, place / "w")
    for n, edits in enumerate(rounds):
        for name, content, executable in edits:
            path = worker.workspace / name
            if content is None:
                path.unlink(missing_ok=True)
            else:
                worker.write(name, content).chmod(0o755 if executable else 0o644)
        await worker.repository.record_changes(f"c-{n}", "edits")
    await worker.repository.hand_over()
    diff = await worker.repository.diff()
    again = place / "again"
    plain_git(place, "clone", "-q", str(user.top), str(again))
    if diff:
        plain_git(again, "apply", "--whitespace=nowarn", stdin=diff)
        await worker.repository.apply()
    assert _files(again) == _files(worker.workspace)
    assert _files(user.top) == _files(worker.workspace)


def _files(folder: Path) -> dict[str, tuple[bytes, bool]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
