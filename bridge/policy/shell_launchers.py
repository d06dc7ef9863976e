"""Commands that run other commands, and where in their words those stand.

Leaf under `shell_line`; pure data and word arithmetic. Two readings are given, because the two kinds of list err on
different sides. What *may* be started: every run of words after a launcher's name, whatever its options mean; deny and
ask lists see it. What *certainly* is started: the words right after the name, where no option stands between; allow
lists see only that, and `clear` is False where it cannot be told.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.policy.shell_words import Word

Words = tuple[Word, ...]

_WRAPPERS: Final = (
    "bwrap busybox builtin chrt command coproc dbus-run-session doas env exec firejail flock gdb ionice ltrace nice "
    "nohup nsenter parallel perf prlimit runuser script setarch setpriv setsid ssh ssh-agent stdbuf strace su sudo "
    "systemd-run taskset time toybox unbuffer unshare valgrind watch xargs"
)
# The grammar and the shell may disagree on where one of these starts.
_RESERVED_WORDS: Final = "! { } case do elif else for function if in select then until while"

LAUNCHERS: Final = dict.fromkeys(f"{_WRAPPERS} {_RESERVED_WORDS}".split(), 0) | {"timeout": 1, "chroot": 1}
"""Name → how many operands come before the command it starts."""

MAX_WORDS: Final = 128
"""Of a launcher; with more it is not followed."""

SHELLS: Final = frozenset({"ash", "bash", "dash", "fish", "ksh", "mksh", "rbash", "sh", "zsh"})
LINES: Final = frozenset({"alias", "eval", "trap"})
"""Builtins whose words are shell text."""

_SOURCING: Final = frozenset({".", "source"})
_EXECS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_SHELL_C: Final = re.compile(r"-[a-z]*c", re.ASCII)
_HAS_C: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=", re.ASCII)


@dataclass(frozen=True)
class Started:
    """What one simple command starts: further words, shell text, or something that cannot be told (`hidden`)."""

    certain: tuple[Words, ...] = ()
    possible: tuple[Words, ...] = ()
    lines: tuple[str, ...] = ()
    clear: bool = True  # `certain` and `lines` are all it starts
    hidden: bool = False  # it starts what the line does not show


def command_word(words: Words) -> str:
    """The last path segment of the command's name; empty where the name is not known."""
    return (words[0] or "").rpartition("/")[2] if words else ""


def started_by(words: Words) -> Started | None:
    """What `words` starts, or None where it is an ordinary command."""
    name = command_word(words)
    if name in SHELLS:
        return _shell(words)
    if name in _SOURCING:
        return Started(hidden=_is_input(words[1] if len(words) > 1 else None))
    if name in LINES:
        return _shell_text(words)
    if name == "find":
        return _find(words)
    if name in LAUNCHERS:
        return _launcher(words, LAUNCHERS[name])
    return None


def _launcher(words: Words, operands: int) -> Started | None:
    rest = words[1:]
    if not rest:
        return None
    if len(rest) > MAX_WORDS:
        return Started(hidden=True, clear=False)
    rest = _with_input(rest) if command_word(words) == "xargs" else rest
    inner = rest[operands:]
    clear = all(word is not None and not word.startswith("-") for word in rest[: operands + 1])
    clear = clear and bool(inner) and not _ASSIGNMENT.match(inner[0] or "")
    # A word that has to be split again (env -S, su -c, watch, script -c, ssh) may be a line of its own.
    lines = tuple(word.partition("=")[2] if word.startswith("--") else word for word in rest if word and " " in word)
    return Started(
        certain=(inner,) if clear else (),
        possible=tuple(rest[index:] for index in range(len(rest)) if rest[index] is not None),
        lines=lines,
        clear=clear and not lines,
        hidden=any(word is None for word in rest[: operands + 1]),
    )


def _with_input(words: Words) -> Words:
    """The words of xargs with what it reads as unknown words: appended, or in place of the replacement string."""
    for index, word in enumerate(words):
        if word and (flag := re.fullmatch(r"-[a-zA-Z0-9]*[iI](.*)|--replace=?(.*)", word, re.DOTALL)):
            following = words[index + 1] if index + 1 < len(words) else None
            replaced = flag[1] or flag[2] or (following if "I" in word else None) or "{}"
            return tuple(None if other is not None and replaced in other else other for other in words)
    return (*words, None)


def _shell(words: Words) -> Started:
    rest = words[1:]
    given = next((index for index, word in enumerate(rest) if word and _HAS_C.fullmatch(word)), None)
    if given is None:
        operand = next((word for word in rest if word is None or not word.startswith("-")), "-")
        # Without an operand the program comes on standard input, which no rule sees.
        return Started(hidden="-s" in rest or _is_input(operand))
    after = rest[given + 1 :]
    clear = given == 0 and bool(after) and after[0] is not None and bool(_SHELL_C.fullmatch(rest[0] or ""))
    lines = tuple(word for word in after if word is not None and not word.startswith("-"))
    return Started(lines=lines[:1] if clear else lines, clear=clear, hidden=not after or (not clear and None in after))


def _is_input(operand: Word) -> bool:
    return operand in (None, "-", "") or operand.startswith(("/dev/", "/proc/"))


def _shell_text(words: Words) -> Started:
    rest = words[1:]
    if any(word is None for word in rest):
        return Started(hidden=True)
    known = [word for word in rest if word is not None]
    if command_word(words) == "eval":
        return Started(lines=(" ".join(known),) if known else ())
    return Started(lines=tuple(word.partition("=")[2] if "=" in word else word for word in known), clear=False)


def _find(words: Words) -> Started | None:
    starts = tuple(_exec_runs(words))
    if starts:
        return Started(certain=starts)
    return None


def _exec_runs(words: Words) -> Iterator[Words]:
    for index, word in enumerate(words):
        if word in _EXECS:
            run = words[index + 1 :]
            end = next((at for at, part in enumerate(run) if part in (";", "+")), len(run))
            yield tuple(None if part is None or "{}" in part else part for part in run[:end])
