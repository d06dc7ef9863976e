"""The driver for Claude Code: the real program in a container, driven over its stdio by the agent SDK.

Where the parts meet: `claude_code_launch` (what to start), `claude_code_transport` (bytes), `claude_code_tools` (Matrix
tools), `claude_code_mediation` (its own tools), `claude_code_session` (prompts). Knows no Docker, no bridge, no policy.
Above: the supervisor, through `WorkerDriver`.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

from bridge.contract.errors import MatrixError
from bridge.contract.json_types import JsonObject
from supervisor.workers import claude_code_launch
from supervisor.workers.claude_code_mediation import DECISION_TIMEOUT_S, ClaudeMediation
from supervisor.workers.claude_code_session import BACKGROUND_WAIT_S, ClaudeSession
from supervisor.workers.claude_code_tools import SERVER_NAME, matrix_server, surface_name
from supervisor.workers.claude_code_transport import StdioTransport
from supervisor.workers.native_claude import offered_tools
from supervisor.workers.worker import LaunchPlan, NativeMediation, PinnedFolder, WorkerKind, WorkerTask

HANDSHAKE_TIMEOUT_S: Final = 30.0
"""A start takes 0.6 s, 18 s where the program cannot reach its base URL."""

logger = logging.getLogger(__name__)


class ClaudeCodeDriver:
    """`WorkerDriver` of Claude Code. `decision_timeout_s` bounds one decision of the mediation, a person's included;
    `background_wait_s` is how long background commands may run on after the last answer."""

    kind: WorkerKind = "claude"

    def __init__(
        self, decision_timeout_s: float = DECISION_TIMEOUT_S, background_wait_s: float = BACKGROUND_WAIT_S
    ) -> None:
        self._decision_timeout_s = decision_timeout_s
        self._background_wait_s = background_wait_s

    @property
    def judged_at_gateway(self) -> frozenset[str]:
        """None: the `PreToolUse` hook covers every tool of Claude Code."""
        return frozenset()

    async def answer_witnessed(
        self,
        worker_id: str,  # noqa: ARG002  # the protocol's parameters; refusing needs none of them
        call: str,  # noqa: ARG002
        tool: str,
        arguments: JsonObject,  # noqa: ARG002
        agent: str | None = None,  # noqa: ARG002
    ) -> JsonObject:
        """Refuse: nothing of Claude Code is judged at the gateway."""
        return {"allow": False, "message": f"{tool!r} is not judged at the gateway."}

    def launch_plan(self, task: WorkerTask, pinned: PinnedFolder) -> LaunchPlan:
        return claude_code_launch.launch_plan(task, pinned)

    def expected_surface(self, task: WorkerTask) -> frozenset[str]:
        """The tools of a request body of this worker, by the names they have there."""
        return frozenset(map(surface_name, task.tools)) | frozenset(offered_tools(task.allowed_native_ops))

    @asynccontextmanager
    async def connect(
        self, stdio: ByteStream, task: WorkerTask, mediation: NativeMediation
    ) -> AsyncIterator[ClaudeSession]:
        """Initialise the program, hooks and Matrix tools included. Raises `MatrixError` WORKER_EXITED, bounded."""
        gate = ClaudeMediation(mediation, frozenset(map(surface_name, task.tools)), self._decision_timeout_s)
        client = ClaudeSDKClient(_options(task, gate), StdioTransport(stdio))
        await _handshake(client)
        session = ClaudeSession(client, gate, self._background_wait_s)
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.receive)
            try:
                yield session
            except Exception as error:  # noqa: BLE001  # raised again below: it leaves as itself, in no group
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await client.disconnect()
                    await gate.end_open_calls("unknown")
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def answer_hook(
        self,
        worker_id: str,  # noqa: ARG002  # the protocol's parameters; refusing needs none of them
        body: JsonObject,  # noqa: ARG002
    ) -> JsonObject:
        """Claude Code's hooks come over stdio alone, so whatever arrives here is refused."""
        return {"allow": False, "message": "A Claude Code worker has no hook of this kind."}


def _options(task: WorkerTask, gate: ClaudeMediation) -> ClaudeAgentOptions:
    """What the SDK tells the program in the handshake. All that it would pass as flags is in `command_line`."""
    return ClaudeAgentOptions(
        mcp_servers={SERVER_NAME: {"type": "sdk", "name": SERVER_NAME, "instance": matrix_server(task.tools)}},
        hooks=gate.hooks(),
        can_use_tool=gate.can_use_tool,
        skills=[],
        verbatim_prompts=True,  # else an `@path` in a prompt is read without any hook
    )


async def _handshake(client: ClaudeSDKClient) -> None:
    try:
        with anyio.fail_after(HANDSHAKE_TIMEOUT_S):
            await client.connect()
    except Exception as error:
        logger.warning("Claude Code did not answer its handshake", exc_info=error)
        why = f"within {HANDSHAKE_TIMEOUT_S:.0f} s" if isinstance(error, TimeoutError) else "and its channel ended"
        raise MatrixError(
            "MX_AGENT_WORKER_EXITED",
            f"Claude Code did not answer its handshake {why}. "
            "Its standard error says why; `mxs doctor` checks the program and the image.",
        ) from None
