"""One text read with tree-sitter's bash grammar: its simple commands, its assignments, and whether it hides code.

Leaf under `shell_line`; below it `shell_words`. The grammar is looser than the shell: it counts words to a redirection
that the shell counts to the command (`git >out push`), shows no substitution in some here-documents and expansions, and
takes other white space and joined lines differently. Each of these is either put right here or said to be `doubtful`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from bridge.policy.shell_launchers import Words, command_word
from bridge.policy.shell_words import Word, word_of

MAX_TEXT_BYTES: Final = 128 * 1024
MAX_NODES: Final = 20_000

_BASH: Final = Language(tree_sitter_bash.language())
_COMMANDS: Final = frozenset({"command", "declaration_command", "unset_command"})
_REDIRECTS: Final = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_CODE: Final = re.compile(rb"`|[$<>]\(|\$\{|\$\[")
_CODE_NODES: Final = frozenset(
    {"command_substitution", "process_substitution", "arithmetic_expansion", "expansion", "simple_expansion"}
)
_QUOTED_NODES: Final = frozenset({"raw_string", "ansi_c_string", "comment"})
# Inside these a quote of the grammar need not be one of the shell: "${x:-'$(date)'}" runs date.
_UNQUOTING_NODES: Final = frozenset({"expansion", "arithmetic_expansion", "heredoc_body", "subscript"})
# These evaluate the text of variables and arguments: x='a[$(date)]'; echo $((x)) runs date.
_EVALUATING_NODES: Final = frozenset(
    {"arithmetic_expansion", "subscript", "test_command", "((", *_COMMANDS} - {"command"}
)
_EVALUATING_COMMANDS: Final = frozenset({"[", "let", "mapfile", "printf", "read", "readarray", "test", "wait"})
_JOINED_LINES: Final = re.compile(r"[^ \t\n]\\\n[^ \t\n]")
_HARMLESS_NAME: Final = re.compile(r"[a-z][a-z0-9]*", re.ASCII)


class _Seen(NamedTuple):
    node: Node
    unquoted: bool  # inside a node where quotes of the grammar cannot be trusted


@dataclass
class ShellText:
    """What one text holds. `doubtful`: it may run something that `commands` does not list."""

    commands: list[Words] = field(default_factory=list)
    assigns: bool = False  # variables that can change what a command does
    doubtful: bool = False


def read_shell_text(text: str) -> ShellText:
    """Read a text of one or more lines. Never raises."""
    source = text.encode("utf-8", "surrogatepass")
    if len(source) > MAX_TEXT_BYTES or _is_odd(text):
        return ShellText(doubtful=True)
    root = Parser(_BASH).parse(source).root_node
    seen = list(_walk(root))
    if len(seen) >= MAX_NODES:
        return ShellText(doubtful=True)
    commands = list(_commands(seen))
    doubtful = root.has_error or any(_is_misread(node) for node, _ in seen)
    return ShellText(
        commands=commands,
        assigns=any(_assigns(node) for node, _ in seen),
        doubtful=doubtful or _hides_code(source, seen, commands),
    )


def _walk(root: Node) -> Iterator[_Seen]:
    pending = [_Seen(root, unquoted=False)]
    for _ in range(MAX_NODES):
        if not pending:
            return
        node, unquoted = pending.pop()
        yield _Seen(node, unquoted)
        below = unquoted or node.type in _UNQUOTING_NODES
        pending.extend(_Seen(child, below) for child in reversed(node.children))


def _commands(seen: list[_Seen]) -> Iterator[Words]:
    taken: set[int] = set()
    for node, _ in seen:
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            stray = tuple(_stray_words(node))
            if body is not None and body.type in _COMMANDS:
                taken.add(body.id)
                yield (*_command_words(body), *stray)
            elif body is None and stray:
                yield stray
        elif node.type in _COMMANDS and node.id not in taken:
            yield _command_words(node)
        elif node.type == "test_command" and node.children and node.children[0].type == "[":
            yield ("[", None)


def _command_words(command: Node) -> Words:
    return tuple(_words_within(command))


def _words_within(command: Node) -> Iterator[Word]:
    for child in command.children:
        if child.type == "command_name":
            yield word_of(child.children[0]) if child.child_count == 1 else None
        elif child.type in _REDIRECTS:
            yield from _words_of_redirect(child)
        elif command.type != "command" and not child.is_named:
            yield (child.text or b"").decode("utf-8", "replace")
        elif command.type != "command" or child.type != "variable_assignment":
            yield word_of(child)


def _stray_words(statement: Node) -> Iterator[Word]:
    for redirect in statement.children_by_field_name("redirect"):
        yield from _words_of_redirect(redirect)


def _words_of_redirect(redirect: Node) -> Iterator[Word]:
    if redirect.type == "file_redirect":
        yield from (word_of(node) for node in redirect.children_by_field_name("destination")[1:])
    if redirect.type == "heredoc_redirect":
        yield from (word_of(node) for node in redirect.children_by_field_name("argument"))
        yield from _stray_words(redirect)


def _is_misread(node: Node) -> bool:
    """`ls || git >out push`: the grammar redirects the list, the shell its last command, which gets the word.
    `{git,push}` before a `}` somewhere: the grammar sees a group, the shell a word with braces."""
    if node.type == "compound_statement":
        text = node.text or b""
        return text.startswith(b"{") and not text[1:2].isspace()
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else None
    return body is not None and body.type not in _COMMANDS and next(_stray_words(node), "") != ""


def _is_odd(text: str) -> bool:
    blank_or_control = any((c.isspace() or not c.isprintable()) and c not in " \t\n" for c in text)
    return blank_or_control or _JOINED_LINES.search(text) is not None


def _assigns(node: Node) -> bool:
    fields = {"variable_assignment": "name", "for_statement": "variable"}
    if node.type not in fields:
        return False
    name = node.child_by_field_name(fields[node.type])
    return name is None or _HARMLESS_NAME.fullmatch((name.text or b"").decode("utf-8", "replace")) is None


def _hides_code(source: bytes, seen: list[_Seen], commands: list[Words]) -> bool:
    """Whether the text has a substitution that the tree does not show, or quoted code beside what would evaluate it."""
    if b"@P" in source or any(_is_escaped_backtick_code(node) for node, _ in seen):
        return True
    marks = {match.start() for match in _CODE.finditer(source)}
    shown = {at for node, _ in seen if node.type in _CODE_NODES for at in (node.start_byte, node.end_byte - 1)}
    dormant = marks - shown
    quoted = _quoted_bytes(source, seen) if dormant else bytearray()
    if any(not quoted[at] and not _is_escaped(source, at) for at in dormant):
        return True
    evaluates = any(node.type in _EVALUATING_NODES or _expands_twice(node) for node, _ in seen)
    return bool(dormant) and (evaluates or any(command_word(words) in _EVALUATING_COMMANDS for words in commands))


def _expands_twice(node: Node) -> bool:
    """bash expands the file of `>&'$(date)'` a second time, although it is quoted."""
    if node.type != "file_redirect" or not any(child.type in (">&", "<&") for child in node.children):
        return False
    return any(target.type != "number" for target in node.children_by_field_name("destination")[:1])


def _is_escaped_backtick_code(node: Node) -> bool:
    """Between backticks the shell takes backslashes away once more than the grammar does."""
    text = node.text or b"" if node.type == "command_substitution" else b""
    return text.startswith(b"`") and b"\\" in text


def _quoted_bytes(source: bytes, seen: list[_Seen]) -> bytearray:
    """One byte per byte of the text, 1 where it stands in quotes that keep the shell from running it."""
    quoted = bytearray(len(source))
    for node, unquoted in seen:
        plain = node.type in _QUOTED_NODES and not unquoted
        if plain or (node.type == "heredoc_redirect" and _has_quoted_delimiter(node)):
            body = node if plain else next((c for c in node.children if c.type == "heredoc_body"), node)
            quoted[body.start_byte : body.end_byte] = b"\1" * (body.end_byte - body.start_byte)
    return quoted


def _has_quoted_delimiter(redirect: Node) -> bool:
    start = next((child for child in redirect.children if child.type == "heredoc_start"), None)
    return start is not None and any(mark in (start.text or b"") for mark in (b"'", b'"', b"\\"))


def _is_escaped(source: bytes, at: int) -> bool:
    return source[at : at + 1] in (b"$", b"`") and (at - len(source[:at].rstrip(b"\\"))) % 2 == 1
