"""The result's way out: trusted directory → bundle → quarantine → checks → one ref in the user's repository.

The quarantine is a bare repository that borrows the user's objects for reading, so what arrives can be checked against
its base before the user's repository sees any of it. git checks every object on the last step, our policy the rest.
Above it stands `worker_repository`; it knows no workspace.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from supervisor.repo.blob_stream import Blob, stream_blobs
from supervisor.repo.clone_in import BASE_REF
from supervisor.repo.fast_import import quoted
from supervisor.repo.git import LONG_S, Git, GitFailedError, init
from supervisor.repo.inspection import RepositoryState, shown_path
from supervisor.repo.repository_error import RepositoryError
from supervisor.repo.tree import LINK, TreeChange, changes_between, empty_tree, read_tree, shown
from supervisor.repo.tree_policy import Spellings, link_refusal, mode_refusal, name_refusal

_FETCH_CONFIG = (
    "transfer.fsckObjects=true",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
    "core.commitGraph=false",
)


@dataclass(frozen=True)
class ResultStat:
    """How much a result changes. A binary file counts as changed, without lines."""

    changed: int = 0
    insertions: int = 0
    deletions: int = 0


async def deliver(trusted: Git, source: RepositoryState, branch: str, base: str | None) -> None:
    """Bring `branch` of the trusted directory to the user's repository as `refs/heads/<branch>`, and nothing else.

    Raises `RepositoryError` where the branch is there already or something in it may not arrive.
    """
    await _refuse_taken_names(source, branch)
    async with _scratch(trusted.git_dir.parent, "quarantine-") as place:
        quarantine = await _quarantine(trusted, source, branch, base, place)
        await _check_tree(quarantine, base or empty_tree(source.object_format), f"refs/heads/{branch}", base is None)
        await _fetch(quarantine, source, branch)


async def branch_tip(source: RepositoryState, branch: str) -> str | None:
    """The commit that the user's repository has at `branch`; None if it has none."""
    words = ("rev-parse", "-q", "--verify", "--end-of-options", f"refs/heads/{branch}^{{commit}}")
    return await source.git().line(*words, ok=(0, 1, 128))


async def result_stat(git: Git, base: str, tip: str) -> ResultStat:
    """Count what changed from tree or commit `base` to `tip`."""
    words = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-commit-id", "--no-ext-diff", "--no-textconv")
    records = (await git.run(*words, "--end-of-options", base, tip, timeout_s=LONG_S)).split(b"\0")[:-1]
    counts = [record.split(b"\t", 2)[:2] for record in records]
    lines = [[int(count) if count.isdigit() else 0 for count in pair] for pair in counts]
    return ResultStat(len(lines), sum(added for added, _ in lines), sum(removed for _, removed in lines))


@asynccontextmanager
async def _scratch(parent: Path, prefix: str) -> AsyncIterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))


async def _refuse_taken_names(source: RepositoryState, branch: str) -> None:
    if not source.common_dir.is_dir():
        message = f"The repository {shown_path(source.common_dir)!r} is gone."
        raise RepositoryError(message, "Put it back; the result is kept until then.")
    for name in (branch, branch.partition("/")[0]):
        code, _ = await source.git().call("show-ref", "--verify", "-q", "--", f"refs/heads/{name}", ok=(0, 1))
        if code == 0:
            message = f"The repository already has a branch {name!r}."
            raise RepositoryError(message, f"Rename it (`git branch -m {name} …`); the result is kept until then.")


async def _quarantine(trusted: Git, source: RepositoryState, branch: str, base: str | None, place: Path) -> Git:
    bundle = place / "result.bundle"
    span = [f"refs/heads/{branch}"] if base is None else [f"{base}..refs/heads/{branch}"]
    await trusted.run("bundle", "create", "-q", str(bundle), *span, timeout_s=LONG_S)
    quarantine = await init(place / "quarantine.git", source.object_format, bare=True)
    borrow_objects(quarantine.git_dir, source)
    shallow = source.common_dir / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, quarantine.git_dir / "shallow")
    if base is not None:
        await quarantine.run("update-ref", BASE_REF, base)
    words = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--end-of-options")
    await quarantine.run(*words, str(bundle), f"refs/heads/{branch}:refs/heads/{branch}", timeout_s=LONG_S)
    return quarantine


def borrow_objects(git_dir: Path, source: RepositoryState) -> None:
    """Let the bare repository `git_dir` of ours read the objects of `source` where they are."""
    info = git_dir / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(quoted(os.fsencode(source.common_dir / "objects")) + b"\n")


async def _check_tree(quarantine: Git, base: str, tip: str, is_first: bool) -> None:
    changes = await changes_between(quarantine, base, tip)
    arriving = [change for change in changes if change.new is not None]
    kept = (await read_tree(quarantine, tip)).keys() - {change.path for change in arriving if change.old is None}
    refused = dict(_name_refusals(arriving, Spellings(kept)))
    refused.update(await _link_refusals(quarantine, arriving))
    if refused:
        path, why = min(refused.items())
        raise RepositoryError(
            f"The result was not handed over: {shown(path)!r} is {why}.", "Look at it with `mxs diff`; it is kept."
        )
    if not is_first and int(await quarantine.line("rev-list", "--count", f"{BASE_REF}..{tip}") or 0) == 0:
        raise RepositoryError("The result holds no commit above its base.", "Nothing is to be handed over.")


def _name_refusals(arriving: Iterable[TreeChange], spellings: Spellings) -> list[tuple[bytes, str]]:
    refused = []
    for change in arriving:
        assert change.new is not None
        why = mode_refusal(change.new)
        if change.old is None:
            why = why or name_refusal(change.path) or spellings.refusal(change.path)
            spellings.add(change.path)
        if why:
            refused.append((change.path, why))
    return refused


async def _link_refusals(git: Git, arriving: Iterable[TreeChange]) -> dict[bytes, str]:
    links = [(change.path, change.new.oid.encode()) for change in arriving if change.new and change.new.mode == LINK]

    def read(blobs: Iterable[Blob]) -> list[bytes]:
        return [blob.content() for blob in blobs]

    targets = await stream_blobs(git, [oid for _, oid in links], read)
    refusals = {path: link_refusal(path, target) for (path, _), target in zip(links, targets, strict=True)}
    return {path: why for path, why in refusals.items() if why}


async def _fetch(quarantine: Git, source: RepositoryState, branch: str) -> None:
    ref = f"refs/heads/{branch}"
    git = Git(source.git_dir, config=_FETCH_CONFIG)
    packs = source.common_dir / "objects" / "pack"
    before = set(packs.iterdir()) if packs.is_dir() else set()
    words = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
    try:
        await git.run(*words, "--end-of-options", quarantine.git_dir.as_uri(), f"{ref}:{ref}", timeout_s=LONG_S)
    except GitFailedError as failed:
        message = f"git refused the result: {failed.stderr.strip()}"
        raise RepositoryError(message, "Look at it with `mxs diff`; it is kept.") from failed
    _give_to_owner(source, sorted(set(packs.iterdir()) - before), branch)


def _give_to_owner(source: RepositoryState, new_files: list[Path], branch: str) -> None:
    """When root works in somebody's repository, what it adds must not be in that user's way afterwards."""
    status = source.common_dir.stat()
    if os.geteuid() != 0 or status.st_uid == 0:
        return
    heads = source.common_dir / "refs" / "heads"
    ref_files = [heads / branch, *(heads / branch).parents[: branch.count("/")]]
    for path in [*new_files, *ref_files]:
        if path.exists():
            os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)
