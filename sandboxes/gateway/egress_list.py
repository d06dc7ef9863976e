"""The allow-list of `--egress HOST:PORT`: how an entry is written, and which variables point a worker's programs at it.

Pure leaf, used by the command that takes the list and by the gateway that enforces it. An entry is one host and one
port: no wildcard, no range, and no spelling of a host that two readers could take for different ones.
"""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sandboxes.sandbox_spec import RELAY_PORT

MOST_ENTRIES: Final = 64
"""Of one worker; more is no list that a person has read."""

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\Z", re.ASCII)
_MOST_NAME: Final = 253
_NUMBER: Final = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)\Z", re.ASCII)
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z", re.ASCII)
_MEND: Final = "Write HOST:PORT, such as 'packages.example:443', '192.0.2.7:443' or '[2001:db8::7]:443'."


class EgressEntryError(ValueError):
    """The text names no host and port; the message says why and what to write."""


@dataclass(frozen=True)
class Destination:
    """One listed pair. `host` is lower-case, an IP literal in its shortest form and without brackets."""

    host: str
    port: int
    is_literal: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_destination(text: str) -> Destination:
    """Read `HOST:PORT`. Raises `EgressEntryError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise EgressEntryError(f"{text!r} has no port. {_MEND}")
    if not _PORT.match(port) or int(port) > 65535:
        raise EgressEntryError(f"{text!r} has no port from 1 to 65535. {_MEND}")
    literal = _literal(host)
    if literal is not None:
        return Destination(literal, int(port), is_literal=True)
    if len(host) > _MOST_NAME or not _NAME.match(host) or _NUMBER.match(host.rpartition(".")[2]):
        raise EgressEntryError(f"{text!r} has no plain host name or IP address before its port. {_MEND}")
    return Destination(host.lower(), int(port), is_literal=False)


def parse_egress(texts: Sequence[str]) -> frozenset[Destination]:
    """Read a whole list. Raises `EgressEntryError`."""
    if len(texts) > MOST_ENTRIES:
        raise EgressEntryError(f"The list has {len(texts)} entries; at most {MOST_ENTRIES} are allowed. Name fewer.")
    return frozenset(map(parse_destination, texts))


def proxy_variables(egress: Sequence[str]) -> dict[str, str]:
    """What a container's programs read to find the gateway's tunnels; nothing where nothing is listed.

    Requests to the worker's model go to the relay itself, past the proxy: that is what the exceptions say.
    """
    if not egress:
        return {}
    variables = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{RELAY_PORT}")
    variables["NO_PROXY"] = "127.0.0.1,localhost"
    return variables | {name.lower(): value for name, value in variables.items()}


def _literal(host: str) -> str | None:
    """An IP address in its shortest form, IPv6 with brackets around it; None for anything else."""
    bracketed = host.startswith("[") and host.endswith("]")
    if "%" in host:
        return None
    try:
        return str(ipaddress.IPv6Address(host[1:-1]) if bracketed else ipaddress.IPv4Address(host))
    except ipaddress.AddressValueError:
        return None
