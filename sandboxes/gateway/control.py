"""The control socket's HTTP interface (docs/wires.md, "Gateway control"): keys, workers, events, answers.

Below: `gateway`. Above: the supervisor and the `mxs` client, by `client`. It decides nothing and never echoes a body,
which may hold a key.
"""

import json
from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sandboxes.gateway import strict_json
from sandboxes.gateway.egress_list import EgressEntryError
from sandboxes.gateway.gateway import Gateway, WorkerOpenError
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.key_ring import KeyRefusedError, provider_key
from sandboxes.gateway.script.script_file import ScriptFileError
from sandboxes.gateway.worker_opening import KeyDelivery, WireForm, WorkerFigures, WorkerOpening

Form = TypeVar("Form", bound=WireForm)


class _RefusedError(Exception):
    """The request is refused with this answer."""

    def __init__(self, status: int, code: str, message: str, line: int | None = None) -> None:
        self.response = JSONResponse({"error": {"code": code, "message": message, "line": line}}, status)
        super().__init__(message)


def control_app(gateway: Gateway) -> Starlette:
    """The application for the control socket."""
    control = _Control(gateway)
    return Starlette(
        routes=[
            Route("/keys", control.put_key, methods=["POST"]),
            Route("/workers", control.open_worker, methods=["POST"]),
            Route("/workers/{worker}", control.get_worker, methods=["GET"]),
            Route("/workers/{worker}", control.close_worker, methods=["DELETE"]),
            Route("/events", control.events, methods=["GET"]),
            Route("/answers/{ask}", control.answer, methods=["POST"]),
        ],
        exception_handlers={_RefusedError: _refused},
    )


class _Control:
    """One method for each call of the interface."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def put_key(self, request: Request) -> Response:
        """Keep a key in memory."""
        delivery = await _form(request, KeyDelivery)
        try:
            self._gateway.keys.put(delivery.handle, provider_key(delivery.provider, delivery.key, delivery.base_url))
        except KeyRefusedError as error:
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None
        return Response(status_code=204)

    async def open_worker(self, request: Request) -> Response:
        """Listen on a worker's socket; it accepts connections when this is answered."""
        opening = await _form(request, WorkerOpening)
        try:
            return _json(await self._gateway.open_worker(opening))
        except ScriptFileError as error:
            message = f"{opening.script_name}, line {error.line}: {error.message}"
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", message, error.line) from None
        except EgressEntryError as error:
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None
        except WorkerOpenError as error:
            raise _RefusedError(409, "MX_AGENT_LIMIT", str(error)) from None
        except OSError as error:
            refused = f"The worker's socket cannot be made: {error.strerror or 'its path is too long'}."
            raise _RefusedError(422, "MX_AGENT_SANDBOX_UNAVAILABLE", refused) from None

    async def get_worker(self, request: Request) -> Response:
        """A worker's figures."""
        return _known(self._gateway.figures(request.path_params["worker"]))

    async def close_worker(self, request: Request) -> Response:
        """Close a worker's socket; its last figures."""
        return _known(await self._gateway.close_worker(request.path_params["worker"]))

    async def events(self, _: Request) -> Response:
        """What happens, a JSON line each, until the listener leaves."""
        return StreamingResponse(_lines(self._gateway), media_type="application/x-ndjson")

    async def answer(self, request: Request) -> Response:
        """Bring the answer to a question."""
        body = await _body(request)
        if not self._gateway.feed.answer(request.path_params["ask"], body):
            raise _RefusedError(404, "MX_AGENT_APPROVAL_EXPIRED", "Nobody waits for this answer (any more).")
        return Response(status_code=204)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _RefusedError)
    return error.response


async def _body(request: Request) -> JsonObject:
    try:
        return strict_json.load_object(await request.body())
    except strict_json.JsonRefusedError as error:
        raise _RefusedError(400, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None


async def _form(request: Request, form: type[Form]) -> Form:
    body = await _body(request)
    try:
        return form.model_validate(body)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", faults) from None


async def _lines(gateway: Gateway) -> AsyncIterator[str]:
    async with gateway.feed.listen() as events:
        yield "\n"  # the head goes out at once: the listener knows that it is connected
        async for event in events:
            yield json.dumps(event) + "\n"


def _json(form: WireForm) -> Response:
    return JSONResponse(form.model_dump(mode="json", by_alias=True))


def _known(figures: WorkerFigures | None) -> Response:
    if figures is None:
        raise _RefusedError(404, "MX_AGENT_TARGET_NOT_FOUND", "No such worker is open.")
    return _json(figures)
