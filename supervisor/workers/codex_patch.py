"""What a Codex patch touches: the paths of its headers, read from the text that the model wrote.

Pure and a leaf. Reads more leniently than Codex does, so that no file Codex would touch is missed: a line that only
might be a header counts as one. Knows no policy and no folder; above stands `native_codex`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

BEGIN: Final = "*** Begin Patch"
HEADERS: Final = ("*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:")

_HEREDOC: Final = re.compile(
    r"""\s* (?:cd\s+(?P<folder>'[^'\n]+'|"[^"\n$`\\]+"|[\w./+@:-]+)\s*&&\s*)?
        (?:apply_patch|applypatch)\s+<<\s*(?P<quote>['"])(?P<end>\w+)(?P=quote)[ \t]*\n
        (?P<patch>.*)\n(?P=end)\s*""",
    re.VERBOSE | re.DOTALL,
)


def patched_paths(patch: str) -> tuple[str, ...]:
    """The paths that `patch` adds, updates, deletes or moves to, as written, each once. Empty for what is no patch."""
    if BEGIN not in patch:
        return ()
    return tuple(dict.fromkeys(_header_paths(patch)))


def _header_paths(patch: str) -> Iterator[str]:
    for line in patch.splitlines():
        header = line.strip()
        for prefix in HEADERS:
            if header.startswith(prefix) and (path := header.removeprefix(prefix).strip()):
                yield path


def patched_by_command(command: str) -> tuple[str, ...]:
    """The paths of a shell line that is nothing but `[cd FOLDER &&] apply_patch <<'END' …`, as Codex intercepts it.

    Empty for every other line, one with an unquoted word after `<<` too: a shell would expand what stands inside.
    """
    match = _HEREDOC.fullmatch(command)
    if match is None or re.search(rf"^{match['end']}$", match["patch"], re.MULTILINE):
        return ()
    folder = shlex.split(match["folder"])[0] if match["folder"] else "."
    return tuple(str(PurePosixPath(folder) / path) for path in patched_paths(match["patch"]))
