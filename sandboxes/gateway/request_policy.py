"""Which requests of a worker may go on: method, path, host and headers. Pure; the body is judged by `body_policy`.

Everything that is not named here is refused. The worker's own key, cookies and routing headers have no way upstream,
because headers are copied by an allow-list.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from sandboxes.gateway.refusal import Refusal, WorkerKind

RouteName = Literal["messages", "count_tokens", "responses", "models", "hook"]
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Route:
    """A request that may go on. `target` is path and query exactly as they go upstream."""

    name: RouteName
    target: str


_EXACT: Final[dict[WorkerKind, dict[tuple[str, str], RouteName]]] = {
    "claude": {
        ("POST", "/v1/messages"): "messages",
        ("POST", "/v1/messages/count_tokens"): "count_tokens",
        ("GET", "/v1/models"): "models",
        ("POST", "/mxs/hook"): "hook",
    },
    "codex": {
        ("POST", "/v1/responses"): "responses",
        ("GET", "/v1/models"): "models",
        ("POST", "/mxs/hook"): "hook",
    },
}
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_.\-]+)+\Z", re.ASCII)
_QUERY: Final = re.compile(r"[A-Za-z0-9_.\-=&]{0,512}\Z", re.ASCII)
_MODEL: Final = re.compile(r"/v1/models/[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*\Z", re.ASCII)
_LOOPBACK_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?\Z", re.ASCII)

_FORWARDED: Final[dict[WorkerKind, frozenset[str]]] = {
    "claude": frozenset(
        {
            "accept",
            "content-type",
            "user-agent",
            "anthropic-version",
            "anthropic-beta",
            "anthropic-dangerous-direct-browser-access",
            "x-app",
            "x-claude-code-session-id",
            "x-claude-code-agent-id",
        }
    ),
    "codex": frozenset(
        {
            "accept",
            "content-type",
            "user-agent",
            "originator",
            "version",
            "openai-beta",
            "session-id",
            "session_id",
            "thread-id",
            "x-client-request-id",
        }
    ),
}
_FORWARDED_PREFIX: Final[dict[WorkerKind, str]] = {"claude": "x-stainless-", "codex": "x-codex-"}
_RETURNED: Final = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id"}
)
_RETURNED_PREFIXES: Final = ("anthropic-ratelimit-", "x-ratelimit-")


def route(kind: WorkerKind, method: str, target: str, headers: Headers) -> Route | Refusal:
    """Judge the request line and the headers of one request."""
    path, _, query = target.partition("?")
    refusal = _malformed(method, path, query) or _misdirected(headers)
    if refusal:
        return refusal
    name = _EXACT[kind].get((method, path))
    if name is None and method == "GET" and _MODEL.match(path):
        name = "models"
    if name is None:
        return Refusal(
            403, f"{method} {path!r} is not on the list of what a {kind} worker may ask its model provider for."
        )
    return Route(name, target)


def forwarded(kind: WorkerKind, headers: Headers) -> Headers:
    """The worker's headers that go upstream. Keys, cookies, host and framing are not among them."""
    wanted, prefix = _FORWARDED[kind], _FORWARDED_PREFIX[kind]
    return tuple((name, value) for name, value in headers if name in wanted or name.startswith(prefix))


def returned(headers: Headers, secret: str | None) -> Headers:
    """The provider's headers that reach the worker; none that holds `secret`."""
    kept = ((name.lower(), value) for name, value in headers)
    return tuple(
        (name, value)
        for name, value in kept
        if (name in _RETURNED or name.startswith(_RETURNED_PREFIXES)) and not (secret and secret in value)
    )


def _malformed(method: str, path: str, query: str) -> Refusal | None:
    if method == "CONNECT":
        return Refusal(405, "CONNECT is not offered here: this run has no --egress, so it reaches its model alone.")
    if path.startswith("http://"):
        return Refusal(400, "Plain HTTP is not forwarded here. Use https: it comes as CONNECT, for hosts of --egress.")
    if not path.startswith("/") or path.startswith("//"):
        return Refusal(400, "The request target must be a plain path of this server, such as '/v1/messages'.")
    segments = path.split("/")
    if "." in segments or ".." in segments or (path != "/" and not _PATH.match(path)):
        return Refusal(400, "The path has empty, dotted, encoded or unusual segments; send it in its plain form.")
    if not _QUERY.match(query):
        return Refusal(400, "The query has characters that no request to a model provider needs.")
    return None


def _misdirected(headers: Headers) -> Refusal | None:
    names = [name for name, _ in headers]
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not _LOOPBACK_HOST.match(hosts[0]):
        return Refusal(421, "The Host header must name this server once: 127.0.0.1 or localhost.")
    if "upgrade" in names:
        return Refusal(426, "Upgrades (WebSocket, HTTP/2) are not offered here: use HTTP/1.1 with server-sent events.")
    if any(name == "content-encoding" and value.lower() != "identity" for name, value in headers):
        return Refusal(415, "Compressed request bodies cannot be judged: send the body as plain JSON.")
    return None
