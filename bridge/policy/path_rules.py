"""The path lists of a role, and their verdict on a path of the workspace (contracts.md, section 3).

Leaf; pure. Paths come resolved from `workspace_paths`: relative, without `.`, `..` or links in them. Entries are
compared by whole segments; `.` holds everything; `deny` holds for reading and writing and beats the rest. Writing does
not imply reading. `.git` is a folder like any other.
"""

from dataclasses import dataclass
from typing import Final

from bridge.contract.tool_invocation import Access

_MAX_PATH_CHARACTERS: Final = 4096


@dataclass(frozen=True)
class PathRules:
    """The three lists, as written. The default denies every path."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def refusal(self, path: str | None, access: Access) -> str | None:
        """The rule that refuses (`deny[0]`, or the list that does not hold the path), or None where it is granted."""
        if path is None:
            return access
        denied = next((index for index, entry in enumerate(self.deny) if holds_path(entry, path)), None)
        if denied is not None:
            return f"deny[{denied}]"
        granted = self.read if access == "read" else self.write
        return None if any(holds_path(entry, path) for entry in granted) else access


def holds_path(entry: str, path: str) -> bool:
    """Whether `path` is the subtree `entry` or lies in it, by whole segments."""
    return entry == "." or path == entry or path.startswith(f"{entry}/")


def path_entry_problem(entry: str) -> str | None:
    """Why an entry is outside the grammar, or None."""
    if entry == ".":
        return None
    if not entry or len(entry) > _MAX_PATH_CHARACTERS or not entry.isprintable():
        return "a path entry is a printable path of at most 4096 characters"
    if any(mark in entry for mark in "*?["):
        return "a path entry is a folder or file with all below it, without wildcards"
    if any(segment in ("", ".", "..") for segment in entry.split("/")):
        return "a path entry is relative to the workspace, without empty, '.' or '..' segments or a '/' at its ends"
    return None
