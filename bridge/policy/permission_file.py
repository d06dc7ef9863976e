"""Reads a permission file (contracts.md, section 3) into a PermissionSet, or says everything that is wrong with it.

Below: `tomllib`, `toml_positions`, the grammars of `op_pattern`, `path_rules` and `shell_rules`. Above:
`permission_source`, and `mxs policy check`. It reads bytes and opens nothing. A file with one problem grants nothing.
"""

import difflib
import hashlib
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.contract.errors import MatrixError
from bridge.contract.names import parse_target
from bridge.policy.op_lists import OpLists
from bridge.policy.op_pattern import OpPattern, parse_op_pattern
from bridge.policy.path_rules import PathRules, path_entry_problem
from bridge.policy.permission_set import (
    BUILT_IN_POLICY,
    Budget,
    Grant,
    NativeRules,
    PermissionSet,
    Role,
)
from bridge.policy.shell_rules import ShellRules, shell_pattern_problem
from bridge.policy.toml_positions import KeyPath, Position, positions_of

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_ROLES: Final = 1000
MAX_RULES_PER_ROLE: Final = 1000
MAX_PROBLEMS: Final = 50
_MAX_COUNT: Final = 2**53
_VERSION: Final = 1
_ROLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SYNTAX: Final = re.compile(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_OP_LISTS: Final = ("allow", "ask", "deny")

Table = dict[str, object]


class Problem(NamedTuple):
    """One thing that is wrong with the file; line and column are counted from 1."""

    line: int
    column: int
    message: str
    mend: str


@dataclass(frozen=True)
class ReadPolicy:
    """The file's permissions, or None and why."""

    permissions: PermissionSet | None
    problems: tuple[Problem, ...] = ()


def policy_digest(content: bytes) -> str:
    """`sha256:<hex>` of the file's bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def built_in_permissions() -> PermissionSet:
    """The role `default`, in force where there is no file."""
    read = read_policy(BUILT_IN_POLICY.encode())
    assert read.permissions is not None, read.problems
    return read.permissions


def read_policy(content: bytes) -> ReadPolicy:
    """Read the bytes of a permission file. Never raises; either `permissions` or at least one problem is there."""
    if len(content) > MAX_FILE_BYTES:
        return _refused(f"the file has over {MAX_FILE_BYTES} bytes", "Split it by role, or shorten its lists.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return _refused(f"byte {error.start} is not UTF-8", "Save the file as UTF-8.", content[: error.start])
    try:
        document = tomllib.loads(text)
        reader = _FileReader(positions_of(text))
    except tomllib.TOMLDecodeError as error:
        return ReadPolicy(None, (_syntax_problem(str(error), text),))
    except RecursionError:
        return _refused("the file is nested too deeply", "A permission file needs no more than five levels.")
    roles = reader.document(document)
    if reader.problems:
        return ReadPolicy(None, tuple(sorted(reader.problems)))
    return ReadPolicy(PermissionSet(policy_digest(content), roles))


class _FileReader:
    """Walks the parsed document; every method takes where it is, and notes problems instead of raising."""

    def __init__(self, position: Callable[[KeyPath], Position]) -> None:
        self.problems: list[Problem] = []
        self._position = position
        self._rules = 0

    def document(self, document: Table) -> dict[str, Role]:
        self._known_keys(document, (), ("version", "roles"))
        if document.get("version") != _VERSION or isinstance(document["version"], bool):
            self._note(("version",), "'version' is missing or not 1", "Write 'version = 1' as the first line.")
        roles = self._table(document, (), "roles")
        if not roles:
            self._note(("roles",), "the file has no role", "Add a table such as [roles.coder].")
        if len(roles) > MAX_ROLES:
            self._note(("roles",), f"the file has over {MAX_ROLES} roles", "Split it into several files.")
            return {}
        return {name: self._role(name, self._table(roles, ("roles",), name)) for name in roles}

    def _role(self, name: str, table: Table) -> Role:
        at: KeyPath = ("roles", name)
        if not _ROLE_NAME.fullmatch(name):
            self._note(at, f"the role name {name[:80]!a} is malformed", "Use 1 to 64 letters, digits, '_' or '-'.")
        self._known_keys(table, at, ("description", "grants", "native", "budget"))
        self._rules = 0
        role = Role(
            name=name,
            description=self._text(table, at, "description"),
            grants=self._grants(table, at),
            native=self._native(self._table(table, at, "native"), (*at, "native")),
            budget=self._budget(self._table(table, at, "budget"), (*at, "budget")),
        )
        if self._rules > MAX_RULES_PER_ROLE:
            self._note(at, f"the role has over {MAX_RULES_PER_ROLE} rules", "Use 'prefix.*', or split the role.")
        return role

    def _grants(self, table: Table, at: KeyPath) -> tuple[Grant, ...]:
        grants = table.get("grants", [])
        if not isinstance(grants, list) or not all(isinstance(grant, dict) for grant in grants):
            self._note((*at, "grants"), "'grants' is not an array of tables", f"Write [[{_dotted(at)}.grants]].")
            return ()
        return tuple(self._grant(grant, (*at, "grants", index)) for index, grant in enumerate(grants))

    def _grant(self, table: Table, at: KeyPath) -> Grant:
        self._known_keys(table, at, ("subtree", *_OP_LISTS))
        subtree = self._text(table, at, "subtree")
        try:
            parse_target(subtree)
        except MatrixError as error:
            mend = "A subtree is a mount such as 'demo.inventory'; what lies below it is included without a wildcard."
            what = error.message.partition(". Write")[0].replace("The target", "the subtree")
            self._note((*at, "subtree"), "'subtree' is missing" if "subtree" not in table else what, mend)
        return Grant(subtree, self._ops(table, at))

    def _native(self, table: Table, at: KeyPath) -> NativeRules:
        self._known_keys(table, at, (*_OP_LISTS, "paths", "shell"))
        paths, shell = self._table(table, at, "paths"), self._table(table, at, "shell")
        self._known_keys(paths, (*at, "paths"), ("read", "write", "deny"))
        self._known_keys(shell, (*at, "shell"), _OP_LISTS)
        path_lists = [
            self._rules_of(paths, (*at, "paths"), key, path_entry_problem) for key in ("read", "write", "deny")
        ]
        shell_lists = [self._rules_of(shell, (*at, "shell"), key, shell_pattern_problem) for key in _OP_LISTS]
        return NativeRules(self._ops(table, at), PathRules(*path_lists), ShellRules(*shell_lists))

    def _ops(self, table: Table, at: KeyPath) -> OpLists:
        return OpLists(*(self._op_patterns(table, at, key) for key in _OP_LISTS))

    def _op_patterns(self, table: Table, at: KeyPath, key: str) -> tuple[OpPattern, ...]:
        patterns = self._rules_of(table, at, key, _op_pattern_problem)
        return tuple(parse_op_pattern(text) for text in patterns if _op_pattern_problem(text) is None)

    def _rules_of(
        self, table: Table, at: KeyPath, key: str, problem_of: Callable[[str], str | None]
    ) -> tuple[str, ...]:
        entries = table.get(key, [])
        if not isinstance(entries, list):
            self._note((*at, key), f"{key!r} is not a list", f'Write {key} = ["…"].')
            return ()
        self._rules += len(entries)
        for index, entry in enumerate(entries):
            why = problem_of(entry) if isinstance(entry, str) else f"it is {_kind(entry)}, not a string"
            if why is not None:
                self._note((*at, key, index), f"the entry {ascii(entry)[:80]} of {key!r} is not taken", _sentence(why))
        return tuple(entry for entry in entries if isinstance(entry, str))

    def _budget(self, table: Table, at: KeyPath) -> Budget:
        self._known_keys(table, at, ("tool_calls", "tokens", "usd", "seconds"))
        usd = table.get("usd")
        if usd is not None and not (_is_number(usd) and math.isfinite(usd) and usd >= 0):  # type: ignore[arg-type, operator] # _is_number has narrowed it
            self._note((*at, "usd"), "'usd' is not an amount", "Write a number of dollars, such as usd = 5.0.")
            usd = None
        counts = [self._count(table, at, key) for key in ("tool_calls", "tokens", "seconds")]
        return Budget(counts[0], counts[1], None if usd is None else float(str(usd)), counts[2])

    def _count(self, table: Table, at: KeyPath, key: str) -> int | None:
        value = table.get(key)
        if value is None or (type(value) is int and 0 <= value <= _MAX_COUNT):
            return value
        self._note((*at, key), f"{key!r} is not a count", f"Write a whole number, such as {key} = 500.")
        return None

    def _table(self, table: Table, at: KeyPath, key: str) -> Table:
        value = table.get(key, {})
        if isinstance(value, dict):
            return value
        self._note((*at, key), f"{key!r} is not a table", f"Write it as a table: [{_dotted((*at, key))}].")
        return {}

    def _text(self, table: Table, at: KeyPath, key: str) -> str:
        value = table.get(key, "")
        if isinstance(value, str):
            return value
        self._note((*at, key), f"{key!r} is {_kind(value)}, not a string", f'Write {key} = "…".')
        return ""

    def _known_keys(self, table: Table, at: KeyPath, known: Iterable[str]) -> None:
        names = tuple(known)
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key[:80], names, n=1)
                mend = f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(names)}."
                self._note((*at, key), f"unknown key {key[:80]!a}", mend)

    def _note(self, at: KeyPath, message: str, mend: str) -> None:
        if len(self.problems) >= MAX_PROBLEMS:
            return
        where = _dotted(at[:-1])
        self.problems.append(Problem(*self._position(at), f"{where}: {message}" if where else message, mend))


def _op_pattern_problem(text: str) -> str | None:
    try:
        parse_op_pattern(text)
    except MatrixError:
        return "an op pattern is an exact op such as 'inventory.check', a prefix such as 'inventory.*', or '*'"
    return None


def _refused(message: str, mend: str, before: bytes = b"") -> ReadPolicy:
    line = before.count(b"\n") + 1
    return ReadPolicy(None, (Problem(line, len(before) - before.rfind(b"\n"), message, mend),))


def _syntax_problem(message: str, text: str) -> Problem:
    match = _SYNTAX.fullmatch(message)
    if match is None or match[2] is None:
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    else:
        line, column = int(match[2]), int(match[3])
    what = match[1] if match else message
    return Problem(line, column, f"not TOML: {what}", "Correct the syntax at this place.")


def _dotted(path: KeyPath) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part[:80]}" for part in path).lstrip(".")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
