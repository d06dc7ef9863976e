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

    async def put_key(request: Request) -> Response:
        delivery = await _form(request, KeyDelivery)
        try:
            gateway.keys.put(delivery.handle, provider_key(delivery.provider, delivery.key, delivery.base_url))
        except KeyRefusedError as error:
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None
        return Response(status_code=204)

    async def open_worker(request: Request) -> Response:
        opening = await _form(request, WorkerOpening)
        try:
            opened = gateway.open_worker(opening)
        except ScriptFileError as error:
            message = f"{opening.script_name}, line {error.line}: {error.message}"
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", message, error.line) from None
        except WorkerOpenError as error:
            raise _RefusedError(409, "MX_AGENT_LIMIT", str(error)) from None
        except OSError as error:
            refused = f"The worker's socket cannot be made: {error.strerror}."
            raise _RefusedError(422, "MX_AGENT_SANDBOX_UNAVAILABLE", refused) from None
        return _json(opened)

    async def get_worker(request: Request) -> Response:
        return _known(gateway.figures(request.path_params["worker"]))

    async def close_worker(request: Request) -> Response:
        return _known(await gateway.close_worker(request.path_params["worker"]))

    async def events(_: Request) -> Response:
        return StreamingResponse(_lines(gateway), media_type="application/x-ndjson")

    async def answer(request: Request) -> Response:
        body = await _body(request)
        if not gateway.feed.answer(request.path_params["ask"], body):
            raise _RefusedError(404, "MX_AGENT_APPROVAL_EXPIRED", "Nobody waits for this answer (any more).")
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route("/keys", put_key, methods=["POST"]),
            Route("/workers", open_worker, methods=["POST"]),
            Route("/workers/{worker}", get_worker, methods=["GET"]),
            Route("/workers/{worker}", close_worker, methods=["DELETE"]),
            Route("/events", events, methods=["GET"]),
            Route("/answers/{ask}", answer, methods=["POST"]),
        ],
        exception_handlers={_RefusedError: _refused},
    )


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
