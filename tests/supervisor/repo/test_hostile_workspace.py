"""A workspace that arms every trap git knows: the host trips none of them, and plain git does."""

import os
from pathlib import Path

from tests.supervisor.repo.repositories import UserRepository, Worker, plain_git, start_worker


def arm(worker: Worker, marker: Path) -> None:
    """Everything in the workspace's own `.git` and attributes that makes git run a command."""
    trap = worker.write("trap.sh", f"#!/bin/sh\necho \"$0 $*\" >> '{marker}'\ncat\n".encode())
    trap.chmod(0o755)
    settings = {
        "core.fsmonitor": trap, "core.hooksPath": worker.workspace / "hooks", "filter.t.clean": trap,
        "filter.t.smudge": trap, "filter.t.process": trap, "diff.t.textconv": trap, "diff.t.command": trap,
        "diff.external": trap, "merge.t.driver": trap, "alias.status": f"!{trap}", "core.pager": trap,
        "core.sshCommand": trap, "core.editor": trap, "gpg.program": trap, "uploadpack.packObjectsHook": trap,
    }  # fmt: skip
    included = worker.write("included", b"[core]\n\tfsmonitor = %s\n" % os.fsencode(trap))
    for key, value in {**settings, "include.path": included}.items():
        plain_git(marker.parent, "config", "-f", str(worker.workspace / ".git/config"), key, str(value))
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "post-update"):
        for place in ("hooks", ".git/hooks"):
            worker.write(f"{place}/{hook}", b"#!/bin/sh\nexec '%s'\n" % os.fsencode(trap)).chmod(0o755)
    worker.write(".gitattributes", b"* filter=t diff=t merge=t\n")
    worker.write("shop/cart.py", b"a + b\n")


async def test_a_hostile_workspace_leaves_no_marker_on_the_host(user: UserRepository, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    worker = await start_worker(user.top, tmp_path / "w")
    arm(worker, marker)
    await worker.repository.record_changes("c-1", "armed")
    await worker.repository.hand_over()
    await worker.repository.diff()
    await worker.repository.stat()
    await worker.repository.apply()
    await worker.repository.remove()
    assert not marker.exists()
    assert (user.top / "shop/cart.py").read_bytes() == b"a + b\n"


async def test_the_control_plain_git_status_trips_the_trap(user: UserRepository, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    worker = await start_worker(user.top, tmp_path / "w")
    arm(worker, marker)
    plain_git(worker.workspace, "status", check=False)
    assert marker.exists()


async def test_an_own_git_file_of_the_worker_is_never_followed(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    (worker.workspace / ".git").rename(worker.workspace / "moved")
    worker.write(".git", f"gitdir: {user.git_dir}\n".encode())
    worker.write("shop/cart.py", b"a + b\n")
    result = await worker.repository.hand_over()
    assert user.git("show", f"{result.branch}:shop/cart.py") == "a + b"


async def test_a_huge_diff_full_of_escapes_is_data(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"\x1b]0;title\x07\x1b[2J\n" * 100_000)
    result = await worker.repository.hand_over()
    assert result.files.insertions == 100_000
    assert len(await worker.repository.diff()) > 1_000_000
