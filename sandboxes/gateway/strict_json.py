"""Reads JSON that somebody may have made to be read in two ways. Pure; stands below everything that takes a body.

Refuses duplicate keys, NaN and Infinity, trailing bytes, bytes that are no UTF-8, and depth over `MAX_DEPTH`: a body
that was judged here must mean the same to the provider that reads it next.
"""

import json
import re
from typing import Final, NoReturn

from sandboxes.gateway.json_types import JsonObject, JsonValue

MAX_DEPTH: Final = 128
"""Deeper than any schema a worker sends; far less than what exhausts the parser's stack."""

_STRING_OR_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]+', re.DOTALL)


class JsonRefusedError(ValueError):
    """The bytes are not one JSON document that every reader understands alike."""


def loads(data: bytes) -> JsonValue:
    """The document in `data`. Raises `JsonRefusedError` with a sentence that quotes nothing of a value."""
    try:
        text = data.decode("utf-8")
        _check_depth(text)
        value: JsonValue = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except JsonRefusedError:
        raise
    except UnicodeDecodeError as error:
        raise JsonRefusedError(f"The body is not UTF-8 at byte {error.start}.") from None
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise JsonRefusedError(f"The body is not valid JSON{where}.") from None
    return value


def load_object(data: bytes) -> JsonObject:
    """Like `loads`, and the document must be an object."""
    value = loads(data)
    if not isinstance(value, dict):
        raise JsonRefusedError("The body must be a JSON object.")
    return value


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise JsonRefusedError("A JSON object in the body has the same key twice.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise JsonRefusedError(f"{name} is not JSON.")


def _check_depth(text: str) -> None:
    """Count brackets outside strings, before the recursive parser meets them."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    depth = 0
    for piece in _outside_strings(text):
        for character in piece:
            if character in "{[":
                depth += 1
                if depth > MAX_DEPTH:
                    raise JsonRefusedError(f"The body is nested deeper than {MAX_DEPTH} levels.")
            elif character in "}]":
                depth -= 1


def _outside_strings(text: str) -> list[str]:
    """The brackets of `text` that stand outside string literals, in runs."""
    return [match for match in _STRING_OR_BRACKETS.findall(text) if match[0] != '"']


def dumps(value: JsonValue) -> bytes:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
