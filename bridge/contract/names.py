"""The grammar of names (contracts.md, section 1) and nothing else.

Leaf: knows `errors` alone. Everything that takes a name from outside parses it here before any look-up, so whatever
lies further in may compare names byte by byte. It refuses to know which names exist.
"""

import re
from typing import Final

from bridge.contract.errors import MatrixError

MAX_SEGMENTS: Final = 32
_SEGMENT: Final = "[A-Za-z0-9_-]{1,64}"
_NAME: Final = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT}){{0,{MAX_SEGMENTS - 1}}}", re.ASCII)
_OP: Final = re.compile(rf"\$?{_NAME.pattern}", re.ASCII)
_SHOWN_CHARACTERS: Final = 80


def parse_root(value: object) -> str:
    """An authority root such as `acme.com`. Raises `MX_AGENT_MALFORMED_NAME`."""
    return _parse(_NAME, value, "authority root")


def parse_target(value: object) -> str:
    """A target, which is an actor's mount, such as `demo.inventory`. Raises `MX_AGENT_MALFORMED_NAME`."""
    return _parse(_NAME, value, "target")


def parse_op(value: object) -> str:
    """An op such as `inventory.check` or `$introspect`. Raises `MX_AGENT_MALFORMED_NAME`."""
    return _parse(_OP, value, "op")


def canonical_name(root: str, target: str, op: str) -> str:
    """`<root>/<mount>/<op>`. Raises `MX_AGENT_MALFORMED_NAME` where a part is outside the grammar."""
    return f"{parse_root(root)}/{parse_target(target)}/{parse_op(op)}"


def is_within(target: str, subtree: str) -> bool:
    """Whether `target` is `subtree` or lies below it, by whole segments. Both have been parsed."""
    return target == subtree or target.startswith(f"{subtree}.")


def _parse(grammar: re.Pattern[str], value: object, noun: str) -> str:
    if isinstance(value, str) and grammar.fullmatch(value):
        return value
    # ASCII and short: the sentence may be shown to a model, written to a log and printed on a terminal.
    shown = ascii(value[:_SHOWN_CHARACTERS]) if isinstance(value, str) else type(value).__name__
    raise MatrixError(
        "MX_AGENT_MALFORMED_NAME",
        f"The {noun} {shown} is malformed. Write segments of 1 to 64 letters, digits, '_' or '-', "
        f"joined by '.', at most {MAX_SEGMENTS} of them{', with an optional leading $' if noun == 'op' else ''}.",
        reason="MALFORMED_NAME",
    )
