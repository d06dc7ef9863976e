"""The `allow`, `ask` and `deny` lists of ops that stand together, and which entry settles an op.

Leaf beside `op_pattern`; pure. Exact entries are found by one look-up, so a decision costs the same for two rules and
for two hundred.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from bridge.contract.tool_invocation import Verdict
from bridge.policy.op_pattern import OpPattern


class Entry(NamedTuple):
    """The entry that settles an op: the list's name, which is the verdict, and the place in it."""

    verdict: Verdict
    place: int


class _Index(NamedTuple):
    verdict: Verdict
    exact: dict[str, int]
    wildcards: tuple[tuple[int, OpPattern], ...]


_STRICTEST_FIRST: Final[tuple[Verdict, ...]] = ("deny", "ask", "allow")


@dataclass(frozen=True)
class OpLists:
    """Three lists of op patterns, in the order of the file."""

    allow: tuple[OpPattern, ...] = ()
    ask: tuple[OpPattern, ...] = ()
    deny: tuple[OpPattern, ...] = ()

    def settle(self, op: str) -> Entry | None:
        """The entry that settles a parsed op, deny before ask before allow, or None where none matches."""
        for verdict, exact, wildcards in self._indexes:
            index = exact.get(op)
            if index is None and wildcards:
                index = next((place for place, pattern in wildcards if pattern.matches(op)), None)
            if index is not None:
                return Entry(verdict, index)
        return None

    @cached_property
    def _indexes(self) -> tuple[_Index, ...]:
        lists = {"allow": self.allow, "ask": self.ask, "deny": self.deny}
        return tuple(_index(verdict, lists[verdict]) for verdict in _STRICTEST_FIRST if lists[verdict])


def _index(verdict: Verdict, patterns: tuple[OpPattern, ...]) -> _Index:
    places = tuple(enumerate(patterns))
    exact = {pattern.text: index for index, pattern in reversed(places) if pattern.prefix is None}
    return _Index(verdict, exact, tuple((index, pattern) for index, pattern in places if pattern.prefix is not None))
