"""The control API's routes: each turns a request into one call of the supervisor, and a refusal into its JSON form.

Listens on a unix socket of mode 0600 in a folder of mode 0700: who can connect is the owner. Above:
`supervisor.control.client`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bridge.contract import strict_json
from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from supervisor.refusal import Refusal
from supervisor.worker_spec import RunRequest
from supervisor.worker_store import UnknownWorkerError

if TYPE_CHECKING:
    from supervisor.supervisor import Supervisor

LONGEST_BODY = 8 * 1024 * 1024

Answer = Callable[["Supervisor", Request], Awaitable[JsonObject]]


def control_api(supervisor: "Supervisor") -> Starlette:
    """The application. Bridge methods that need nothing of the supervisor pass through by name."""

    def route(path: str, method: str, answer: Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answered(answer, supervisor, request)

        return Route(path, endpoint, methods=[method])

    async def events(request: Request) -> Response:
        try:
            lines = await supervisor.follow(request.path_params["id"])
        except UnknownWorkerError as unknown:
            return _refused(Refusal(str(unknown)))
        return StreamingResponse(_server_sent(lines), media_type="text/event-stream")

    passed = (
        "actors.add",
        "actors.list",
        "actors.describe",
        "actors.lint",
        "actors.reload",
        "policy.check",
        "policy.explain",
    )
    return Starlette(
        routes=[
            route("/status", "GET", _status),
            route("/down", "POST", _down),
            route("/runs", "POST", _start_run),
            route("/invoke", "POST", _invoke),
            route("/workers/{id}/stop", "POST", _stop),
            route("/workers/{id}", "DELETE", _remove),
            Route("/workers/{id}/events", events, methods=["GET"]),
            route("/approvals", "GET", _approvals),
            route("/approvals/{number:int}", "POST", _answer_approval),
            *(route(f"/bridge/{method}", "POST", _pass_to_bridge(method)) for method in passed),
        ]
    )


async def _answered(answer: Answer, supervisor: "Supervisor", request: Request) -> Response:
    try:
        return JSONResponse(await answer(supervisor, request))
    except Refusal as refusal:
        return _refused(refusal)
    except UnknownWorkerError as unknown:
        return _refused(Refusal(str(unknown)))
    except MatrixError as error:
        return _refused(Refusal.from_error(error))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refused(Refusal(f"{where}: {first['msg']}."))


def _refused(refusal: Refusal) -> Response:
    return JSONResponse({"error": refusal.to_json()}, status_code=422)


async def _server_sent(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        yield f"data: {line}\n\n"
    yield "event: end\n\n"


async def _body(request: Request) -> JsonObject:
    received = b""
    async for chunk in request.stream():
        received += chunk
        if len(received) > LONGEST_BODY:
            raise Refusal(f"The request is over {LONGEST_BODY} bytes.", code="MX_AGENT_TOO_LARGE")
    body = strict_json.loads(received or b"{}", max_bytes=LONGEST_BODY)
    if not isinstance(body, dict):
        raise Refusal("The request's body must be a JSON object.")
    return body


async def _status(supervisor: "Supervisor", _: Request) -> JsonObject:
    return supervisor.status()


async def _down(supervisor: "Supervisor", _: Request) -> JsonObject:
    supervisor.request_end()
    return {}


async def _start_run(supervisor: "Supervisor", request: Request) -> JsonObject:
    asked = RunRequest.model_validate_json(strict_json.dumps(await _body(request)))
    return (await supervisor.start_run(asked)).to_json()


async def _invoke(supervisor: "Supervisor", request: Request) -> JsonObject:
    body = await _body(request)
    caller: JsonObject = {name: body.get(name) for name in ("role", "policy", "timeouts")}
    return await supervisor.invoke(caller, str(body["target"]), str(body["op"]), str(body["payload"]))


async def _stop(supervisor: "Supervisor", request: Request) -> JsonObject:
    await supervisor.stop(request.path_params["id"])
    return {}


async def _remove(supervisor: "Supervisor", request: Request) -> JsonObject:
    await supervisor.remove(request.path_params["id"], force=request.query_params.get("force") == "1")
    return {}


async def _approvals(supervisor: "Supervisor", _: Request) -> JsonObject:
    return {
        "approvals": [
            {"number": pending.number, "worker": pending.worker, **pending.question}
            for pending in supervisor.approvals.open_questions()
        ]
    }


async def _answer_approval(supervisor: "Supervisor", request: Request) -> JsonObject:
    body = await _body(request)
    number = request.path_params["number"]
    if not supervisor.approvals.answer(number, str(body.get("verdict")), str(body.get("by", "person"))):
        raise Refusal(f"There is no open question {number}: `mxs approvals` lists them.")
    return {}


def _pass_to_bridge(method: str) -> Answer:
    async def answer(supervisor: "Supervisor", request: Request) -> JsonObject:
        return await supervisor.ask_bridge(method, await _body(request))

    return answer
