"""Writes edits in the format of Codex's `apply_patch`, and as a shell command where there is no such tool. Pure."""

import shlex
from typing import Final

CONTEXT_LINES: Final = 3
"""Unchanged lines around a change; more are taken where these do not name one place."""


def edit_patch(path: str, content: str, old: str, new: str) -> str:
    """A patch that replaces `old` by `new` in the file at `path`, which holds `content`.

    If `old` does not stand there, the patch says so in its own way: applying it fails and names the lines.
    """
    start = content.find(old)
    if start < 0 or not old:
        return _patch(path, [], old.split("\n"), new.split("\n"), [])
    first, last = content.rfind("\n", 0, start) + 1, content.find("\n", start + len(old))
    last = len(content) if last < 0 else last
    before = content[:first].split("\n")[:-1]
    after = content[last + 1 :].split("\n") if last < len(content) else []
    if after and not after[-1]:
        after.pop()
    removed = content[first:last].split("\n")
    added = (content[first:start] + new + content[start + len(old) : last]).split("\n")
    lines = [*before, *removed, *after]
    reach = _reach(lines, len(before), len(removed))
    return _patch(path, before[max(0, len(before) - reach) :], removed, added, after[:reach])


def add_patch(path: str, content: str) -> str:
    """A patch that makes the file at `path` with `content`, which must end in a line end."""
    lines = "".join(f"+{line}\n" for line in content.removesuffix("\n").split("\n"))
    return f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"


def edit_command(path: str, old: str, new: str) -> str:
    """A POSIX shell command that replaces the one occurrence of `old` by `new`, or fails with a sentence."""
    return (
        f"file={shlex.quote(path)}; old={shlex.quote(old)}; new={shlex.quote(new)}\n"
        'text=$(cat -- "$file" && printf x) || exit 1; text=${text%x}\n'
        'case $text in *"$old"*) ;; *) echo "the text to replace is not in $file" >&2; exit 1;; esac\n'
        'rest=${text#*"$old"}\n'
        'case $rest in *"$old"*) echo "the text to replace stands more than once in $file" >&2; exit 1;; esac\n'
        'printf %s "${text%%"$old"*}$new$rest" > "$file" && echo "edited $file"'
    )


def write_command(path: str, content: str) -> str:
    """A POSIX shell command that makes the file at `path` with `content`."""
    quoted = shlex.quote(path)
    return f'mkdir -p -- "$(dirname -- {quoted})" && printf %s {shlex.quote(content)} > {quoted} && echo wrote {quoted}'


def _reach(lines: list[str], start: int, length: int) -> int:
    """How many context lines make the changed place the first one that matches."""
    reach = CONTEXT_LINES
    while reach < len(lines):
        low, high = max(0, start - reach), start + length + reach
        wanted = lines[low:high]
        if all(lines[place : place + len(wanted)] != wanted for place in range(low)):
            return reach
        reach *= 2
    return len(lines)


def _patch(path: str, before: list[str], removed: list[str], added: list[str], after: list[str]) -> str:
    marked = [(" ", before), ("-", removed), ("+", added), (" ", after)]
    lines = "".join(f"{mark}{line}\n" for mark, group in marked for line in group)
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n{lines}*** End Patch\n"
