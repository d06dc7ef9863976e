import json

import pytest

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from bridge.contract.matrix_tool_projection import MatrixToolProjection
from supervisor.configure_worker_tools import configure_worker_tool_projection, projection_from_wire
from supervisor.tool_delegate import ToolDelegate
from supervisor.workers.worker import WorkerTask

pytestmark = pytest.mark.anyio

CHECK = MatrixToolProjection(
    "demo_inventory__inventory_check", "acme.com/demo.inventory/inventory.check", "demo.inventory", "inventory.check",
    "How many.", {"type": "object"}, None,
)  # fmt: skip


class Bridge:
    """Records what is invoked and answers with what it was given."""

    def __init__(self, answer):
        self.answer = answer
        self.invoked = []

    async def invoke(self, target, op, payload, worker_call=None):
        self.invoked.append((target, op, payload, worker_call))
        if isinstance(self.answer, MatrixError):
            raise self.answer
        return "call-1", self.answer


async def test_the_generic_tool_and_the_typed_tool_end_in_the_same_invoke():
    bridge = Bridge({"available": 147})
    generic, typed = ToolDelegate(bridge, [CHECK]).build_tools()
    asked: JsonObject = {"target": "demo.inventory", "op": "inventory.check", "payload": {"sku": "W"}}
    assert await generic.handler(asked, "t1") == await typed.handler({"sku": "W"}, "t2")
    assert [call[:3] for call in bridge.invoked] == [("demo.inventory", "inventory.check", {"sku": "W"})] * 2
    assert [call[3] for call in bridge.invoked] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("result", "content"), [({"a": 1}, {"a": 1}), ([1], {"result": [1]}), (None, {"result": None})]
)
async def test_the_text_of_a_success_is_the_json_of_its_content(result, content):
    (generic, *_) = ToolDelegate(Bridge(result), []).build_tools()
    answer = await generic.handler({"target": "a", "op": "b"}, None)
    assert answer.content == content
    assert json.loads(answer.text) == content
    assert not answer.is_error


async def test_a_refusal_carries_code_and_message_in_both_forms():
    refusal = MatrixError("MX_AGENT_OUT_OF_SUBTREE", "Not here.")
    (generic, *_) = ToolDelegate(Bridge(refusal), []).build_tools()
    answer = await generic.handler({"target": "a", "op": "b", "payload": {}}, None)
    assert answer.is_error
    assert answer.text == "MX_AGENT_OUT_OF_SUBTREE: Not here."
    assert answer.content == {"error": {"code": "MX_AGENT_OUT_OF_SUBTREE", "message": "Not here."}}


@pytest.mark.parametrize("arguments", [{}, {"target": 3, "op": None}, {"target": "a"}])
async def test_arguments_without_a_name_still_reach_the_bridge_which_refuses_and_records_them(arguments):
    bridge = Bridge(MatrixError("MX_AGENT_MALFORMED_NAME"))
    (generic, *_) = ToolDelegate(bridge, []).build_tools()
    answer = await generic.handler(arguments, None)
    assert answer.is_error
    assert len(bridge.invoked) == 1


def test_a_projection_puts_the_generic_and_the_typed_tool_on_the_task():
    wire = {
        "name": CHECK.name, "canonical": CHECK.canonical, "target": CHECK.target, "op": CHECK.op,
        "description": CHECK.description, "inputSchema": {"type": "object"}, "outputSchema": None,
    }  # fmt: skip
    task = configure_worker_tool_projection(WorkerTask("w", None, ()), (projection_from_wire(wire),), Bridge(1))
    assert [tool.name for tool in task.tools] == ["matrix_invoke", CHECK.name]
    assert task.tools[1].title == CHECK.canonical
