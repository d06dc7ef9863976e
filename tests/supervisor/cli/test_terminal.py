"""Nothing that is shown can steer a terminal, hide, or pretend to be another line."""

import io
import json
import os
import pty
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.terminal import complain, print_json, safe, safe_line, say, table

HOSTILE = "a\x1b]0;title\x07\x1b[31mred\x9b2J\r\x08\x7fb\u202eevil\u2066\u200b\u200d\ufeff\u2028\U000e0041\ud800\u3164c"


def shown_badly(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@contextmanager
def terminal_stream() -> Iterator[tuple[TextIO, int]]:
    """A stream that is a terminal, and the other end of it."""
    other, descriptor = pty.openpty()
    with os.fdopen(descriptor, "w") as stream:
        try:
            yield stream, other
        finally:
            os.close(other)


@given(text=st.text() | st.sampled_from([HOSTILE]))
def test_no_control_bidi_or_invisible_character_is_left(text: str) -> None:
    assert shown_badly(safe(text)) == []
    assert "\n" not in safe_line(text)


@given(
    text=st.text(
        alphabet=st.characters(
            categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u2800\u3164\uffa0\u17b4\u17b5"
        )
    )
)
def test_visible_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_what_is_hidden_is_shown_as_an_escape() -> None:
    assert safe("\x1b[31m\x9b\u202e\U000e0041\ta\nb") == "\\x1b[31m\\x9b\\u202e\\U000e0041    a\nb"


def test_printed_text_is_safe_and_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"[bold red]{HOSTILE}[/bold red] :smile: 1234", "bold red")
    complain(HOSTILE)
    table(["name", "what"], [[HOSTILE, "line one\nline two"], ["x", 3]])
    out, err = capsys.readouterr()
    assert shown_badly(out + err) == []
    assert out.startswith("[bold red]a\\x1b]0;title")
    assert ":smile:" in out
    assert len(out.splitlines()) == 4


def test_a_long_line_is_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    say("x" * 1000)
    assert capsys.readouterr().out == "x" * 1000 + "\n"


@pytest.mark.parametrize(
    ("no_color", "coloured"), [(None, True), ("1", False), ("", False)], ids=["unset", "set", "set to nothing"]
)
def test_colour_only_on_a_terminal_and_without_no_color(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    with terminal_stream() as (stream, other):
        monkeypatch.setattr(sys, "stdout", stream)
        say("denied \x1b[2J", "red")
        stream.flush()
        seen = os.read(other, 4096)
    assert (b"\x1b[31m" in seen) == coloured
    assert b"\x1b[2J" not in seen
    assert b"\\x1b[2J" in seen


def test_no_colour_in_a_pipe_even_when_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    say("denied", "red")
    assert stream.getvalue() == "denied\n"


@given(text=st.text() | st.sampled_from([HOSTILE]))
def test_json_is_one_safe_ascii_line_that_means_the_same(text: str) -> None:
    stream, real = io.StringIO(), sys.stdout
    sys.stdout = stream
    try:
        print_json({"text": [text]})
    finally:
        sys.stdout = real
    printed = stream.getvalue()
    assert printed.isascii()
    assert printed.endswith("\n")
    assert shown_badly(printed) == []
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"text": [text]}
