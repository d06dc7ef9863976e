"""A shell line as the simple commands it runs, or the statement that the line alone does not tell.

Below: `shell_syntax` (one text), `shell_launchers` (commands that start commands). Above: `shell_rules`. It knows no
rule and runs nothing. Lines inside lines (`bash -c`, `eval`) are followed. What does not parse makes the line `opaque`,
and an opaque line passes only where nothing is ruled out.

What it cannot see, and no rule on a line can: scripts that the line runs by name, interpreters (`python3 -c …`), and a
program under another name (`cp "$(which git)" x`). Rules on shell lines steer a worker; the container is the wall.
"""

from dataclasses import dataclass, field
from typing import Final

from bridge.policy.shell_launchers import Words, started_by
from bridge.policy.shell_syntax import read_shell_text

MAX_COMMANDS: Final = 1_000
MAX_NESTING: Final = 8
"""Commands in commands and lines in lines are followed this deep."""


@dataclass
class ShellLine:
    """`certain` are the commands that the line runs as written, `possible` those it may run besides.

    `opaque`: it may run what neither lists. `steered`: it sets variables or uses launchers in a way that may change
    what the certain commands do, so that no prefix can vouch for them.
    """

    certain: list[Words] = field(default_factory=list)
    possible: list[Words] = field(default_factory=list)
    opaque: bool = False
    steered: bool = False


def parse_shell_line(text: str) -> ShellLine:
    """Read one line, which may span several. Never raises: what cannot be read is `opaque`."""
    line = ShellLine()
    _read(text, line, nesting=0)
    return line


def _read(text: str, line: ShellLine, nesting: int) -> None:
    if nesting > MAX_NESTING or line.opaque:
        line.opaque = True
        return
    read = read_shell_text(text)
    line.opaque = read.doubtful
    line.steered = line.steered or read.assigns
    for words in read.commands:
        _add(words, line, line.certain, nesting)


def _add(words: Words, line: ShellLine, commands: list[Words], nesting: int) -> None:
    """Note a command, and what it starts. Once a line is opaque only its own words are still of interest."""
    full = len(line.certain) + len(line.possible) >= MAX_COMMANDS
    if full or nesting > MAX_NESTING or not words or words[0] is None:
        line.opaque = True
        return
    commands.append(words)
    started = started_by(words)
    if started is None or (line.opaque and nesting):
        return
    line.opaque = line.opaque or started.hidden
    line.steered = line.steered or not started.clear
    for inner in started.certain:
        _add(inner, line, commands, nesting + 1)
    for inner in started.possible:
        if inner not in started.certain:
            _add(inner, line, line.possible, nesting + 1)
    for inner_line in started.lines:
        _read(inner_line, line, nesting + 1)
