"""Matrix tools as an in-process MCP server on Claude Code's native tool surface.

A low-level `Server`, because the SDK's own helper drops structured results. It judges nothing: every call goes to the
handler that `tool_delegate` made, which the bridge judges. Success is `structuredContent` and equal text; an error is
`is_error` with code and sentence; nothing of a foreign exception leaves here.
"""

import json
import logging
from typing import Any, Final

from mcp import types
from mcp.server import Server, ServerRequestContext

from bridge.contract.errors import MX_AGENT_ERRORS
from supervisor.workers.worker import NativeToolDef, ToolAnswer

SERVER_NAME: Final = "matrix"
TOOL_PREFIX: Final = f"mcp__{SERVER_NAME}__"
TOOL_USE_ID: Final = "claudecode/toolUseId"
ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
"""Second to ENABLE_TOOL_SEARCH=false: keeps a tool on the surface where the worker would defer it."""

logger = logging.getLogger(__name__)
_Context = ServerRequestContext[dict[str, Any]]


def surface_name(tool: NativeToolDef) -> str:
    """The tool's name as the model and the request body show it."""
    return TOOL_PREFIX + tool.name


def matrix_server(tools: tuple[NativeToolDef, ...]) -> Server[dict[str, Any]]:
    """An MCP server that lists exactly `tools`, by alias, and calls their handlers with the worker's own call id."""
    by_name = {tool.name: tool for tool in tools}
    listing = types.ListToolsResult(tools=[_as_mcp(tool) for tool in tools])

    async def list_tools(_ctx: _Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return listing

    async def call_tool(_ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = by_name.get(params.name)
        if tool is None:
            return _as_result(_failure("MX_AGENT_TOOL_NOT_FOUND", f"No Matrix tool has the name {params.name!r}."))
        return _as_result(await _answer(tool, params))

    return Server(SERVER_NAME, version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def _answer(tool: NativeToolDef, params: types.CallToolRequestParams) -> ToolAnswer:
    try:
        return await tool.handler(params.arguments or {}, worker_call_of(params))
    except Exception:  # a handler's fault must reach neither the model nor the MCP session as text
        logger.exception("the handler of a Matrix tool failed")
        return _failure("MX_AGENT_BRIDGE_UNAVAILABLE", MX_AGENT_ERRORS["MX_AGENT_BRIDGE_UNAVAILABLE"])


def worker_call_of(params: types.CallToolRequestParams) -> str | None:
    """The worker's own id of the call, which the model's answer, the hooks and the gateway show too."""
    call = (params.meta or {}).get(TOOL_USE_ID)
    return call if isinstance(call, str) else None


def _as_mcp(tool: NativeToolDef) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title or None,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        _meta={ALWAYS_LOAD: True},
    )


def _as_result(answer: ToolAnswer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.text)],
        structured_content=answer.content,
        is_error=answer.is_error,
    )


def _failure(code: str, message: str) -> ToolAnswer:
    error = {"error": {"code": code, "message": message}}
    return ToolAnswer(text=f"{code}: {message}", content=json.loads(json.dumps(error)), is_error=True)
