"""Paths that a worker shows, on real folders with real links."""

import threading
from pathlib import Path

import pytest

from bridge.policy.path_rules import PathRules, holds_path
from bridge.policy.workspace_paths import MAX_LINKS, WorkspacePaths


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "host" / "workspace"
    (root / "shop" / "deep").mkdir(parents=True)
    (root / "secrets").mkdir()
    (root / "shop" / "cart.py").write_text("x")
    (root / "secrets" / "key").write_text("x")
    (tmp_path / "host" / "outside").mkdir()
    links = {
        "in": "shop",
        "shop/up": "..",
        "shop/s": "../secrets",
        "abs": "/workspace/shop",
        "abs-root": "/workspace",
        "etc": "/etc",
        "out": "../outside",
        "out-deep": "shop/../../outside",
        "loop": "loop",
        "a": "b",
        "b": "a",
        "dangling": "shop/new.py",
        "dangling-out": "/etc/new",
        "twin": "/workspaceX/shop",
        "host-abs": str(root / "shop"),
        "proc": "/proc/self/root/etc",
        "trick": "/workspace/../etc",
        "file-link": "shop/cart.py",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


INSIDE = [
    ("shop/cart.py", None, "shop/cart.py"),
    ("/workspace/shop/cart.py", None, "shop/cart.py"),
    ("/workspace", None, "."),
    ("//workspace//./shop/", None, "shop"),
    (".", None, "."),
    ("cart.py", "shop", "shop/cart.py"),
    ("cart.py", "/workspace/shop", "shop/cart.py"),
    ("../shop/cart.py", "/workspace/secrets", "shop/cart.py"),
    ("shop/new/file.py", None, "shop/new/file.py"),
    ("shop/new/../other.py", None, "shop/other.py"),
    ("in/cart.py", None, "shop/cart.py"),
    ("shop/s/key", None, "secrets/key"),
    ("shop/up/secrets/key", None, "secrets/key"),
    ("abs/cart.py", None, "shop/cart.py"),
    ("abs-root/shop/s/key", None, "secrets/key"),
    ("dangling", None, "shop/new.py"),
    ("file-link", None, "shop/cart.py"),
    ("in/../secrets/key", None, "secrets/key"),
    (".git/config", None, ".git/config"),
    ("-rf", None, "-rf"),
]

REFUSED = [
    ("/etc/passwd", None), ("/workspaceX/shop", None), ("/workspace/../etc", None), ("..", None),
    ("shop/../../x", None),
    ("etc/passwd", None), ("etc", None), ("out", None), ("out/x", None), ("out-deep/x", None), ("loop", None),
    ("loop/x", None),
    ("a/x", None), ("dangling-out", None), ("twin", None), ("host-abs/cart.py", None), ("proc/passwd", None),
    ("trick/passwd", None),
    ("shop/s/../cart.py", None), ("shop/cart.py/x", None), ("shop/cart.py/../../secrets/key", None),
    ("", None), ("\0", None), ("shop\0/../..", None), ("~/x", None), ("~root/x", None), ("x", "/etc"), ("x", ".."),
    ("x", "/tmp/../workspace"),
    ("a/" * 3000 + "x", None), ("x/" * 200 + "x", None), ("x" * 300, None), ("\ud800", None),
    ("file:///workspace/shop/cart.py/..", "/x"),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "cwd", "path"), INSIDE)
def test_a_path_inside_is_found_through_its_links(workspace: Path, shown: str, cwd: str | None, path: str) -> None:
    assert WorkspacePaths(workspace).resolve(shown, cwd) == path


@pytest.mark.parametrize(("shown", "cwd"), REFUSED, ids=lambda value: ascii(value)[:30])
def test_a_path_that_leaves_or_cannot_be_followed_is_none(workspace: Path, shown: str, cwd: str | None) -> None:
    assert WorkspacePaths(workspace).resolve(shown, cwd) is None


def test_a_chain_of_links_is_followed_up_to_its_limit(workspace: Path) -> None:
    (workspace / "l0").symlink_to("shop")
    for number in range(1, MAX_LINKS + 1):
        (workspace / f"l{number}").symlink_to(f"l{number - 1}")
    paths = WorkspacePaths(workspace)
    assert paths.resolve(f"l{MAX_LINKS - 1}") == "shop"
    assert paths.resolve(f"l{MAX_LINKS}") is None


def test_links_that_multiply_are_bounded(workspace: Path) -> None:
    for number in range(1, 20):
        (workspace / f"m{number}").symlink_to("/".join([f"m{number - 1}/.."] * 10))
    (workspace / "m0").mkdir()
    assert WorkspacePaths(workspace).resolve("m19") is None


def test_a_workspace_that_is_gone_resolves_nothing(tmp_path: Path) -> None:
    assert WorkspacePaths(tmp_path / "missing").resolve("x") is None


def test_a_folder_swapped_for_a_link_in_a_loop_never_leads_outside(workspace: Path) -> None:
    folder, parked, link = workspace / "swap", workspace / "parked", workspace / "swap-link"
    folder.mkdir()
    (folder / "x").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            link.symlink_to("/etc")
            folder.rename(parked)
            link.rename(folder)
            folder.unlink()
            parked.rename(folder)

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        answers = {WorkspacePaths(workspace).resolve("swap/x") for _ in range(400)}
    finally:
        stop.set()
        worker.join(timeout=10)
    assert answers <= {"swap/x", None}


def test_no_descriptor_is_left_open(workspace: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    paths = WorkspacePaths(workspace)
    for shown, _ in REFUSED[:25]:
        paths.resolve(shown)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_lists_of_paths_go_by_whole_segments_and_deny_wins() -> None:
    rules = PathRules(read=(".",), write=("shop", "secrets"), deny=("secrets",))
    assert rules.refusal("shop/a", "write") is None
    assert rules.refusal("shop", "write") is None
    assert rules.refusal("shopX/a", "write") == "write"
    assert rules.refusal(".", "write") == "write"
    assert rules.refusal("secrets/a", "write") == "deny[0]"
    assert rules.refusal("secrets", "read") == "deny[0]"
    assert rules.refusal("secretsX", "read") is None
    assert rules.refusal(".git/config", "read") is None
    assert rules.refusal(None, "read") == "read"
    assert not holds_path("shop", "Shop/a")
