"""Takes apart the command line that Codex shows in an approval: `/usr/bin/bash -c 'LINE'` back to `LINE`.

Pure and a leaf. Python's `shlex` keeps a backslash before `$` and a backquote inside double quotes, which Codex
writes, so the words are split here by the rules of POSIX. Only a shell of the image's own folders counts;
everything else is None.
"""

import re
from typing import Final

SHELLS: Final = frozenset(
    f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("bash", "sh", "dash", "zsh")
)
RUN_A_LINE: Final = frozenset({"-c", "-lc"})

_PIECE: Final = re.compile(
    r"""(?P<space>[ \t\n]+) | '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)"
        | \\(?P<escaped>.) | (?P<bare>[^ \t\n'"\\]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE_IN_DOUBLE: Final = re.compile(r'\\([$`"\\])|\\\n', re.DOTALL)


def words_of(line: str) -> tuple[str, ...] | None:
    """The words of a quoted line without any expansion; None where a quote does not end."""
    words: list[str] = []
    position, inside = 0, False
    while position < len(line):
        match = _PIECE.match(line, position)
        if match is None:
            return None
        position = match.end()
        if match["space"] is not None:
            inside = False
            continue
        if not inside:
            words.append("")
        inside = True
        words[-1] += _text_of(match)
    return tuple(words)


def _text_of(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE_IN_DOUBLE.sub(lambda escape: escape[1] or "", match["double"])
    return next(text for text in (match["single"], match["escaped"], match["bare"]) if text is not None)


def line_given_to_shell(command: str) -> str | None:
    """The line that a known shell is to run, or None where `command` is anything else."""
    words = words_of(command)
    if words is None or len(words) != 3 or words[0] not in SHELLS or words[1] not in RUN_A_LINE:
        return None
    return words[2]
