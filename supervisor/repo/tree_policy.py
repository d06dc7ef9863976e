"""Which names and links may arrive in the user's repository. Pure; refuses what git's own check lets pass.

Used twice: while recording, where what it refuses is left behind and listed, and at the hand-over, where nothing that
it refuses may be left. Names that the base commit already has are the user's own and are not judged again.
"""

import re
import unicodedata
from collections.abc import Iterable

from supervisor.repo.tree import FILE, LINK, TreeEntry

MAX_PATH_BYTES = 4096
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_NTFS_SHORT_NAME = re.compile(r"git~[0-9]+")


def is_git_name(segment: bytes) -> bool:
    """Whether some file system or git itself takes `segment` for `.git`."""
    text = _IGNORED_BY_HFS.sub("", segment.decode("utf-8", "surrogateescape"))
    text = text.partition(":")[0].rstrip(" .").casefold()
    return text == ".git" or _NTFS_SHORT_NAME.fullmatch(text) is not None


def name_refusal(path: bytes) -> str | None:
    """Why a new file may not have this name; None if it may."""
    if len(path) > MAX_PATH_BYTES:
        return f"a name of more than {MAX_PATH_BYTES} bytes"
    if any(_is_unprintable(character) for character in path.decode("utf-8", "surrogateescape")):
        return "a control or direction-changing character in its name"
    if any(is_git_name(segment) for segment in re.split(rb"[/\\]", path)):
        return "a name that stands for .git"
    if any(segment in (b"", b".", b"..") for segment in path.split(b"/")):
        return "a name that is no plain path"
    return None


def link_refusal(path: bytes, target: bytes) -> str | None:
    """Why the symbolic link at `path` may not point at `target`; None if it stays inside the tree.

    Upward steps are taken at the start alone: the folder of a link is a real folder, so those can be counted, while one
    that comes later may start from wherever another link leads.
    """
    segments = [segment for segment in target.split(b"/") if segment not in (b"", b".")]
    upward = 0
    while upward < len(segments) and segments[upward] == b"..":
        upward += 1
    if target.startswith(b"/") or upward > path.count(b"/") or b".." in segments[upward:]:
        return "a link that leads out of the tree"
    if any(is_git_name(part) for segment in segments for part in segment.split(b"\\")):
        return "a link into .git"
    return None


class Spellings:
    """The names of one tree, to find additions that would fold into another's place: on a file system without case,
    `readme` is `README`, and nowhere can a file and a folder share one name."""

    def __init__(self, paths: Iterable[bytes]) -> None:
        self._seen: dict[str, tuple[bytes, bool]] = {}
        for path in paths:
            self.add(path)

    def add(self, path: bytes) -> None:
        """Take `path` into the tree."""
        for prefix, is_folder in _prefixes(path):
            self._seen.setdefault(_fold(prefix), (prefix, is_folder))

    def refusal(self, path: bytes) -> str | None:
        """Why `path` cannot be added to the tree; None if it can."""
        for prefix, is_folder in _prefixes(path):
            other = self._seen.get(_fold(prefix))
            if other is None:
                return None
            if other[0] != prefix:
                return "a name that differs from another only in case or form"
            if other[1] != is_folder:
                return "a name that is a folder on one side and a file on the other"
        return None


def mode_refusal(entry: TreeEntry) -> str | None:
    """Why an entry of this kind may not arrive; None for files and links."""
    return None if entry.mode in (FILE, FILE | 0o111, LINK) else "neither a file nor a link"


def _is_unprintable(character: str) -> bool:
    code = ord(character)
    is_raw_c1 = 0xDC80 <= code <= 0xDC9F
    return code < 0x20 or 0x7F <= code <= 0x9F or is_raw_c1 or character in _BIDI or character in "\u2028\u2029"


def _prefixes(path: bytes) -> list[tuple[bytes, bool]]:
    segments = path.split(b"/")
    return [(b"/".join(segments[: n + 1]), n + 1 < len(segments)) for n in range(len(segments))]


def _fold(name: bytes) -> str:
    return unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold()
