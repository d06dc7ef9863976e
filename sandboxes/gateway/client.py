"""The supervisor's and the command's side of the gateway's control socket (docs/wires.md, "Gateway control").

Below: HTTP over a unix socket. Above: whoever starts workers. It keeps nothing: a key passes through and is forgotten.
"""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Self

import httpx

from sandboxes.gateway import strict_json
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.key_ring import Provider
from sandboxes.gateway.wire_form import from_wire, to_wire
from sandboxes.gateway.worker_opening import KeyDelivery, WorkerFigures, WorkerOpened, WorkerOpening

CALL_S: Final = 15.0
"""Every call but the event stream answers at once; a gateway that does not is as good as gone."""


class GatewayError(Exception):
    """The gateway refused, or is not there (`MX_AGENT_INFERENCE_FAILED`). `line` is set for a script's fault."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        self.code = code
        self.message = message
        self.line = line
        super().__init__(f"{code}: {message}")


def gateway_argv(control_socket: Path, parent_fd: int) -> tuple[str, ...]:
    """The words that start the gateway's process; `parent_fd` must be inherited by it and kept open by its parent."""
    words = (sys.executable, "-P", "-m", "sandboxes.gateway")
    return (*words, "--socket", str(control_socket), "--parent-fd", str(parent_fd))


class GatewayClient:
    """One user of the control socket. An async context manager."""

    def __init__(self, control_socket: Path) -> None:
        transport = httpx.AsyncHTTPTransport(uds=str(control_socket))
        self._http = httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=CALL_S, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def put_key(self, handle: str, provider: Provider, key: str, base_url: str | None = None) -> None:
        """Supply a provider's key under `handle`. Raises `GatewayError`."""
        await self._call("POST", "/keys", KeyDelivery(handle=handle, provider=provider, key=key, base_url=base_url))

    async def open_worker(self, opening: WorkerOpening) -> WorkerOpened:
        """Open a worker's socket; it listens when this returns. Raises `GatewayError`, with a line for a bad script."""
        return from_wire(WorkerOpened, await self._asked("POST", "/workers", opening))

    async def close_worker(self, worker_id: str) -> WorkerFigures:
        """Close a worker's socket. Raises `GatewayError` if it is not open."""
        return from_wire(WorkerFigures, await self._asked("DELETE", f"/workers/{worker_id}"))

    async def worker(self, worker_id: str) -> WorkerFigures:
        """A worker's figures so far. Raises `GatewayError` if it is not open."""
        return from_wire(WorkerFigures, await self._asked("GET", f"/workers/{worker_id}"))

    async def answer(self, ask: str, answer: JsonObject) -> bool:
        """Answer an event that asks; False if nobody waits for it any more."""
        response = await self._send("POST", f"/answers/{ask}", json.dumps(answer).encode())
        return response.status_code == 204

    async def events(self) -> AsyncIterator[JsonObject]:
        """The gateway's events for as long as it lives; ends with it. Raises `GatewayError` if it cannot be reached."""
        try:
            async with self._http.stream("GET", "/events", timeout=httpx.Timeout(CALL_S, read=None)) as response:
                async for line in response.aiter_lines():
                    if line:
                        yield json.loads(line)
        except httpx.ConnectError:
            raise _gone() from None
        except httpx.TransportError:
            return

    async def _asked(self, method: str, path: str, form: WorkerOpening | None = None) -> JsonObject:
        return strict_json.load_object(await self._call(method, path, form))

    async def _call(self, method: str, path: str, form: KeyDelivery | WorkerOpening | None = None) -> bytes:
        content = None if form is None else strict_json.dumps(to_wire(form))
        response = await self._send(method, path, content)
        if response.status_code >= 400:
            raise _error(response)
        return response.content

    async def _send(self, method: str, path: str, content: bytes | None) -> httpx.Response:
        try:
            return await self._http.request(method, path, content=content)
        except httpx.TransportError:
            raise _gone() from None


def _gone() -> GatewayError:
    return GatewayError("MX_AGENT_INFERENCE_FAILED", "The model gateway cannot be reached; 'mxs down' and start again.")


def _error(response: httpx.Response) -> GatewayError:
    try:
        error = response.json()["error"]
        return GatewayError(error["code"], error["message"], error.get("line"))
    except (ValueError, KeyError, TypeError):
        return GatewayError("MX_AGENT_INFERENCE_FAILED", f"The model gateway answered {response.status_code}.")
