"""Where each key and list element of a TOML text stands, which the standard library's reader does not tell.

Leaf; pure. It is given only text that `tomllib` has accepted, so it reads shapes and trusts them; whatever it should
still not follow ends its search, and the nearest place above is named instead.
"""

import re
import tomllib
from collections.abc import Callable
from typing import Final, NamedTuple

KeyPath = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING: Final = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}#\n]*")


class Position(NamedTuple):
    """A place in the text, both counted from 1."""

    line: int
    column: int


def positions_of(text: str) -> Callable[[KeyPath], Position]:
    """A function from a path such as `("roles", "coder", "grants", 0, "allow", 1)` to the nearest known position."""
    reader = _Reader(text)
    reader.read_document()
    return reader.nearest


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[KeyPath, int] = {(): 0}
        self._arrays: dict[KeyPath, int] = {}

    def nearest(self, path: KeyPath) -> Position:
        while path not in self._found:
            path = path[:-1]
        at = self._found[path]
        return Position(self._text.count("\n", 0, at) + 1, at - self._text.rfind("\n", 0, at))

    def read_document(self) -> None:
        table: KeyPath = ()
        while self._skip_blank() < len(self._text):
            before = self._at
            if self._text[self._at] == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
            if self._at == before:
                return

    def _read_header(self) -> KeyPath:
        start, double = self._at, self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        path = self._under_arrays(self._read_key(), start)
        if double:
            index = self._arrays.get(path, -1) + 1
            self._arrays[path] = index
            path = (*path, index)
        self._found[path] = start
        self._at = self._text.find("]", self._at) + (2 if double else 1)
        return path

    def _under_arrays(self, keys: list[str], start: int) -> KeyPath:
        """`roles.x.grants.y` below an array of tables means its last element."""
        path: KeyPath = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            self._found.setdefault(path, start)
            if path in self._arrays and number < len(keys) - 1:
                path = (*path, self._arrays[path])
        return path

    def _read_pair(self, table: KeyPath) -> None:
        start = self._at
        path: KeyPath = table
        for key in self._read_key():
            path = (*path, key)
            self._found.setdefault(path, start)
        self._at = self._text.find("=", self._at) + 1
        self._skip_blank()
        self._read_value(path)

    def _read_key(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip_blank()
            match = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
            if match is None:
                return keys
            self._at = match.end()
            keys.append(_key_text(match[0]))
            self._skip_blank()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _read_value(self, path: KeyPath) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            self._read_items(path, "]")
        elif opening == "{":
            self._read_items(path, "}")
        else:
            match = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            self._at = match.end() if match else len(self._text)

    def _read_items(self, path: KeyPath, closing: str) -> None:
        self._at += 1
        index = 0
        while self._skip_blank() < len(self._text) and self._text[self._at] != closing:
            before = self._at
            if closing == "}":
                self._read_pair(path)
            else:
                self._found[(*path, index)] = self._at
                self._read_value((*path, index))
            index += 1
            if self._skip_blank() < len(self._text) and self._text[self._at] == ",":
                self._at += 1
            if self._at == before:
                self._at = len(self._text)
        self._at += 1

    def _skip_blank(self) -> int:
        match = _BLANK.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at


def _key_text(written: str) -> str:
    if written[0] not in "\"'":
        return written
    return str(tomllib.loads(f"key = {written}")["key"])
