"""Which paths of the workspace a role may change (contracts.md, section 3, `native.paths`). Pure.

Whole segments, compared byte by byte. The walk that asks never follows links, so a path here is where the file lies.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PathRules:
    """`write`: subtrees that come back on the result branch. `deny`: subtrees that are never copied in nor out.
    Both are relative to the workspace; `.` is all of it."""

    write: tuple[str, ...] = (".",)
    deny: tuple[str, ...] = ()

    def is_denied(self, path: bytes) -> bool:
        """Whether `path` lies in a denied subtree."""
        return any(_holds(subtree, path) for subtree in self.deny)

    def refusal(self, path: bytes) -> str | None:
        """Why a change of `path` may not come back; None if it may."""
        if self.is_denied(path):
            return "denied by the role's paths"
        if not any(_holds(subtree, path) for subtree in self.write):
            return "outside the paths that the role may write"
        return None


def _holds(subtree: str, path: bytes) -> bool:
    segments = [
        segment for segment in subtree.encode("utf-8", "surrogateescape").split(b"/") if segment not in (b"", b".")
    ]
    return path.split(b"/")[: len(segments)] == segments
