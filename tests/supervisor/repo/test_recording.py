"""A commit per changing call, from what our own walk finds."""

import os
import socket
import stat
import threading
from pathlib import Path

from supervisor.repo import PathRules, WorkerRepository
from tests.supervisor.repo.repositories import UserRepository, Worker, start_worker


async def changed(worker: Worker, call: str = "call") -> dict[str, tuple[str, str | None]]:
    record = await worker.repository.record_changes(call, "message")
    return {file.path: (file.kind, file.left_behind) for file in record.files} if record else {}


async def left_behind(worker: Worker) -> dict[str, str]:
    return {item.path: item.why for item in (await worker.repository.hand_over()).left_behind}


async def test_each_changing_call_is_a_commit_with_its_files(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("shop/cart.py", b"a + b\n")
    worker.write("docs/new.md", b"new\n")
    (worker.workspace / "README.md").unlink()
    record = await worker.repository.record_changes("c-1", "shell.exec: \x1b[31mevil\nsecond line")
    assert record is not None
    assert {(file.path, file.kind) for file in record.files} == {
        ("shop/cart.py", "modified"), ("docs/new.md", "added"), ("README.md", "deleted"),
    }  # fmt: skip
    assert next(f.digest for f in record.files if f.path == "docs/new.md") == (
        "sha256:7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c"
    )
    assert await worker.repository.record_changes("c-2", "nothing") is None
    (worker.workspace / "run.sh").chmod(0o644)
    assert await changed(worker) == {"run.sh": ("modified", None)}
    result = await worker.repository.hand_over()
    assert result.commits == 2
    log = user.git("log", "--format=%B", f"trunk..{result.branch}")
    assert "mxs-call: c-1" in log
    assert "\x1b" not in log


async def test_paths_that_were_not_granted_stay_behind(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w", PathRules(write=("shop",), deny=("secrets",)))
    for name in ("shop/cart.py", "shopX/cart.py", "secrets/key", "NOTES"):
        worker.write(name, b"mine\n")
    (worker.workspace / "run.sh").unlink()
    files = await changed(worker)
    assert files["shop/cart.py"] == ("modified", None)
    assert {path for path, (_, why) in files.items() if why} == {"shopX/cart.py", "secrets/key", "NOTES", "run.sh"}
    result = await worker.repository.hand_over()
    assert user.git("diff", "--name-only", "trunk", str(result.branch)) == "shop/cart.py"
    assert user.git("show", f"{result.branch}:secrets/key") == "s3cret"
    assert {item.path for item in result.left_behind} == {"shopX/cart.py", "secrets/key", "NOTES", "run.sh"}


async def test_a_folder_with_withheld_files_cannot_be_replaced_by_a_file(user: UserRepository, tmp_path: Path) -> None:
    user.commit({"etc/app/secret": b"s\n", "etc/app/open": b"o\n"})
    worker = await start_worker(user.top, tmp_path / "w", PathRules(deny=("etc/app/secret",)))
    (worker.workspace / "etc/app/open").unlink()
    (worker.workspace / "etc/app").rmdir()
    worker.write("etc/app", b"a file now\n")
    files = await changed(worker)
    assert files["etc/app"][1] is not None
    result = await worker.repository.hand_over()
    assert user.git("show", f"{result.branch}:etc/app/secret") == "s"


async def test_only_plain_files_and_safe_links_come_back(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    canary = tmp_path / "canary"
    canary.write_bytes(b"host canary")
    os.mkfifo(worker.workspace / "fifo")
    os.link(canary, worker.workspace / "hard")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(worker.workspace / "sock"))
    for name, target in {
        "abs": "/etc/passwd",
        "up": "../canary",
        "git": ".git/config",
        "tricky": "shop/../../x",
    }.items():
        (worker.workspace / name).symlink_to(target)
    (worker.workspace / "good").symlink_to("shop/cart.py")
    for name in ("shop/.git/hooks/post-checkout", "x/.GIT/config", "y/git~1/config", "bidi\u202ename", "esc\x1b[2J"):
        worker.write(name, b"#!/bin/sh\n")
    for name in ("readme.md", "SHOP/other.py"):
        worker.write(name, b"twin\n")
    files = await changed(worker)
    assert {path for path, (_, why) in files.items() if why is None} == {"good"}
    reasons = await left_behind(worker)
    assert reasons["fifo"] == "a FIFO"
    assert reasons["hard"] == "a hard link"
    assert reasons["sock"] == "a socket"
    assert {
        "abs",
        "up",
        "git",
        "tricky",
        "shop/.git",
        "x/.GIT",
        "y/git~1",
        "readme.md",
        "SHOP/other.py",
    } <= reasons.keys()
    assert user.git("diff", "--name-only", "trunk", "mxs/claude-7f3k2m") == "good"


async def test_a_tracked_file_that_became_a_pipe_keeps_its_content(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    (worker.workspace / "README.md").unlink()
    os.mkfifo(worker.workspace / "README.md")
    worker.write("shop/cart.py", b"+\n")
    await worker.repository.record_changes("c", "m")
    result = await worker.repository.hand_over()
    assert user.git("show", f"{result.branch}:README.md") == "shop"


async def test_what_was_left_behind_comes_once_its_reason_is_gone(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("readme.md", b"lower\n")
    assert (await changed(worker))["readme.md"][1] is not None
    (worker.workspace / "README.md").unlink()
    await worker.repository.record_changes("c", "m")
    result = await worker.repository.hand_over()
    assert user.git("show", f"{result.branch}:readme.md") == "lower"
    assert result.left_behind == ()


async def test_what_the_users_rules_ignore_stays_behind_and_the_workers_rules_do_not_count(
    user: UserRepository, tmp_path: Path
) -> None:
    user.write({".gitignore": b"__pycache__/\n*.log\n", "kept.log": b"tracked in spite of it\n"})
    user.git("add", "-f", "kept.log")
    user.commit()
    worker = await start_worker(user.top, tmp_path / "w")
    worker.write("deep/er/__pycache__/x.pyc", b"1")
    worker.write("run.log", b"1")
    worker.write("kept.log", b"changed\n")
    worker.write("hidden/.gitignore", b"*\n")
    worker.write("hidden/evil.py", b"1\n")
    files = await changed(worker)
    assert {"kept.log", "hidden/.gitignore", "hidden/evil.py"} == files.keys()
    assert (await left_behind(worker)).keys() == {"deep/er/__pycache__", "run.log"}


async def test_a_file_replaced_by_a_folder_and_back(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    (worker.workspace / "README.md").unlink()
    worker.write("README.md/part", b"1\n")
    assert await changed(worker) == {"README.md": ("deleted", None), "README.md/part": ("added", None)}
    (worker.workspace / "README.md/part").unlink()
    (worker.workspace / "README.md").rmdir()
    worker.write("README.md", b"again\n")
    assert await changed(worker) == {"README.md": ("added", None), "README.md/part": ("deleted", None)}


async def test_a_same_size_edit_right_after_a_look_is_seen(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w")
    for n in range(8):
        path = worker.write("shop/cart.py", b"%05d\n" % n)
        os.utime(path, ns=(1, 1))
        assert await changed(worker) == {"shop/cart.py": ("modified", None)}


async def test_a_restart_takes_up_where_it_was(user: UserRepository, tmp_path: Path) -> None:
    worker = await start_worker(user.top, tmp_path / "w", PathRules(deny=("secrets",)))
    worker.write("one", b"1\n")
    await worker.repository.record_changes("c-1", "m")
    worker.write("two", b"2\n")
    again = Worker(await WorkerRepository.reopen(worker.folder), worker.workspace, worker.folder)
    assert again.repository.left_out == worker.repository.left_out
    assert await changed(again) == {"two": ("added", None)}
    assert (await again.repository.hand_over()).commits == 2


async def test_swaps_in_a_loop_never_bring_a_host_file(user: UserRepository, tmp_path: Path) -> None:
    outside = tmp_path / "host"
    outside.mkdir()
    (outside / "cart.py").write_bytes(b"CANARY")
    worker = await start_worker(user.top, tmp_path / "w")
    folder, spare, link = (worker.workspace / name for name in ("shop", "spare", "trap"))
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (folder / "cart.py").write_bytes(os.urandom(8))
            folder.rename(spare)
            folder.symlink_to(outside)
            folder.unlink()
            spare.rename(folder)
            link.unlink(missing_ok=True)
            link.symlink_to(outside / "cart.py")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for n in range(30):
            await worker.repository.record_changes(f"c-{n}", "m")
    finally:
        stop.set()
        swapper.join()
    result = await worker.repository.hand_over()
    assert b"CANARY" not in (await worker.repository.diff())
    for commit in user.git("rev-list", f"trunk..{result.branch}").split() if result.branch else []:
        listing = user.tree(commit)
        assert all(stat.S_ISREG(int(mode, 8)) for mode, _ in listing.values())
        assert all("CANARY" not in user.git("cat-file", "blob", oid) for _, oid in listing.values())
