"""From a projection to a handler: what a worker's native tool does when the model uses it (spec: `IToolDelegate`).

Every handler becomes one `tool.invoke` through the bridge. `matrix_invoke` differs only in taking target and op from
the arguments; in `_invoke` both paths meet and never part again. Above: `configure_worker_tools` and the drivers.
Below: `bridge.client`. Decides nothing.
"""

import json
from collections.abc import Sequence
from typing import Final, Protocol

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject, JsonValue
from bridge.contract.matrix_tool_projection import MatrixToolProjection
from supervisor.workers.worker import NativeToolDef, ToolAnswer, ToolHandler

MATRIX_INVOKE: Final = "matrix_invoke"

MATRIX_INVOKE_DESCRIPTION: Final = (
    "Invoke an op of any Matrix actor. `target` is the actor's mount (e.g. demo.inventory), `op` one of the ops it "
    "accepts, `payload` the op's arguments. What you may call is decided per target and op; a refusal says what is "
    "allowed instead. To find actors, invoke target system.catalog, op catalog.search; to read an actor's ops, invoke "
    "its op $introspect."
)

MATRIX_INVOKE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "target": {"type": "string", "description": "The actor's mount, e.g. demo.inventory"},
        "op": {"type": "string", "description": "The op, e.g. inventory.check"},
        "payload": {"type": "object", "description": "The op's arguments"},
    },
    "required": ["target", "op"],
    "additionalProperties": False,
}


class Invoker(Protocol):
    """One method: what a handler holds of the bridge."""

    async def invoke(
        self, target: str, op: str, payload: JsonObject, worker_call: str | None = None
    ) -> tuple[str, JsonValue]:
        """The call's id and its result. Raises `MatrixError`."""


class ToolDelegate:
    """Builds the Matrix tools of one worker."""

    def __init__(self, invoker: Invoker, projections: Sequence[MatrixToolProjection]) -> None:
        self._invoker = invoker
        self._projections = projections

    def build_tools(self) -> tuple[NativeToolDef, ...]:
        """`matrix_invoke` and one typed tool per projection (spec: `buildTools(runId)`; the run is the invoker's)."""
        return (self._generic_tool(), *(self._typed_tool(projection) for projection in self._projections))

    def _generic_tool(self) -> NativeToolDef:
        async def handler(arguments: JsonObject, worker_call: str | None) -> ToolAnswer:
            target, op, payload = arguments.get("target"), arguments.get("op"), arguments.get("payload", {})
            if not (isinstance(target, str) and isinstance(op, str)):
                # The bridge still judges and records it: as the malformed name that it is.
                target, op = str(target or ""), str(op or "")
            if not isinstance(payload, dict):
                payload = {"payload": payload}
            return await self._invoke(target, op, payload, worker_call)

        return NativeToolDef(MATRIX_INVOKE, MATRIX_INVOKE_DESCRIPTION, MATRIX_INVOKE_SCHEMA, handler)

    def _typed_tool(self, projection: MatrixToolProjection) -> NativeToolDef:
        return NativeToolDef(
            name=projection.name,
            description=projection.description,
            input_schema=projection.input_schema,
            handler=self._typed_handler(projection),
            title=projection.canonical,
            output_schema=projection.output_schema,
        )

    def _typed_handler(self, projection: MatrixToolProjection) -> ToolHandler:
        async def handler(arguments: JsonObject, worker_call: str | None) -> ToolAnswer:
            return await self._invoke(projection.target, projection.op, arguments, worker_call)

        return handler

    async def _invoke(self, target: str, op: str, payload: JsonObject, worker_call: str | None) -> ToolAnswer:
        try:
            _, result = await self._invoker.invoke(target, op, payload, worker_call)
        except MatrixError as refusal:
            return failed_answer(refusal)
        return successful_answer(result)


def successful_answer(result: JsonValue) -> ToolAnswer:
    """The result as an object (anything else is wrapped as `{"result": …}`), and the same as text."""
    content: JsonObject = result if isinstance(result, dict) else {"result": result}
    return ToolAnswer(json.dumps(content, ensure_ascii=False), content, is_error=False)


def failed_answer(error: MatrixError) -> ToolAnswer:
    """Code and message in both forms: one kind of worker shows its model only the text, the other only the object."""
    content: JsonObject = {"error": {"code": error.code, "message": error.message}}
    return ToolAnswer(f"{error.code}: {error.message}", content, is_error=True)
