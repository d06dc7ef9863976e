"""From the fields of a record to the ASCII text that is stored, one rule for whatever cannot be stored.

A top-level field whose value cannot be stored (a lone surrogate, a non-finite number, too deep, too large) becomes
`null`, and `<field>Error` beside it says why: a record is never lost for what a worker put into it. Pure; knows no
chain and no kind. Above: `audit_log`.
"""

import json
import math
from collections.abc import Mapping
from typing import Final

from bridge.contract.json_types import JsonValue

MAX_DEPTH: Final = 72  # an argument may be 64 deep (contracts.md, section 7) and stands a few levels down in its record
MAX_FIELD_BYTES: Final = 4 * 1024 * 1024  # 1 MiB of UTF-8 is at most 3 MiB once escaped

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


class UnstorableError(Exception):
    """A value that has no stored form; the text says why."""


def members_text(fields: Mapping[str, JsonValue]) -> str:
    """`"a":1,"b":null,"bError":"…"`: the fields in their order, ASCII, without spaces between tokens."""
    whole = _sound_text(fields)
    if whole is not None:
        return whole[1:-1]
    members: list[str] = []
    for name, value in fields.items():
        try:
            text = value_text(value)
        except UnstorableError as error:
            members.append(f"{_dumps(name)}:null,{_dumps(name + 'Error')}:{_dumps(str(error))}")
        else:
            members.append(f"{_dumps(name)}:{text}")
    return ",".join(members)


def value_text(value: JsonValue) -> str:
    """`value` as compact ASCII JSON, DEL escaped too. Raises `UnstorableError`."""
    sound = _sound_text(value)
    if sound is not None:
        return sound
    _check(value, 0)
    text = _dumps(value)
    if len(text) > MAX_FIELD_BYTES:
        raise UnstorableError(f"it is {len(text)} bytes long, over the limit of {MAX_FIELD_BYTES}")
    return text


def _sound_text(value: object) -> str | None:
    """The stored form, where its text alone shows that there is nothing to check in `value`; else None."""
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError):
        return None
    if len(text) > MAX_FIELD_BYTES or "\\ud" in text or text.count("{") + text.count("[") > MAX_DEPTH:
        return None
    return text.replace("\x7f", "\\u007f")


def _dumps(value: JsonValue) -> str:
    try:
        text = _ENCODER.encode(value)
    except ValueError:  # an integer beyond the interpreter's limit of digits
        raise UnstorableError("it holds a number with too many digits") from None
    return text.replace("\x7f", "\\u007f")


def _check(value: JsonValue, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UnstorableError(f"it is nested over {MAX_DEPTH} levels deep")
    match value:
        case str():
            _check_text(value)
        case dict():
            for name, member in value.items():
                _check_text(name)
                _check(member, depth + 1)
        case list():
            for item in value:
                _check(item, depth + 1)
        case float() if not math.isfinite(value):
            raise UnstorableError("it holds a number that is not finite")
        case _:
            pass


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnstorableError("it holds a lone surrogate, which no UTF-8 text can") from None
