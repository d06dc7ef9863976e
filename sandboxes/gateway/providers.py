"""Who answers a worker's model requests: the real provider behind its key, or the script. One seam, two kinds.

Below: `upstream` and `script`. Above: `inference`, which does not know which of the two it talks to.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
import httpx

from sandboxes.gateway.http_wire import HttpRequest
from sandboxes.gateway.key_ring import KeyRing, ProviderKey
from sandboxes.gateway.model_request import ModelRequest
from sandboxes.gateway.provider_answer import ProviderAnswer
from sandboxes.gateway.refusal import WorkerKind
from sandboxes.gateway.request_policy import Route, forwarded, returned
from sandboxes.gateway.script.scripted_provider import ScriptedProvider
from sandboxes.gateway.upstream import Upstreams

KEY_WAIT_S: Final = 600.0
"""How long a request waits for a key that a command has yet to supply: the patience of a worker's own client."""


class ProviderError(Exception):
    """No answer of the provider: what the worker is told instead."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True)
class Question:
    """One request on its way to a provider. `model` is None for what is no inference (counts, lists)."""

    route: Route
    request: HttpRequest
    model: ModelRequest | None


class ModelProvider(Protocol):
    """Answers questions."""

    def ask(self, question: Question) -> AbstractAsyncContextManager[ProviderAnswer]:
        """The answer; its body is open inside the context. Raises `ProviderError`, `ScriptError`."""


class RealProvider:
    """The provider of one worker, pinned by its key."""

    def __init__(
        self,
        kind: WorkerKind,
        handle: str | None,
        keys: KeyRing,
        upstreams: Upstreams,
        idle_s: float,
        on_waiting: Callable[[], None],
    ) -> None:
        self._kind: WorkerKind = kind
        self._handle = handle
        self._keys = keys
        self._upstreams = upstreams
        self._idle_s = idle_s
        self._on_waiting = on_waiting

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncGenerator[ProviderAnswer, None]:
        """Send the question with our key; leaving the context closes the connection to the provider."""
        key = await self._key()
        client = await self._upstreams.client(key)
        response = await self._sent(client, self._outgoing(client, key, question))
        try:
            if response.is_redirect or response.status_code < 200:
                raise ProviderError(502, "MX_AGENT_INFERENCE_FAILED", "The provider redirected; that is not followed.")
            headers = returned(tuple(response.headers.multi_items()), key.secret)
            yield ProviderAnswer(response.status_code, headers, _body(response), key.redact)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    def _outgoing(self, client: httpx.AsyncClient, key: ProviderKey, question: Question) -> httpx.Request:
        headers = [*forwarded(self._kind, question.request.headers), ("accept-encoding", "identity"), *key.headers()]
        content = question.request.body or None
        return client.build_request(
            question.request.method, key.url(question.route.target), headers=headers, content=content
        )

    async def _sent(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        try:
            with anyio.fail_after(self._idle_s):
                return await client.send(request, stream=True)
        except TimeoutError:
            silent = f"The provider did not begin to answer within {self._idle_s:g} s."
            raise ProviderError(504, "MX_AGENT_INFER_TIMEOUT", silent) from None
        except httpx.HTTPError as error:
            where = f"The provider at {request.url.host!r} cannot be reached ({type(error).__name__})."
            unreachable = f"{where} Check the network, the proxy variables and the base URL."
            raise ProviderError(502, "MX_AGENT_INFERENCE_FAILED", unreachable) from None

    async def _key(self) -> ProviderKey:
        if self._handle is None:
            raise ProviderError(401, "MX_AGENT_INFERENCE_FAILED", "This run has neither a provider key nor a script.")
        key = self._keys.get(self._handle)
        if key is None:
            self._on_waiting()
            key = await self._keys.wait(self._handle, KEY_WAIT_S)
        wanted = "anthropic" if self._kind == "claude" else "openai"
        if key is None or key.provider != wanted:
            raise ProviderError(401, "MX_AGENT_INFERENCE_FAILED", f"Nobody supplied a key for {wanted!r}.")
        return key


async def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body; a connection that breaks is the provider's failure."""
    try:
        async for piece in response.aiter_bytes():
            yield piece
    except httpx.HTTPError as error:
        raise ProviderError(
            502, "MX_AGENT_INFERENCE_FAILED", f"The provider's answer broke off ({type(error).__name__})."
        ) from None


async def collected(body: AsyncIterator[bytes], limit: int, idle_s: float) -> bytes:
    """The whole body. Raises `ProviderError` when it is over `limit` bytes or does not come to its end in time."""
    data = bytearray()
    try:
        with anyio.fail_after(idle_s):
            async for piece in body:
                data += piece
                if len(data) > limit:
                    raise ProviderError(502, "MX_AGENT_TOO_LARGE", f"The provider's answer is over {limit} bytes.")
    except TimeoutError:
        raise ProviderError(504, "MX_AGENT_INFER_TIMEOUT", f"The provider's answer took over {idle_s:g} s.") from None
    return bytes(data)


class ScriptProvider:
    """The script of one worker."""

    def __init__(self, script: ScriptedProvider) -> None:
        self._script = script

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncGenerator[ProviderAnswer, None]:
        """Play the next step; counts and lists are answered beside it."""
        if question.model is not None:
            yield await self._script.answer(question.model)
        elif question.route.name == "count_tokens":
            yield ProviderAnswer.of_json(200, self._script.count_tokens())
        else:
            yield ProviderAnswer.of_json(200, self._script.models())
