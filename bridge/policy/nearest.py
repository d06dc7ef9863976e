"""The closest thing that is allowed, for a refusal that teaches. Leaf; pure; bounded, since callers choose words."""

import difflib
from collections.abc import Sequence
from itertools import islice
from typing import Final

_COMPARED_ENTRIES: Final = 64
_COMPARED_CHARACTERS: Final = 128


def nearest_of(wanted: str, entries: Sequence[str]) -> str | None:
    """The entry most similar to `wanted`, else the first, else None. Only the first 64 entries are compared."""
    if not entries:
        return None
    shortened = {entry[:_COMPARED_CHARACTERS]: entry for entry in islice(entries, _COMPARED_ENTRIES)}
    close = difflib.get_close_matches(wanted[:_COMPARED_CHARACTERS], shortened, n=1, cutoff=0.4)
    return shortened[close[0]] if close else entries[0]
