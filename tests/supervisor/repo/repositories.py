"""A user's repository made by the real git, and a worker's repository on it."""

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from supervisor.repo import PathRules, WorkerRepository, inspect

EVERYTHING = PathRules()
SHOP = {"shop/cart.py": b"a - b\n", "README.md": b"shop\n", "run.sh": b"#!/bin/sh\n", "secrets/key": b"s3cret\n"}


class UserRepository:
    """The user's repository, driven by plain git as the user does."""

    def __init__(self, top: Path, *, object_format: str = "sha1", git_dir: Path | None = None) -> None:
        self.top = top
        if git_dir is None:
            top.mkdir(parents=True, exist_ok=True)
            self.git("init", "-q", f"--object-format={object_format}", "--initial-branch=trunk")
        self.git_dir = git_dir or top / ".git"

    def git(self, *words: str | bytes, stdin: bytes = b"", check: bool = True) -> str:
        environment = {
            "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C",
            "GIT_AUTHOR_NAME": "user", "GIT_AUTHOR_EMAIL": "user@host.invalid",
            "GIT_COMMITTER_NAME": "user", "GIT_COMMITTER_EMAIL": "user@host.invalid",
        }  # fmt: skip
        words = ("-c", "safe.directory=*", "-c", "protocol.file.allow=always", *words)
        done = subprocess.run(["git", *words], cwd=self.top, input=stdin, capture_output=True, env=environment)
        assert not check or done.returncode == 0, done.stderr
        return os.fsdecode(done.stdout).strip("\n")

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def commit(self, files: Mapping[str, bytes] | None = None) -> str:
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "work")
        return self.git("rev-parse", "HEAD")

    def tree(self, commit: str) -> dict[bytes, tuple[str, str]]:
        """Path -> (mode, id) of a commit."""
        listing = os.fsencode(self.git("ls-tree", "-r", "-z", "--full-tree", commit)).split(b"\0")
        pairs = [record.split(b"\t", 1) for record in listing if record]
        return {path: (head.split()[0].decode(), head.split()[2].decode()) for head, path in pairs}


def plain_git(folder: Path, *words: str, stdin: bytes = b"", check: bool = True) -> bytes:
    """Run git as a person would, with nothing switched off."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *words], cwd=folder, input=stdin, capture_output=True, timeout=30
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def names_below(folder: Path) -> set[str]:
    """The last segments of everything below `folder`, links that lead nowhere too."""
    return {name for _, folders, files in os.walk(folder) for name in (*folders, *files)}


def inodes(folder: Path) -> set[int]:
    """The inodes of everything below `folder`."""
    return {path.lstat().st_ino for path in folder.rglob("*")}


def fingerprint(folder: Path, *, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every file below `folder` with its mode and digest, leaving out paths that begin with one of `but`."""
    found = {}
    for here, folders, files in os.walk(folder):
        for name in [*files, *folders]:
            path = Path(here) / name
            relative = str(path.relative_to(folder))
            if relative.startswith(but):
                continue
            if path.is_symlink():
                found[relative] = "link " + str(path.readlink())
            elif path.is_file():
                found[relative] = f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


class Worker:
    """A worker's repository and the paths around it."""

    def __init__(self, repository: WorkerRepository, workspace: Path, folder: Path) -> None:
        self.repository = repository
        self.workspace = workspace
        self.folder = folder

    def write(self, name: str, content: bytes) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


async def start_worker(
    top: Path, place: Path, rules: PathRules = EVERYTHING, worker_id: str = "claude-7f3k2m"
) -> Worker:
    """Clone in from `top`; everything of the worker lies below `place`."""
    workspace, folder = place / "workspace", place / "state"
    repository = await WorkerRepository.prepare(await inspect(top), worker_id, folder, workspace, rules)
    return Worker(repository, workspace, folder)
