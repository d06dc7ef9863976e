"""The alias under which a worker's tool surface shows an op (contracts.md, section 1). Pure and one-to-one.

Leaf beside `names`. Model providers and workers fold or drop names outside `[A-Za-z0-9_]{1,64}`, silently; an alias
passes all of them unchanged. Nothing is ever decided on an alias: `matrix_tool_projection` carries the canonical name
beside it.
"""

import base64
import hashlib
import re
from typing import Final

MAX_ALIAS: Final = 51
"""64 characters, less the 13 of `mcp__matrix__`."""

_DIGEST_CHARACTERS: Final = 12
_TAIL_CHARACTERS: Final = MAX_ALIAS - _DIGEST_CHARACTERS - len("_h")
_DIGESTED: Final = re.compile(r"_h[a-z2-7]{12}\Z", re.ASCII)
_TOKEN: Final = re.compile(r"_x([0-9A-F]{2})_|__|_", re.ASCII)
_ODD: Final = re.compile(r"[^A-Za-z0-9./]", re.ASCII)
_NOT_ALPHANUMERIC: Final = re.compile(r"[^A-Za-z0-9]", re.ASCII)


def alias_of(mount: str, op: str) -> str:
    """The alias of a parsed mount and op: `a.b` and `c.d` make `a_b__c_d`."""
    name = f"{mount}/{op}"
    alias = _readable(name)
    if _decode(alias) != name:
        alias = _NOT_ALPHANUMERIC.sub(_escape, name)
    if len(alias) > MAX_ALIAS or _DIGESTED.search(alias):
        return f"{alias[-_TAIL_CHARACTERS:]}_h{_digest(name)}"
    return alias


def _readable(name: str) -> str:
    return _ODD.sub(_escape, name).replace("/", "__").replace(".", "_")


def _decode(alias: str) -> str:
    """Read an undigested alias from left to right: it is unambiguous where this gives the name back."""
    return _TOKEN.sub(_unescape, alias)


def _escape(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):02X}_"


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return "/" if match[0] == "__" else "."


def _digest(name: str) -> str:
    return base64.b32encode(hashlib.sha256(name.encode("ascii")).digest())[:_DIGEST_CHARACTERS].decode("ascii").lower()
