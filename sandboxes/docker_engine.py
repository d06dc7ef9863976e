"""A connection to one container engine: the `docker` package's blocking calls as bounded awaits with typed failures.

Calls run in threads of a limiter of their own, each bounded by `ENGINE_TIMEOUT_S`. Only `docker_*` modules import the
package. Above: `docker_sandbox` and `reaper`.
"""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import docker.errors
import requests
from anyio import to_thread
from docker import APIClient

from sandboxes.engine import check_engine
from sandboxes.sandbox import SandboxError

ENGINE_TIMEOUT_S: Final = 30  # create, start and remove take a fraction of a second; an overloaded disk takes longer
ENGINE_THREADS: Final = 16
EXPLANATION_CHARACTERS: Final = 500
NOT_FOUND: Final = 404
CONFLICT: Final = 409

_Result = TypeVar("_Result")


class DockerEngine:
    """A connection to one engine: blocking calls made into bounded awaits, its errors into `SandboxError`."""

    def __init__(self, socket_path: Path | None = None) -> None:
        """`socket_path` is the engine's unix socket; None finds it as the `docker` command does."""
        self._socket_path = socket_path
        self._client: APIClient | None = None
        self._limiter: anyio.CapacityLimiter | None = None

    async def call(self, what: str, function: Callable[[APIClient], _Result], *, abandon: bool = False) -> _Result:
        """Run `function` with the client in a thread; `what` completes "The engine could not …".

        A cancellation waits for the call's end, unless `abandon` says that its effect does not matter.
        """
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(ENGINE_THREADS)
        guarded = partial(self._guarded, what, function)
        return await to_thread.run_sync(guarded, limiter=self._limiter, abandon_on_cancel=abandon)

    def _guarded(self, what: str, function: Callable[[APIClient], _Result]) -> _Result:
        try:
            return function(self._connected())
        except docker.errors.APIError as error:
            raise _refusal(what, error) from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise SandboxError(f"The engine could not {what}: it does not answer.", "Run `mxs doctor`.") from error

    def _connected(self) -> APIClient:
        if self._client is None:
            engine = check_engine(self._socket_path)
            self._client = APIClient(f"unix://{engine.socket_path}", version="auto", timeout=ENGINE_TIMEOUT_S)
        return self._client

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


def _refusal(what: str, error: docker.errors.APIError) -> SandboxError:
    """The engine's own words, with what to do about them."""
    explanation = str(error.explanation or error)[:EXPLANATION_CHARACTERS]
    if error.status_code == NOT_FOUND and "image" in explanation.lower():
        return SandboxError(f"The engine could not {what}: {explanation}.", "Run `make setup`, or `docker pull` it.")
    if error.status_code == CONFLICT and "already in use" in explanation:
        return SandboxError(
            f"The engine could not {what}: {explanation}", "Remove that container, or use another name."
        )
    return SandboxError(f"The engine could not {what}: {explanation}", "Run `mxs doctor`.")


def raw_socket(attached: Any) -> socket.socket:
    """The socket itself, out of what the package hands out for an attached stream (`SocketIO`), which lets go of it."""
    return socket.socket(fileno=attached._sock.detach())


def remove_container(container_id: str, client: APIClient) -> None:
    """Kill and remove one container and its anonymous volumes; one that is gone already is no error."""
    try:
        client.remove_container(container_id, force=True, v=True)
    except docker.errors.APIError as error:
        if error.status_code not in (NOT_FOUND, CONFLICT):  # conflict: somebody is removing it
            raise


def labelled_containers(label: str, value: str, client: APIClient) -> list[dict[str, Any]]:
    """The engine's entries of all containers, in whatever state, whose `label` is exactly `value`."""
    listed = client.containers(all=True, filters={"label": [f"{label}={value}"]})
    return [entry for entry in listed if entry["Labels"].get(label) == value]
