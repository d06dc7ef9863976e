"""What a request's head must look like before anything reads it twice. Pure leaf of `http_wire`.

h11 is lenient about some heads that other readers cut differently, which is how smuggling works: they are refused here.
"""

import re
from typing import Final

_FIELD_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_ONCE: Final = frozenset({b"content-length", b"transfer-encoding", b"host"})
_VERSIONS: Final = (b" HTTP/1.1",)
_TUNNEL_VERSIONS: Final = (b" HTTP/1.1", b" HTTP/1.0")
"""Python's own client asks for a tunnel in HTTP/1.0; nothing can follow on such a connection, so that is harmless."""


class BadRequestError(Exception):
    """The request cannot be read safely: answer `status` and close."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        self.why = why
        super().__init__(why)


def check_head(head: bytes) -> None:
    """Refuse a head that readers could cut differently. Raises `BadRequestError`. Pure."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(byte in line for line in lines for byte in (b"\r", b"\n", b"\0")):
        raise BadRequestError(400, "The request's head has a bare CR, LF or NUL.")
    versions = _TUNNEL_VERSIONS if lines[0].startswith(b"CONNECT ") else _VERSIONS
    if lines[0].count(b" ") != 2 or not lines[0].endswith(versions):
        raise BadRequestError(400, "The request line must be 'METHOD TARGET HTTP/1.1'.")
    seen: set[bytes] = set()
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or not _FIELD_NAME.match(name):
            raise BadRequestError(400, "A header line is malformed or folded.")
        if name in seen and name in _ONCE:
            raise BadRequestError(400, f"The header {name.decode()!r} stands twice.")
        if name == b"content-length" and not re.fullmatch(rb"[0-9]{1,12}", value.strip(b" \t")):
            raise BadRequestError(400, "The Content-Length is not one plain number.")
        if name == b"transfer-encoding" and value.strip(b" \t").lower() != b"chunked":
            raise BadRequestError(400, "The only transfer coding that is understood is 'chunked'.")
        seen.add(name)
    if {b"content-length", b"transfer-encoding"} <= seen:
        raise BadRequestError(400, "Content-Length and Transfer-Encoding stand side by side.")
