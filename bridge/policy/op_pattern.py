"""One entry of an `allow`, `ask` or `deny` list of ops (contracts.md, section 3).

Leaf; pure. `inventory.check` is that op, `inventory.*` one or more further segments, `*` any op. An op with a leading
`$` is matched by its exact name alone, never by a wildcard.
"""

from dataclasses import dataclass

from bridge.contract.errors import MatrixError
from bridge.contract.names import parse_op, parse_target


@dataclass(frozen=True, slots=True)
class OpPattern:
    """A parsed pattern. `prefix` is None for an exact op, `""` for `*`, `"inventory."` for `inventory.*`."""

    text: str
    prefix: str | None

    def matches(self, op: str) -> bool:
        """Whether a parsed op is meant."""
        if self.prefix is None:
            return op == self.text
        return op.startswith(self.prefix) and not op.startswith("$")


def parse_op_pattern(text: str) -> OpPattern:
    """Raises `MX_AGENT_MALFORMED_NAME` for what is outside the grammar (`inv*`, `*.check`, `$*`, `a.*.b`)."""
    if text == "*":
        return OpPattern(text, "")
    stem, star, rest = text.partition(".*")
    if not star:
        return OpPattern(parse_op(text), None)
    if rest:
        raise MatrixError(
            "MX_AGENT_MALFORMED_NAME", f"'*' stands inside {text[:80]!a}; it may only be the last segment."
        )
    return OpPattern(text, f"{parse_target(stem)}.")
