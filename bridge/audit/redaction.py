"""Takes secrets out of what is about to be recorded, before it is hashed.

Two ways to know a secret: its form (tokens of well-known services, private keys, authorization headers, members with
a telling name) and its value, for secrets this process holds itself. A secret is replaced by
`[redacted:<rule>:<digest>]`; the digest is keyed, so equal secrets look equal and a guess cannot be confirmed without
the key. Ordinary code and prose stay as they are. Pure but for the values it was told. Above: `audit_log`.
"""

import hmac
import json
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

from bridge.contract.json_types import JsonObject, JsonValue

MIN_KNOWN_CHARS: Final = 8  # a shorter value would tear holes into ordinary text
MAX_DEPTH: Final = 128  # deeper values have no stored form anyway (stored_form)
_MARKER: Final = re.compile(r"\[redacted:[a-z-]+:[0-9a-f]{12}\]")


class _Rule(NamedTuple):
    """`hints`: texts of which one is in every match, to pass over most strings quickly. Group 1 is the secret."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


# Each pattern starts at a literal or at a boundary and repeats nothing inside a repetition, so that it stays linear.
_RULES: Final = (
    _Rule(
        "private-key",
        ("PRIVATE KEY-----",),
        re.compile(
            r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z))"
        ),
    ),
    _Rule("jwt", ("eyJ",), re.compile(r"(?<![\w-])(eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})", re.ASCII)),
    _Rule("anthropic", ("sk-ant-",), re.compile(r"(?<!\w)(sk-ant-[\w-]{8,})", re.ASCII)),
    _Rule(
        "openai",
        ("sk-",),
        re.compile(r"(?<!\w)(sk-(?:(?:proj|svcacct|admin)-[\w-]{20,}|(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{32,}))", re.ASCII),
    ),
    _Rule(
        "github",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"(?<!\w)(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})", re.ASCII),
    ),
    _Rule("aws", ("AKIA", "ASIA"), re.compile(r"(?<![A-Za-z0-9])((?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Za-z0-9])")),
    _Rule(
        "slack", ("xox", "xapp-"), re.compile(r"(?<!\w)((?:xox[abeoprs]|xapp)-(?=[\w-]{0,40}\d)[\w-]{10,})", re.ASCII)
    ),
    _Rule("google", ("AIza",), re.compile(r"(?<!\w)(AIza[\w-]{35})(?![\w-])", re.ASCII)),
    _Rule(
        "authorization",
        ("uthorization", "UTHORIZATION"),
        re.compile(
            r"(?i:authorization)[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?i:bearer|basic|token)\s{1,8}([\w.~+/=-]{8,})", re.ASCII
        ),
    ),
    _Rule(
        "api-key",
        ("pi-key", "PI-KEY", "pi-Key", "PI-Key"),
        re.compile(r"(?i:x-(?:goog-)?api-key)[\"']?\s{0,8}[:=]\s{0,8}[\"']?([\w.~+/=-]{8,})", re.ASCII),
    ),
    _Rule("url", ("://",), re.compile(r"(?<=://)[^\s/:@\"'{}$<>]{0,64}:([^\s/@\"'{}$<>]{3,256})@")),
    _Rule(
        "assignment",
        ("PASSWORD=", "PASSWD=", "SECRET=", "TOKEN=", "KEY="),
        re.compile(
            r"(?<!\w)[A-Z][A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|SECRET|TOKEN|API_KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY)="
            r"[\"']?(?=[\w+/=-]{0,200}\d)([\w+/=-]{12,})(?![\w.(\[])",
            re.ASCII,
        ),
    ),
)

_TELLING_ENDS: Final = (
    "password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "secretkey", "privatekey",
    "authorization",
)  # fmt: skip
_RULE_HINTS: Final = tuple(hint for rule in _RULES for hint in rule.hints)
_TELLING_MEMBERS: Final = tuple(f'{end}":' for end in _TELLING_ENDS)
_NOT_TELLING: Final = frozenset(
    {"nexttoken", "pagetoken", "nextpagetoken", "prevpagetoken", "continuationtoken", "progresstoken", "synctoken"}
)


class Redactor:
    """Replaces secrets in JSON values. `key` makes the digests; keep it apart from the log."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: re.Pattern[str] | None = None
        self._values: set[str] = set()
        self._hints = _RULE_HINTS

    def learn(self, values: Iterable[str]) -> None:
        """From now on `values` are secrets wherever they appear, plain, percent-encoded or in base64.

        Values under 8 characters are passed over.
        """
        for value in values:
            if len(value) >= MIN_KNOWN_CHARS:
                encoded = value.encode("utf-8", "surrogatepass")
                self._values |= {value, quote(encoded, safe=""), b64encode(encoded).decode().rstrip("=")}
        if self._values:
            longest_first = sorted(self._values, key=lambda value: (-len(value), value))
            self._known = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
            self._hints = (*_RULE_HINTS, *(json.dumps(value)[1:-1] for value in longest_first))

    def redact(self, value: JsonValue) -> JsonValue:
        """A copy of `value` without secrets; an equal value if there are none."""
        return self._value(value, 0)

    def redact_object(self, value: JsonObject) -> JsonObject:
        """`redact` for an object."""
        return self._object(value, 0)

    def is_free(self, text: str) -> bool:
        """Whether `text`, compact ASCII JSON, surely holds nothing that `redact` would change in its value.

        What a rule looks for stands in the JSON as it is in the value, unless it is escaped; so most records are told
        apart in one pass over their text, and the rest is left to `redact`.
        """
        if "\\u" in text or any(hint in text for hint in self._hints):
            return False
        plain = text.replace("_", "").replace("-", "").lower()
        return not any(member in plain for member in _TELLING_MEMBERS)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if len(text) < MIN_KNOWN_CHARS:
            return text
        if self._known is not None:
            text = self._known.sub(lambda found: self._marker("known", found[1]), text)
        for rule in _RULES:
            if any(hint in text for hint in rule.hints):
                text = rule.pattern.sub(partial(self._replaced, rule.name), text)
        return text

    def _value(self, value: JsonValue, depth: int) -> JsonValue:
        match value:
            case str():
                return self.text(value)
            case dict() if depth < MAX_DEPTH:
                return self._object(value, depth)
            case list() if depth < MAX_DEPTH:
                return [self._value(item, depth + 1) for item in value]
            case _:
                return value

    def _object(self, value: JsonObject, depth: int) -> JsonObject:
        return {self.text(name): self._member(name, member, depth + 1) for name, member in value.items()}

    def _member(self, name: str, member: JsonValue, depth: int) -> JsonValue:
        if isinstance(member, str) and member and _is_telling(name) and not _MARKER.search(member):
            return self._marker("field", member)
        return self._value(member, depth)

    def _replaced(self, rule: str, found: re.Match[str]) -> str:
        whole, start = found[0], found.start()
        return whole[: found.start(1) - start] + self._marker(rule, found[1]) + whole[found.end(1) - start :]

    def _marker(self, rule: str, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogatepass"), sha256).hexdigest()
        return f"[redacted:{rule}:{digest[:12]}]"


def _is_telling(name: str) -> bool:
    plain = name.replace("_", "").replace("-", "").lower()
    return plain.endswith(_TELLING_ENDS) and plain not in _NOT_TELLING
