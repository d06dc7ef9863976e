"""The provider keys. They are here, in the memory of this process, and nowhere else.

A key lives under a handle until the last worker that uses the handle is gone. No method shows one but `wait`, and
neither `repr` nor an exception of this file can hold one.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
import httpx

Provider = Literal["anthropic", "openai"]

_DEFAULT_BASE: Final[dict[Provider, str]] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}


class KeyRefusedError(ValueError):
    """The key or its base URL cannot be used; the message holds neither."""


@dataclass(frozen=True)
class ProviderKey:
    """A key with the one upstream it may be sent to."""

    provider: Provider
    base: httpx.URL
    secret: str = field(repr=False)

    def url(self, target: str) -> httpx.URL:
        """Where the worker's `target` (path and query, beginning with `/v1/`) lies upstream."""
        path, _, query = target.partition("?")
        prefix = self.base.path.rstrip("/").removesuffix("/v1")
        return self.base.copy_with(path=prefix + path, query=query.encode() or None)

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that carry the key, in the provider's own way."""
        if self.provider == "anthropic":
            return (("x-api-key", self.secret),)
        return (("authorization", f"Bearer {self.secret}"),)

    def redact(self, data: bytes) -> bytes:
        """`data` without the key."""
        return data.replace(self.secret.encode(), b"[key]")


def provider_key(provider: Provider, secret: str, base_url: str | None) -> ProviderKey:
    """A checked key. Raises `KeyRefusedError`."""
    if len(secret) < 8 or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise KeyRefusedError(f"The key for {provider!r} must be at least 8 printable ASCII characters without spaces.")
    try:
        base = httpx.URL(base_url or _DEFAULT_BASE[provider])
    except httpx.InvalidURL:
        raise KeyRefusedError(f"The base URL for {provider!r} is not a URL.") from None
    if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.query or base.fragment:
        raise KeyRefusedError(f"The base URL for {provider!r} must be http(s)://host[:port][/path] and nothing more.")
    return ProviderKey(provider, base, secret)


class KeyRing:
    """Keys by handle, and how many workers use each handle."""

    def __init__(self) -> None:
        self._keys: dict[str, ProviderKey] = {}
        self._users: dict[str, int] = {}
        self._changed = anyio.Event()

    def put(self, handle: str, key: ProviderKey) -> None:
        """Keep `key`; a key put again under its handle replaces the earlier one, running workers use it at once."""
        self._keys[handle] = key
        self._changed.set()
        self._changed = anyio.Event()

    def hold(self, handle: str) -> None:
        """One more worker uses `handle`."""
        self._users[handle] = self._users.get(handle, 0) + 1

    def release(self, handle: str) -> None:
        """One worker less uses `handle`; the last one takes the key with it."""
        self._users[handle] -= 1
        if not self._users[handle]:
            del self._users[handle]
            self._keys.pop(handle, None)

    def get(self, handle: str) -> ProviderKey | None:
        """The key if it is here."""
        return self._keys.get(handle)

    async def wait(self, handle: str, timeout_s: float) -> ProviderKey | None:
        """The key, once somebody has brought it; None if nobody did in time."""
        with anyio.move_on_after(timeout_s):
            while handle not in self._keys:
                await self._changed.wait()
        return self._keys.get(handle)
