"""Clone in: from the user's repository to a workspace that shares nothing with it.

Makes the trusted git directory (outside the workspace; the base commit's objects and nothing else), fills the workspace
with the files of the base commit, and gives it a `.git` of its own: one commit, no remotes, no hooks, no identity of
the user. Runs to its end before the worker starts, so everything it writes is still the host's own.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from supervisor.repo.blob_stream import Blob, stream_blobs
from supervisor.repo.folders import Owner
from supervisor.repo.git import LONG_S, WORKER_EMAIL, WORKER_NAME, Git, init
from supervisor.repo.path_rules import PathRules
from supervisor.repo.tree import GITLINK, LINK, TreeEntry, read_tree, shown
from supervisor.repo.tree_policy import is_git_name, link_refusal
from supervisor.repo.workspace_fill import copy_folder, fill

BASE_REF = "refs/mxs/base"
MAX_LINK_BYTES = 4096
_QUICK_PACK = ("--delta-base-offset", "--window=0", "--compression=1")
"""What is packed already is copied as it is; searching for more deltas takes longer than it saves."""


@dataclass(frozen=True)
class LeftOut:
    """Something of the base commit that the workspace does not have, or not whole, and why."""

    path: str
    why: str


@dataclass
class BaseFiles:
    """The base commit's paths: those the workspace gets, and those it does not."""

    copied: dict[bytes, TreeEntry] = field(default_factory=dict)
    withheld: dict[bytes, str] = field(default_factory=dict)

    @classmethod
    async def choose(cls, git: Git, base: str | None, rules: PathRules) -> "BaseFiles":
        """Sort the tree of `base`: denied paths, submodules and links that leave the tree are withheld."""
        files = cls()
        entries = await read_tree(git, base) if base else {}
        targets = await _link_targets(git, entries)
        for path, entry in entries.items():
            why = _why_withheld(path, entry, targets.get(path), rules)
            if why is None:
                files.copied[path] = entry
            else:
                files.withheld[path] = why
        return files


async def take_base(source: Git, target_dir: Path, object_format: str, base: str | None, branch: str) -> Git:
    """Make the trusted git directory and copy into it the objects of `base`, without its history: a copy, not a link.
    `branch` starts at `base`."""
    target = await init(target_dir, object_format, bare=True)
    if base is None:
        return target
    with tempfile.TemporaryFile(dir=target_dir) as pack:
        asked = f"--shallow {base}\n{base}\n".encode()
        words = ("pack-objects", "-q", "--revs", "--shallow", "--stdout", *_QUICK_PACK)
        await Git(source.git_dir).run(*words, stdin=asked, stdout=pack.fileno(), timeout_s=LONG_S)
        pack.seek(0)
        await target.run("index-pack", "--stdin", stdin=pack.fileno(), timeout_s=LONG_S)
    (target_dir / "shallow").write_text(f"{base}\n")
    refs = f"create {BASE_REF} {base}\ncreate refs/heads/{branch} {base}\n"
    await target.run("update-ref", "--stdin", stdin=refs.encode())
    return target


async def fill_workspace(git: Git, files: BaseFiles, workspace: Path, owner: Owner | None) -> tuple[LeftOut, ...]:
    """Write the copied files. Returns what a person should know is missing or not whole."""
    entries = list(files.copied.items())
    requests = [entry.oid.encode() for _, entry in entries]
    pointers = await stream_blobs(git, requests, partial(fill, workspace, entries, owner))
    left_out = [LeftOut(shown(path), why) for path, why in files.withheld.items()]
    left_out += [LeftOut(shown(path), "a git-lfs pointer, copied without its content") for path in pointers]
    return tuple(left_out)


async def give_fresh_git(
    git: Git, object_format: str, base: str | None, files: BaseFiles, branch: str, workspace: Path, owner: Owner | None
) -> None:
    """Build a repository with one commit of the copied files beside the trusted one, and copy it in as `.git`."""
    place = Path(tempfile.mkdtemp(prefix="fresh-", dir=git.git_dir.parent))
    try:
        fresh = await init(place / ".git", object_format, bare=False, branch=branch)
        if base is not None:
            await _commit_into(git, fresh, base, files, branch)
        with (fresh.git_dir / "config").open("a") as config:
            config.write(f"[user]\n\tname = {WORKER_NAME}\n\temail = {WORKER_EMAIL}\n")
        await anyio.to_thread.run_sync(copy_folder, fresh.git_dir, workspace, b".git", owner)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))


async def _commit_into(git: Git, fresh: Git, base: str, files: BaseFiles, branch: str) -> None:
    tree = await _tree_of(git, base, files)
    commit = await git.line("commit-tree", "-m", "The files this worker was given", tree)
    with tempfile.TemporaryFile(dir=git.git_dir) as pack:
        words = ("pack-objects", "-q", "--revs", "--stdout", *_QUICK_PACK)
        await git.run(*words, stdin=f"{commit}\n".encode(), stdout=pack.fileno(), timeout_s=LONG_S)
        pack.seek(0)
        await fresh.run("index-pack", "--stdin", stdin=pack.fileno(), timeout_s=LONG_S)
    await fresh.run("update-ref", f"refs/heads/{branch}", str(commit))
    await fresh.run("read-tree", str(commit))


async def _tree_of(git: Git, base: str, files: BaseFiles) -> str:
    if not files.withheld:
        return f"{base}^{{tree}}"
    with tempfile.TemporaryDirectory(dir=git.git_dir) as place:
        indexed = git.with_environment(GIT_INDEX_FILE=str(Path(place) / "index"))
        listing = b"".join(
            b"%o %s\t%s\0" % (entry.mode, entry.oid.encode(), path) for path, entry in files.copied.items()
        )
        await indexed.run("update-index", "-z", "--index-info", stdin=listing, timeout_s=LONG_S)
        return str(await indexed.line("write-tree"))


async def _link_targets(git: Git, entries: dict[bytes, TreeEntry]) -> dict[bytes, bytes]:
    links = [path for path, entry in entries.items() if entry.mode == LINK]

    def read(blobs: Iterator[Blob]) -> list[bytes]:
        return [blob.content() if blob.size <= MAX_LINK_BYTES else b"/" for blob in blobs]

    targets = await stream_blobs(git, [entries[path].oid.encode() for path in links], read)
    return dict(zip(links, targets, strict=True))


def _why_withheld(path: bytes, entry: TreeEntry, target: bytes | None, rules: PathRules) -> str | None:
    if rules.is_denied(path):
        return "denied by the role's paths"
    if entry.mode == GITLINK:
        return "a submodule"
    if any(is_git_name(segment) for segment in path.split(b"/")):
        return "a name that stands for .git"
    return link_refusal(path, target) if target is not None else None
