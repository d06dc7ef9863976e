"""How a Claude Code process is started: its words, its environment, its pinned settings.

Pure but for the pinned files. A custom `Transport` gets none of the SDK's options as flags, so they stand here, each
with its reason. Knows no Docker; below is the program's command line, above `claude_code`.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from bridge.contract.errors import MatrixError
from sandboxes.sandbox_spec import HOME, RELAY_PORT, ReadOnlyMount
from supervisor.workers.claude_code_tools import SERVER_NAME
from supervisor.workers.native_claude import CLAUDE_TOOLS, offered_tools
from supervisor.workers.worker import LaunchPlan, PinnedFolder, WorkerTask

PROGRAM: Final = PurePosixPath("/opt/claude/claude")
MANAGED_SETTINGS: Final = "/etc/claude-code/managed-settings.json"
INSTRUCTIONS: Final = "/etc/claude-code/instructions.md"
PLACEHOLDER_KEY: Final = "placeholder-the-gateway-holds-the-key"
"""The program does not start a session without some key; the gateway drops this one and adds its own."""
MAX_RETRIES: Final = 4
"""With the program's back-off about 10 s until an overloaded or unreachable provider fails the prompt."""

ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{RELAY_PORT}",  # unreachable, its start takes 18 s
        "ANTHROPIC_API_KEY": PLACEHOLDER_KEY,
        "HOME": str(HOME),
        "CLAUDE_CONFIG_DIR": str(HOME / ".claude"),  # where sessions lie that `resume` needs
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_CODE_SIMPLE": "0",  # on, which an image could have it, no SDK hook is called, silently
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",  # says when the run is over, background work included
        "CLAUDE_CODE_MAX_RETRIES": str(MAX_RETRIES),
        "ENABLE_TOOL_SEARCH": "false",  # else Matrix tools are deferred and the model does not see them
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",  # writes files that no call of the model asked for
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",  # instructions arrive as text
        "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP": "1",  # a model that was named is the one that is asked
        "DISABLE_AUTOUPDATER": "1",
    }
)


def program() -> Path:
    """The Claude Code binary that came with the agent SDK. Raises `MatrixError` where the wheel has none."""
    spec = find_spec("claude_agent_sdk")
    found = Path(spec.origin).parent / "_bundled" / "claude" if spec and spec.origin else None
    if found is None or not found.is_file():
        raise MatrixError(
            "MX_AGENT_SANDBOX_UNAVAILABLE",
            "The installed claude-agent-sdk brings no Claude Code program for this platform. "
            "Install its wheel for Linux x86-64 or arm64 with glibc.",
        )
    return found


def command_line(task: WorkerTask) -> tuple[str, ...]:
    """The program's words: the SDK's stream-json protocol on stdio, and nothing of the repository's configuration."""
    words = [str(PROGRAM), "--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
    words += ["--include-partial-messages"]  # text is shown while it is written
    words += ["--permission-prompt-tool", "stdio", "--permission-mode", "default"]  # asks `can_use_tool`
    words += ["--tools", ",".join(offered_tools(task.allowed_native_ops))]  # the surface is the grant
    words += ["--disable-slash-commands"]  # no skills, no commands
    words += ["--setting-sources="]  # no settings, hooks or instructions of user or repository
    words += ["--strict-mcp-config", "--mcp-config", json.dumps(_mcp_config())]  # no `.mcp.json`
    if task.instructions:
        words += ["--append-system-prompt-file", INSTRUCTIONS]  # a file: one argument ends at 128 KiB
    if task.model is not None:
        words += [f"--model={task.model}"]  # with `=`, a value that begins with a dash stays a value
    if task.resume is not None:
        words += [f"--resume={task.resume}"]
    return tuple(words)


def managed_settings(task: WorkerTask) -> dict[str, object]:
    """The second line, in a file that the worker cannot write and that no other settings override.

    The `ask` rules bring every native tool to `can_use_tool` even where the hook has allowed it or did not run.
    """
    tools = sorted({*CLAUDE_TOOLS, *offered_tools(task.allowed_native_ops)})
    return {
        "allowManagedHooksOnly": True,
        "allowManagedPermissionRulesOnly": True,
        "permissions": {"ask": tools, "disableBypassPermissionsMode": "disable"},
        "skipWebFetchPreflight": True,
        "includeCoAuthoredBy": False,
    }


def launch_plan(task: WorkerTask, pinned: PinnedFolder) -> LaunchPlan:
    """Everything the container must hold for `task`. Raises `MatrixError` where the SDK brings no program."""
    mounts = [
        ReadOnlyMount(program(), PROGRAM),
        pinned.write(MANAGED_SETTINGS, json.dumps(managed_settings(task))),
    ]
    if task.instructions:
        mounts.append(pinned.write(INSTRUCTIONS, task.instructions))
    return LaunchPlan(argv=command_line(task), env=dict(ENVIRONMENT), mounts=tuple(mounts))


def _mcp_config() -> dict[str, object]:
    return {"mcpServers": {SERVER_NAME: {"type": "sdk", "name": SERVER_NAME}}}
