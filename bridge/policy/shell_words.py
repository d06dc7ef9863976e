"""What a word of a shell line says once the shell has taken its quotes away, where the line alone tells.

Leaf under `shell_line`; pure. A word is a string, or None where the shell decides at run time: variables,
substitutions, globs, braces, a leading tilde. None never counts as a known word, so no quoting can hide one.
"""

import re
from typing import Final

from tree_sitter import Node

Word = str | None

_UNQUOTED: Final = frozenset({"word", "number", "variable_name"})
_GLOB: Final = re.compile(r"(?<!\\)(?:\\\\)*[*?\[\]]")
_BRACES: Final = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_IN_DOUBLE_QUOTES: Final = re.compile(r'\\([$`"\\])|\\\n', re.DOTALL)
_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)
_ANSI_C: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL
)
_ANSI_C_LETTERS: Final = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def word_of(node: Node) -> Word:
    """The literal text of a word node, or None where only the running shell knows it."""
    text = _text(node)
    if node.type == "concatenation" and _BRACES.search(text):
        return None
    parts = [_part(child) for child in node.children] if node.type == "concatenation" else [_part(node)]
    if text.startswith("~") or any(part is None for part in parts):
        return None
    return "".join(part for part in parts if part is not None)


def _part(node: Node) -> Word:
    text = _text(node)
    if node.type in _UNQUOTED:
        return None if _GLOB.search(text) or _BRACES.search(text) else _BACKSLASH.sub(r"\1", text)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        return _double_quoted(node, text)
    if node.type == "ansi_c_string":
        return _ansi_c(text[2:-1])
    if node.type == "translated_string" and node.named_child_count == 1:
        return _part(node.named_children[0])
    # Single characters such as { } that the grammar gives as tokens of their own.
    return text if node.child_count == 0 and text in ("{", "}") else None


def _double_quoted(node: Node, text: str) -> Word:
    if any(child.type not in ("string_content", '"') for child in node.children):
        return None
    return _IN_DOUBLE_QUOTES.sub(lambda match: match[1] or "", text[1:-1])


def _ansi_c(text: str) -> Word:
    try:
        decoded = _ANSI_C.sub(_ansi_c_character, text)
    except (KeyError, ValueError, OverflowError):
        return None
    # bash ends such a string at a NUL; which of the two readings holds is its business.
    return None if "\0" in decoded else decoded


def _ansi_c_character(match: re.Match[str]) -> str:
    octal, byte, short, long, letter = match.groups()
    if letter is not None:
        return _ANSI_C_LETTERS[letter]
    return chr(int(octal, 8) & 0xFF) if octal else chr(int(byte or short or long, 16))


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
