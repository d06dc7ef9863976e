"""Looks at the user's repository without changing a byte of it.

Knows nothing of workers. Above it: `clone_in` starts from what it finds, `hand_over` and `apply` ask again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from supervisor.repo.git import Git, discover
from supervisor.repo.repository_error import RepositoryError
from supervisor.repo.tree import shown

USAGE = 2
"""The exit code for a path that cannot be used (contracts.md, section 2)."""
NAMES_SHOWN = 10


@dataclass(frozen=True)
class UncommittedWork:
    """What lies in the work tree beside the last commit and so is not copied in. Counts of paths, and the first names;
    an untracked folder counts as one. Ignored files are not counted."""

    modified: int = 0
    staged: int = 0
    untracked: int = 0
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.modified or self.staged or self.untracked)


@dataclass(frozen=True)
class RepositoryState:
    """One repository as it is now. `top_level` is None where it is bare, `head` where there is no commit yet,
    `branch` where HEAD is detached."""

    top_level: Path | None
    git_dir: Path
    common_dir: Path
    object_format: str
    head: str | None
    branch: str | None
    uncommitted: UncommittedWork = UncommittedWork()

    def git(self) -> Git:
        """git on its objects and refs: isolated from every configuration but its own."""
        return Git(self.git_dir)


async def inspect(path: Path) -> RepositoryState:
    """Find the repository that holds `path` and say what state it is in.

    Raises `RepositoryError` (exit 2) where there is none or it cannot be read.
    """
    folder = Path(await anyio.Path(path).absolute())
    if not await anyio.Path(folder).is_dir():
        raise RepositoryError(
            f"{shown_path(path)!r} is not a folder.", "Give --repo the folder of a git repository.", USAGE
        )
    git_dir = await discover(folder, "--absolute-git-dir")
    if git_dir is None:
        raise RepositoryError(
            f"{shown_path(path)!r} is not inside a git repository that can be read.",
            "Run `git init` there, or give --repo another folder.",
            USAGE,
        )
    top_level = await _top_level(folder, path)
    common_dir = await discover(folder, "--path-format=absolute", "--git-common-dir")
    object_format = await discover(folder, "--show-object-format")
    git = Git(Path(git_dir))
    head, branch = await _head(git, path)
    uncommitted = (
        UncommittedWork() if top_level is None else await _uncommitted(work_tree_git(Path(git_dir), top_level))
    )
    common = Path(common_dir or git_dir)
    return RepositoryState(top_level, Path(git_dir), common, object_format or "sha1", head, branch, uncommitted)


def work_tree_around(path: Path) -> Path:
    """The nearest folder at or above `path`, links resolved, that is a work tree; `path` itself where there is none."""
    folder = path.resolve()
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def shown_path(path: Path) -> str:
    """A path of the host for a message."""
    return shown(os.fsencode(path))


def work_tree_git(git_dir: Path, top_level: Path) -> Git:
    """git on the user's own work tree. The user's filters count (a file that git-lfs keeps is not a changed file), but
    only where the repository is the user's: the filters of somebody else's configuration are never run."""
    return Git(git_dir, work_tree=top_level, users_config=git_dir.stat().st_uid == os.geteuid())


async def without_foreign_filters(git: Git) -> Git:
    """The same git, with every configured filter switched off where the repository belongs to somebody else."""
    if git.users_config:
        return git
    _, listed = await git.call("config", "-z", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1))
    names = {os.fsdecode(key).rpartition(".")[0] for key in listed.split(b"\0")[:-1]}
    off = (f"{name}.{key}" for name in sorted(names) for key in ("clean=", "smudge=", "process=", "required=false"))
    return Git(git.git_dir, work_tree=git.work_tree, config=(*git.config, *off), environment=git.environment)


async def read_files(state: RepositoryState, names: Sequence[str], longest: int) -> dict[str, str]:
    """The first `longest` bytes of files at the top of the last commit, as text by name; those there are."""
    if state.head is None or not names:
        return {}
    asked = "".join(f"{state.head}:{name}\n" for name in names).encode()
    answer = await state.git().run("cat-file", "--batch", stdin=asked)
    found = {}
    for name in names:
        head, _, answer = answer.partition(b"\n")
        fields = head.split(b" ")
        if len(fields) == 3:  # "<id> <kind> <size>", else "… missing" or "… submodule"
            kind, size = fields[1], int(fields[2])
            if kind == b"blob":
                found[name] = answer[: min(size, longest)].decode(errors="replace")
            answer = answer[size + 1 :]
    return found


async def _top_level(folder: Path, path: Path) -> Path | None:
    if await discover(folder, "--is-bare-repository") == "true":
        return None
    top_level = await discover(folder, "--show-toplevel")
    if top_level is None:
        message = f"{shown_path(path)!r} lies inside the git directory of a repository."
        raise RepositoryError(message, "Give --repo the folder of its work tree.", USAGE)
    return Path(top_level)


async def _head(git: Git, path: Path) -> tuple[str | None, str | None]:
    branch = await git.line("symbolic-ref", "-q", "HEAD", ok=(0, 1))
    head = await git.line("rev-parse", "-q", "--verify", "--end-of-options", "HEAD^{commit}", ok=(0, 1, 128))
    if head is None and (branch is None or await _exists(git, branch)):
        message = f"HEAD of the repository at {shown_path(path)!r} names a commit that is missing."
        raise RepositoryError(message, "Run `git fsck` there.", USAGE)
    return head, branch.removeprefix("refs/heads/") if branch else None


async def _exists(git: Git, ref: str) -> bool:
    code, _ = await git.call("show-ref", "--verify", "-q", "--", ref, ok=(0, 1, 128))
    return code != 1  # 128: it is there and names nothing


async def _uncommitted(git: Git) -> UncommittedWork:
    words = ("status", "--porcelain=v2", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames")
    records = (await (await without_foreign_filters(git)).run(*words)).split(b"\0")[:-1]
    staged = modified = untracked = 0
    names = []
    for record in records:
        kind, _, rest = record.partition(b" ")
        fields = {b"1": 7, b"u": 9, b"?": 0}.get(kind)
        if fields is None:
            continue
        names.append(shown(rest.split(b" ", fields)[-1]))
        untracked += kind == b"?"
        staged += kind != b"?" and rest[:1] != b"."
        modified += kind != b"?" and rest[1:2] != b"."
    return UncommittedWork(modified, staged, untracked, tuple(names[:NAMES_SHOWN]))
