"""Trees as data: what `ls-tree` and `diff-tree` say, parsed. Paths are bytes, as git and the kernel have them."""

import os
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.repo.git import LONG_S, Git

FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
GITLINK = 0o160000


class TreeEntry(NamedTuple):
    """One path of a tree: its git mode and the id of its blob (or of the submodule's commit)."""

    mode: int
    oid: str


@dataclass(frozen=True)
class TreeChange:
    """One path that differs between two trees; a mode of 0 means that this side does not have it."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


def shown(path: bytes) -> str:
    """A path for people and records: UTF-8, with bytes that are not as `\\xHH`."""
    return path.decode("utf-8", "backslashreplace")


def empty_tree(object_format: str) -> str:
    """The id of the tree without entries."""
    if object_format == "sha256":
        return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
    return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


async def read_tree(git: Git, tree: str) -> dict[bytes, TreeEntry]:
    """Every file, link and submodule below `tree` (a commit or tree id), by path."""
    listing = await git.run("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree, timeout_s=LONG_S)
    entries = {}
    for record in listing.split(b"\0")[:-1]:
        head, path = record.split(b"\t", 1)
        mode, _, oid = head.split(b" ")
        entries[path] = TreeEntry(int(mode, 8), oid.decode())
    return entries


async def changes_between(git: Git, old: str, new: str) -> list[TreeChange]:
    """The paths that differ from tree `old` to tree `new`, a rename being a deletion and an addition."""
    words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", "--no-commit-id", "--no-ext-diff")
    fields = (await git.run(*words, "--end-of-options", old, new, timeout_s=LONG_S)).split(b"\0")[:-1]
    return [_change(head, path) for head, path in zip(fields[::2], fields[1::2], strict=True)]


def _change(head: bytes, path: bytes) -> TreeChange:
    old_mode, new_mode, old_oid, new_oid, _ = os.fsdecode(head).removeprefix(":").split(" ")
    return TreeChange(path, _side(old_mode, old_oid), _side(new_mode, new_oid))


def _side(mode: str, oid: str) -> TreeEntry | None:
    return TreeEntry(int(mode, 8), oid) if int(mode, 8) else None
