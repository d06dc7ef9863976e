"""The control socket's interface (docs/wires.md, "Gateway control"): keys, workers, events, answers.

Below: `gateway`, and the same `http_wire` and `peer_socket` as on the workers' side. Above: the supervisor and the
`mxs` client, by `client`. It decides nothing and never echoes a body, which may hold a key.
"""

from typing import Final

from sandboxes.gateway import strict_json
from sandboxes.gateway.egress_list import EgressEntryError
from sandboxes.gateway.gateway import Gateway, WorkerOpenError
from sandboxes.gateway.http_wire import Answer, HttpRequest
from sandboxes.gateway.json_types import JsonObject
from sandboxes.gateway.key_ring import KeyRefusedError, provider_key
from sandboxes.gateway.request_head import BadRequestError
from sandboxes.gateway.script.script_file import ScriptFileError
from sandboxes.gateway.wire_form import Form, WireFormError, from_wire, to_wire
from sandboxes.gateway.worker_opening import KeyDelivery, WorkerFigures, WorkerOpening

_JSON: Final = (("content-type", "application/json"),)
_LINES: Final = (("content-type", "application/x-ndjson"),)


class _RefusedError(Exception):
    """The request is refused with this answer."""

    def __init__(self, status: int, code: str, message: str, line: int | None = None) -> None:
        self.status = status
        self.body: JsonObject = {"error": {"code": code, "message": message, "line": line}}
        super().__init__(message)


class Control:
    """Answers the requests of the control socket."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def handle(self, request: HttpRequest, answer: Answer) -> None:
        """Answer one request."""
        if (request.method, request.target) == ("GET", "/events"):
            await self._events(answer)
            return
        try:
            status, reply = await self._reply(request)
        except _RefusedError as refused:
            status, reply = refused.status, refused.body
        await answer.whole(status, b"" if reply is None else strict_json.dumps(reply), _JSON)

    async def reject(self, error: BadRequestError, answer: Answer) -> None:
        """Answer a request that could not be read."""
        refused = _RefusedError(error.status, "MX_AGENT_INVALID_ARGUMENTS", error.why)
        await answer.whole(refused.status, strict_json.dumps(refused.body), (*_JSON, ("connection", "close")))

    async def _reply(self, request: HttpRequest) -> tuple[int, JsonObject | None]:
        match request.method, request.target.split("/")[1:]:
            case "POST", ["keys"]:
                return self._put_key(_form(request, KeyDelivery))
            case "POST", ["workers"]:
                return await self._open_worker(_form(request, WorkerOpening))
            case "GET", ["workers", worker]:
                return _known(self._gateway.figures(worker))
            case "DELETE", ["workers", worker]:
                return _known(await self._gateway.close_worker(worker))
            case "POST", ["answers", ask]:
                return self._answer(ask, _body(request))
            case _:
                raise _RefusedError(404, "MX_AGENT_TARGET_NOT_FOUND", "The control socket has no such call.")

    def _put_key(self, delivery: KeyDelivery) -> tuple[int, None]:
        """Keep a key in memory."""
        try:
            self._gateway.keys.put(delivery.handle, provider_key(delivery.provider, delivery.key, delivery.base_url))
        except KeyRefusedError as error:
            raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None
        return 204, None

    async def _open_worker(self, opening: WorkerOpening) -> tuple[int, JsonObject]:
        """Listen on a worker's socket; it accepts connections when this is answered."""
        try:
            return 200, to_wire(await self._gateway.open_worker(opening))
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

    def _answer(self, ask: str, body: JsonObject) -> tuple[int, None]:
        """Bring the answer to a question."""
        if not self._gateway.feed.answer(ask, body):
            raise _RefusedError(404, "MX_AGENT_APPROVAL_EXPIRED", "Nobody waits for this answer (any more).")
        return 204, None

    async def _events(self, answer: Answer) -> None:
        """What happens, a JSON line each, until the listener leaves, which cancels this."""
        async with self._gateway.feed.listen() as events:
            await answer.start(200, _LINES)
            async for event in events:
                await answer.send(strict_json.dumps(event) + b"\n")
            await answer.finish()


def _body(request: HttpRequest) -> JsonObject:
    try:
        return strict_json.load_object(request.body)
    except strict_json.JsonRefusedError as error:
        raise _RefusedError(400, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None


def _form(request: HttpRequest, form: type[Form]) -> Form:
    try:
        return from_wire(form, _body(request))
    except WireFormError as error:
        raise _RefusedError(422, "MX_AGENT_INVALID_ARGUMENTS", str(error)) from None


def _known(figures: WorkerFigures | None) -> tuple[int, JsonObject]:
    if figures is None:
        raise _RefusedError(404, "MX_AGENT_TARGET_NOT_FOUND", "No such worker is open.")
    return 200, to_wire(figures)
