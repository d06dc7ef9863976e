"""The way to the model providers: one HTTP client per upstream, pinned to it.

HTTP/1.1, redirects not followed, the usual proxy and CA variables of this process honoured. Below: httpx. Above:
`inference`. What it refuses to know: workers.
"""

import os
import ssl
from contextlib import AsyncExitStack
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Final, Self

import certifi
import httpx

from sandboxes.gateway.key_ring import ProviderKey

CONNECT_S: Final = 15.0
"""TCP and TLS to a provider; slower means unreachable."""
WRITE_S: Final = 60.0
"""One piece of a request body; a provider that does not read is unreachable too."""
CONNECTIONS: Final = 256
"""To one upstream: above what the bounds per worker let through in practice."""

_BUNDLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_EXTRA: Final = "NODE_EXTRA_CA_CERTS"


class Upstreams:
    """The clients, made on first use. An async context manager."""

    def __init__(self) -> None:
        self._clients: dict[httpx.URL, httpx.AsyncClient] = {}
        self._stack = AsyncExitStack()
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def client(self, key: ProviderKey) -> httpx.AsyncClient:
        """The client of the key's upstream. Reads are not bounded here: `answer_judge` bounds whole events."""
        client = self._clients.get(key.base)
        if client is None:
            client = httpx.AsyncClient(
                verify=self._tls_context(),
                http2=False,
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                timeout=httpx.Timeout(None, connect=CONNECT_S, write=WRITE_S),
                limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=16),
            )
            self._clients[key.base] = await self._stack.enter_async_context(client)
        return client

    def _tls_context(self) -> ssl.SSLContext:
        self._tls = self._tls or tls_context(os.environ.get("SSL_CERT_DIR"), _named_bundle(), os.environ.get(_EXTRA))
        return self._tls


def tls_context(folder: str | None, bundle: str | None, extra: str | None) -> ssl.SSLContext:
    """Trust `bundle` and `folder` where they are named, else the system's and certifi's roots; `extra` is added."""
    if bundle or folder:
        context = ssl.create_default_context(cafile=bundle or None, capath=folder or None)
    else:
        context = ssl.create_default_context()
        context.load_verify_locations(certifi.where())
    if extra and Path(extra).is_file():
        context.load_verify_locations(extra)
    return context


def _named_bundle() -> str | None:
    return next((path for name in _BUNDLES if (path := os.environ.get(name))), None)
