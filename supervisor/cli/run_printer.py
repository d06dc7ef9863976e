"""Prints a run's events as they come: the worker's text as it is written, everything else line by line.

Above: `run_command`. Below: `run_view` says what to print, `terminal` prints it safely.
"""

from bridge.contract.json_types import JsonObject
from supervisor.cli.run_view import lines_of
from supervisor.cli.terminal import say


class RunPrinter:
    """Knows whether the line on the terminal is still open: text comes in pieces that end anywhere."""

    def __init__(self) -> None:
        self._open = False

    def print(self, event: JsonObject) -> None:
        """Print one event."""
        if event.get("type") == "text":
            text = str(event.get("text", ""))
            say(text, end="")
            self._open = bool(text) and not text.endswith("\n")
            return
        for line in lines_of(event):
            self._end_line()
            say(line.text, style=line.style)

    def _end_line(self) -> None:
        if self._open:
            say()
            self._open = False
