"""JSON from and for strangers: one reading of every text, bounded, or a typed refusal.

Leaf: knows `errors` and `json_types`. Refused: duplicate keys, NaN and infinities (`1e999` too), integers outside 64
bits, lone surrogates, bytes that are not UTF-8, anything after the value, and more bytes or depth than the limit. What
was read here has one meaning for every further reader, so the bytes that were decided on are the bytes that are sent.
"""

import json
import math
import re
from collections import Counter
from typing import Final, NoReturn

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonValue

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
_MAX_INTEGER_CHARACTERS: Final = 20  # of -9223372036854775808 and 18446744073709551615
# A string as one token, possessively, so that an unfinished one costs a single pass.
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_MAYBE_SURROGATE: Final = re.compile(r"\\u[dD]|[\ud800-\udfff]")


def loads(text: bytes | str, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Parse one JSON value.

    Raises `MX_AGENT_TOO_LARGE` over `max_bytes` or `max_depth` (an array or object in the top level is depth 1), and
    `MX_AGENT_INVALID_ARGUMENTS` for everything else that is not strict JSON.
    """
    checked = _as_text(text, max_bytes)
    _refuse_deep(checked, max_depth)
    try:
        value: JsonValue = _DECODER.decode(checked)
    except ValueError as error:
        raise _invalid(f"is not JSON: {error}") from None
    if _MAYBE_SURROGATE.search(checked):
        _refuse_surrogates(value)
    return value


def dumps(value: object, *, max_bytes: int | None = None, max_depth: int | None = None) -> str:
    """The compact ASCII form of a JSON value, keys in the order they have.

    Raises `MX_AGENT_TOO_LARGE` over a given limit and `MX_AGENT_INVALID_ARGUMENTS` for what strict JSON cannot hold.
    """
    try:
        text = _ENCODER.encode(value)
    except (ValueError, TypeError) as error:
        raise _invalid(f"cannot be written as JSON: {error}") from None
    except RecursionError:
        raise _too_large("is nested too deeply to be written as JSON") from None
    if "\\ud" in text:
        _refuse_surrogates(value)
    if max_bytes is not None and len(text) > max_bytes:
        raise _too_large(f"has {len(text)} bytes; at most {max_bytes} are taken")
    if max_depth is not None:
        _refuse_deep(text, max_depth)
    return text


def _as_text(text: bytes | str, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise _too_large(f"has over {max_bytes} bytes")
    if isinstance(text, str):
        if not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > max_bytes:
            raise _too_large(f"has over {max_bytes} bytes")
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(f"is not UTF-8 at byte {error.start}") from None


def _refuse_deep(text: str, max_depth: int) -> None:
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for token in _STRUCTURE.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > max_depth:
                raise _too_large(f"is nested deeper than {max_depth} levels")
        elif first in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _invalid(f"has the key {twice[:80]!a} twice in one object")
    return made


def _integer(digits: str) -> int:
    number = int(digits) if len(digits) <= _MAX_INTEGER_CHARACTERS else None
    if number is None or not -(2**63) <= number < 2**64:
        raise _invalid("has an integer outside 64 bits; send it as a string")
    return number


def _number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _invalid("has a number outside the range of a double")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _invalid(f"has {name}, which is not a JSON number")


def _refuse_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _invalid("has a lone surrogate in a string") from None


_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_number
)


def _invalid(why: str) -> MatrixError:
    return MatrixError("MX_AGENT_INVALID_ARGUMENTS", f"The JSON text {why}.")


def _too_large(why: str) -> MatrixError:
    return MatrixError("MX_AGENT_TOO_LARGE", f"The JSON text {why}.")
