"""JSON-RPC's error objects: to and from the errors of ours. Leaf beside `json_rpc`, which sends and receives them."""

from typing import Final, cast

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue

METHOD_NOT_FOUND: Final = -32601
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
MATRIX_ERROR: Final = -32000


class JsonRpcError(MatrixError):
    """An error object without a code of ours, kept as it came (`rpc_code`, `rpc_message`, `rpc_data`).

    A handler raises it to answer with a number of its own, for example `METHOD_NOT_FOUND`.
    """

    def __init__(self, rpc_code: int, rpc_message: str, rpc_data: JsonValue = None) -> None:
        self.rpc_code = rpc_code
        self.rpc_message = rpc_message
        self.rpc_data = rpc_data
        super().__init__("MX_AGENT_ACTOR_ERROR", rpc_message, rpcCode=rpc_code)


def method_not_found(method: str) -> JsonRpcError:
    """What a request handler raises for a method it does not serve."""
    return JsonRpcError(METHOD_NOT_FOUND, f"There is no method {method!r} on this channel.")


def unsendable(error: MatrixError) -> MatrixError:
    """What the asker is told where a result does not fit on the wire."""
    code = "MX_AGENT_TOO_LARGE" if error.code == "MX_AGENT_TOO_LARGE" else "MX_AGENT_INVALID_RESULT"
    return MatrixError(code, f"The result cannot be sent. {error.message}")


def too_long(limit: int) -> MatrixError:
    """What the sender of an endless line is told."""
    return MatrixError("MX_AGENT_TOO_LARGE", f"A line is over the limit of {limit} bytes; the channel is closed.")


def error_object(error: MatrixError) -> JsonObject:
    """`error` as it goes over the wire: a foreign one as it came, ours with its form in `data`."""
    if isinstance(error, JsonRpcError):
        kept: JsonObject = {"code": error.rpc_code, "message": error.rpc_message}
        return kept if error.rpc_data is None else {**kept, "data": error.rpc_data}
    return {"code": MATRIX_ERROR, "message": error.message, "data": cast("JsonObject", error.to_wire())}


def error_from(error: JsonValue) -> MatrixError:
    """The inverse of `error_object`; whatever is no error object becomes one of an internal error."""
    if not isinstance(error, dict):
        return JsonRpcError(INTERNAL_ERROR, "The peer answered with an error that is no object.")
    data, number = error.get("data"), error.get("code")
    if isinstance(data, dict) and str(data.get("code", "")).startswith("MX_"):
        return MatrixError.from_wire(data)
    return JsonRpcError(number if isinstance(number, int) else INTERNAL_ERROR, str(error.get("message", "")), data)
