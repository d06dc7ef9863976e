"""Puts Matrix tools on a worker's native tool surface (spec: `configureWorkerToolProjection`).

The reverse direction of a projection: an actor's op becomes a tool of the worker's own SDK. The bridge says which ops
(the first 64 that the role could use; the rest is reached by `matrix_invoke` and the catalog); the driver registers
them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from bridge.contract.json_types import JsonObject
from bridge.contract.matrix_tool_projection import MatrixToolProjection
from supervisor.tool_delegate import Invoker, ToolDelegate
from supervisor.workers.worker import WorkerTask


def configure_worker_tool_projection(
    task: WorkerTask, projections: tuple[MatrixToolProjection, ...], invoker: Invoker
) -> WorkerTask:
    """`task` with `matrix_invoke` and one typed tool per projection, whose handlers go through `invoker`."""
    return replace(task, tools=ToolDelegate(invoker, projections).build_tools())


def projection_from_wire(form: Mapping[str, object]) -> MatrixToolProjection:
    """The inverse of the admin channel's projection (docs/wires.md)."""
    return MatrixToolProjection(
        name=str(form["name"]),
        canonical=str(form["canonical"]),
        target=str(form["target"]),
        op=str(form["op"]),
        description=str(form["description"]),
        input_schema=cast("JsonObject", form["inputSchema"]),
        output_schema=cast("JsonObject | None", form.get("outputSchema")),
    )
