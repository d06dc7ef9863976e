"""Everything that people read on a terminal goes through here, so that nothing recorded can steer one.

Text of workers, actors and repositories may hold escape sequences, bidirectional overrides and characters that cannot
be seen. They are shown as escapes. Colour only on a terminal and without `NO_COLOR`. Knows no command. Above: all of
`supervisor.cli`.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridge.contract.json_types import JsonValue

# Controls, formats (bidi, zero-width, tags), lone surrogates, line and paragraph separators.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_INVISIBLE_LETTERS: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
_TAB: Final = "    "
PIPE_COLUMNS: Final = 1000  # width of a table that no terminal shows: a row stays one line


class _Escapes(dict[int, str]):
    """Code point → what is shown for it; filled as code points are met."""

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        unsafe = unicodedata.category(character) in _UNSAFE_CATEGORIES or character in _INVISIBLE_LETTERS
        shown = _escape(code_point) if unsafe else character
        self[code_point] = shown
        return shown


def _escape(code_point: int) -> str:
    if code_point <= 0xFF:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\U{code_point:08x}"


_SHOWN: Final = _Escapes({ord("\n"): "\n", ord("\t"): _TAB})


def safe(text: object) -> str:
    """`str(text)` with every character that could steer a terminal or hide shown as an escape; newlines stay."""
    return str(text).translate(_SHOWN)


def safe_line(text: object) -> str:
    """`safe`, on one line: newlines are shown as escapes too."""
    return safe(text).replace("\n", "\\n")


def console(stream: TextIO | None = None) -> Console:
    """A rich console on `stream` (default: standard output) that interprets no markup and guesses no highlights."""
    stream = stream or sys.stdout
    terminal = stream.isatty()
    coloured = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if coloured else None,
        no_color=not coloured,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=True,
        width=None if terminal else PIPE_COLUMNS,
    )


def say(text: object = "", style: str = "", *, end: str = "\n") -> None:
    """Prints `text` for a person on standard output. `style` is a style of rich, such as `bold red`."""
    _print(sys.stdout, text, style, end)


def complain(text: object, style: str = "") -> None:
    """Prints `text` for a person on standard error."""
    _print(sys.stderr, text, style, "\n")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints `rows` under `headings`, one line a row as far as the terminal is wide."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(safe_line(cell)) for cell in row))
    console().print(grid, soft_wrap=False)


def print_json(value: JsonValue) -> None:
    """Prints `value` as one line of ASCII JSON, for `--json`; no control character is in it."""
    text = json.dumps(value, separators=(", ", ": ")).replace("\x7f", "\\u007f")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _print(stream: TextIO, text: object, style: str, end: str) -> None:
    console(stream).print(Text(safe(text), style=style), end=end)
