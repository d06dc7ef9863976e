"""Hands a provider's key from this command's environment to the gateway, and to nobody else (threats.md, K2).

The key goes from the environment of `mxs` over the gateway's own socket: never an argument, a file, another process's
environment or the supervisor. What the supervisor gets is a handle, which is a random word.
"""

import os
import secrets

import anyio

from sandboxes.gateway.client import GatewayClient, GatewayError
from supervisor.home import StateFolder
from supervisor.providers import PROVIDERS, Provider
from supervisor.refusal import EXIT_UNAVAILABLE, Refusal
from supervisor.workers.worker import WorkerKind


def give_key(kind: WorkerKind, home: StateFolder) -> str:
    """Give the gateway the key for this kind of worker; the handle under which it holds it. Raises `Refusal`."""
    provider = PROVIDERS[kind]
    key = os.environ.get(provider.key_variable)
    if not key:
        raise Refusal(
            f"{provider.key_variable} is not set, and a {kind} worker needs a model.",
            "Set it for this command, or play a script: --model script:FILE.",
        )
    handle = secrets.token_urlsafe(18)
    try:
        anyio.run(_put, home, handle, provider, key)
    except (GatewayError, OSError) as fault:
        raise Refusal(
            "The model gateway does not answer.", "See $MXS_HOME/log/gateway.log.", exit_code=EXIT_UNAVAILABLE
        ) from fault
    return handle


async def _put(home: StateFolder, handle: str, provider: Provider, key: str) -> None:
    async with GatewayClient(home.gateway_socket) as client:
        await client.put_key(handle, provider.name, key, os.environ.get(provider.url_variable))
