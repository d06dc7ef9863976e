"""The shell lists of a role, and their verdict on a line (contracts.md, section 3).

Below: `shell_line`. Above: `security_delegate`. A pattern is `*` or words: an argv prefix of a simple command.

- **allow** reads a pattern strictly. Every command that the line runs has to begin with the words of some pattern, the
  command's name letter for letter (`git` does not vouch for `./git`); launchers (`timeout`, `env`, `bash -c`) and what
  they start are commands each. `*` vouches for any line. A line that sets variables other than plain lower-case ones,
  or has options between a launcher and its command, is vouched for by `*` alone.
- **deny** and **ask** read a pattern widely. The name is compared by its last path segment; option words, with or
  without a value, may stand anywhere between the pattern's words; options are found at any place, in clusters and
  abbreviated; a word that only the running shell knows counts as any word; all that a launcher may start counts.
- An opaque line (see `shell_line`) passes only with `*` in allow, and with empty deny and ask lists.
"""

import re
from dataclasses import dataclass
from typing import Final

from bridge.contract.tool_invocation import Verdict
from bridge.policy.shell_launchers import Words, command_word
from bridge.policy.shell_line import ShellLine, parse_shell_line
from bridge.policy.shell_words import Word

ANY_LINE: Final = "*"
_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_./:=@%+,~^-]+", re.ASCII)
_CLUSTER: Final = re.compile(r"-[A-Za-z0-9]+", re.ASCII)
_PARTS: Final = re.compile(r"[=!\s]+")
_SHORTEST_ABBREVIATION: Final = len("--x")


@dataclass(frozen=True)
class ShellRules:
    """The three lists, as written. The default denies every line."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def judge(self, command: str | None) -> tuple[Verdict, str | None]:
        """The verdict on a line and the rule that settled it, such as `deny[0]`; None = nothing allowed it."""
        any_line = self.allow.index(ANY_LINE) if ANY_LINE in self.allow else None
        if command is None:
            return "deny", None
        if any_line is not None and not self.deny and not self.ask:
            return "allow", f"allow[{any_line}]"
        line = parse_shell_line(command)
        if (denied := _first_wide(self.deny, line)) is not None:
            return "deny", f"deny[{denied}]"
        if line.opaque:
            return "deny", None
        if (asked := _first_wide(self.ask, line)) is not None:
            return "ask", f"ask[{asked}]"
        allowed = any_line if any_line is not None else self._strictly_allowed(line)
        return ("deny", None) if allowed is None else ("allow", f"allow[{allowed}]")

    def _strictly_allowed(self, line: ShellLine) -> int | None:
        if line.steered or not line.certain:
            return None
        rules = [_first_strict(self.allow, words) for words in line.certain]
        return None if None in rules else rules[0]


def shell_pattern_problem(pattern: str) -> str | None:
    """Why a pattern is outside the grammar, or None."""
    if pattern == ANY_LINE:
        return None
    words = pattern.split(" ")
    if all(_PLAIN_WORD.fullmatch(word) for word in words):
        return None
    return (
        "a shell pattern is '*' or the first words of a command, joined by single spaces, without quotes or wildcards"
    )


def _first_wide(patterns: tuple[str, ...], line: ShellLine) -> int | None:
    commands = [*line.certain, *line.possible]
    for index, pattern in enumerate(patterns):
        if pattern == ANY_LINE or any(_may_be(pattern.split(" "), words) for words in commands):
            return index
    return None


def _first_strict(patterns: tuple[str, ...], words: Words) -> int | None:
    for index, pattern in enumerate(patterns):
        wanted = tuple(pattern.split(" "))
        if words[: len(wanted)] == wanted:
            return index
    return None


def _may_be(pattern: list[str], words: Words) -> bool:
    if pattern[0].rpartition("/")[2] != command_word(words):
        return False
    options = [word for word in pattern[1:] if word.startswith("-")]
    operands = [word for word in pattern[1:] if not word.startswith("-")]
    return all(_may_have_option(option, words[1:]) for option in options) and _may_have_operands(operands, words[1:])


def _may_have_option(option: str, words: Words) -> bool:
    if None in words or option in words:
        return True
    if option.startswith("--"):
        given = (word.partition("=")[0] for word in words if word and word.startswith("--"))
        return any(len(word) >= _SHORTEST_ABBREVIATION and option.partition("=")[0].startswith(word) for word in given)
    letters = {letter for word in words if word and _CLUSTER.fullmatch(word) for letter in word[1:]}
    return bool(_CLUSTER.fullmatch(option)) and set(option[1:]) <= letters


def _may_have_operands(wanted: list[str], words: Words) -> bool:
    """Whether the operands stand in order before any other operand; the word after an option may be its value."""
    at, value_may_follow = {0}, False
    for word in words:
        if len(wanted) in at:
            return True
        if word is None:
            return bool(at)
        stays = word.startswith("-") or value_may_follow
        at = _advanced(at, wanted, word, stays=stays)
        value_may_follow = word.startswith("-")
    return len(wanted) in at


def _advanced(at: set[int], wanted: list[str], word: Word, *, stays: bool) -> set[int]:
    assert word is not None
    # `git -c alias.x=push x`: inside options the value's own words count too.
    said = set(_PARTS.split(word)) if stays else {word}
    moved = {index + 1 for index in at if wanted[index] in said}
    return moved | at if stays else moved
