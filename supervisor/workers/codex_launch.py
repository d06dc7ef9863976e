"""How a Codex process is started: its words, its environment, its pinned files.

Pure but for the pinned files. What only the program's command line can say stands there, because its `-c` values
win over every file; what a worker could try to change later stands in `requirements.toml` as well, which wins over
everything. Knows no Docker; below is the program's command line, above `codex`.
"""

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from bridge.contract.errors import MatrixError
from sandboxes.sandbox_spec import HELPER, HOME, RELAY_PORT, WORKSPACE, ReadOnlyMount
from supervisor.workers.native_codex import could_allow
from supervisor.workers.worker import LaunchPlan, PinnedFolder, WorkerTask

PROGRAM_FOLDER: Final = PurePosixPath("/opt/codex")
REQUIREMENTS: Final = "/etc/codex/requirements.toml"
RULES: Final = HOME / "rules"
"""Where the program reads rules that allow commands. Covered by a folder that holds none: the worker could move a
folder that is no mount itself, with any mounts in it, and put its own in its place."""
PROVIDER: Final = "gw"
APPROVAL_POLICY: Final = "untrusted"
SANDBOX_MODE: Final = "danger-full-access"
"""The container is the sandbox; Codex's own one would need privileges that the container does not give."""
PLACEHOLDER_KEY: Final = "placeholder-the-gateway-holds-the-key"
STREAM_RETRIES: Final = 4
"""With the program's back-off about 4 s until an overloaded or unreachable provider fails the prompt. A request is not
repeated by itself (`request_max_retries`), since that would multiply. The program never repeats after a 429."""
STREAM_IDLE_MS: Final = 120_000
"""`inferTimeoutMs` of contracts.md, section 8."""
HOOK_TIMEOUT_S: Final = 3600
"""A person may be asked meanwhile; the approval's own deadline is shorter."""
HELPER_SECONDS: Final = HOOK_TIMEOUT_S - 20
"""Ends before Codex's own clock does, whose end would let the call pass
to the next line; `timeout` stands between them."""

CODE_MODE: Final = "code"
MODEL_OF_SURFACE: Final[Mapping[str, str]] = MappingProxyType(
    {"plain": "matrix-plain", "patch": "gpt-5.5", CODE_MODE: "gpt-5.6-luna"}
)
"""The model whose metadata gives a surface, where the task names none. Codex knows nothing of the first: plain
tools."""

SWITCHED_OFF: Final = (
    "api_key_model_discovery",
    "apps",
    "browser_annotation_api",
    "browser_use",
    "browser_use_external",
    "browser_use_full_cdp_access",
    "computer_use",
    "enable_request_compression",
    "fast_mode",
    "goals",
    "guardian_approval",
    "image_generation",
    "in_app_browser",
    "in_app_chat",
    "in_app_dictation",
    "in_app_local_automation",
    "in_app_updates",
    "in_app_voice",
    "memories",
    "plugin_sharing",
    "plugins",
    "remote_plugin",
    "shell_snapshot",
    "skill_search",
    "tool_call_mcp_elicitation",
    "tool_suggest",
    "unbounded_connection_retries",
    "unified_exec_tty",
    "workspace_dependencies",
    "worktrees",
)
"""Features of the program that would reach out, bring tools or instructions of others, hide requests from the gateway,
retry for ever, run a shell of their own, or (`unified_exec_tty`) leave a command's input open to calls that nobody asks
about."""


def program_folder() -> Path:
    """The folder of the Codex program that came with its wheel. Raises `MatrixError` where there is none."""
    spec = find_spec("codex_cli_bin")
    found = Path(spec.origin).parent if spec and spec.origin else None
    if found is None or not (found / "bin" / "codex").is_file():
        raise MatrixError(
            "MX_AGENT_SANDBOX_UNAVAILABLE",
            "The installed openai-codex-cli-bin brings no Codex program for this platform. "
            "Install its wheel for Linux x86-64 or arm64.",
        )
    return found


def model_of(task: WorkerTask) -> str | None:
    """The task's model, else the one that gives its surface, else None: the program's own default."""
    return task.model or MODEL_OF_SURFACE.get(task.surface or "")


def features(task: WorkerTask) -> dict[str, bool]:
    """Every feature that is pinned for `task`: off what nobody mediates, and what the role could never use."""
    allowed = task.allowed_native_ops
    pinned = dict.fromkeys(SWITCHED_OFF, False)
    pinned |= {
        "hooks": True,
        "shell_tool": could_allow("shell.exec", allowed),
        "view_image": could_allow("file.read", allowed),
        "multi_agent": could_allow("agent.spawn", allowed),
    }
    if task.surface is not None:
        pinned |= {"code_mode": task.surface == CODE_MODE, "code_mode_only": task.surface == CODE_MODE}
    return pinned


def settings(task: WorkerTask) -> dict[str, str]:
    """Dotted key -> TOML value, for `-c`."""
    workspace = json.dumps(str(WORKSPACE))
    pinned = {
        "model_provider": json.dumps(PROVIDER),
        f"model_providers.{PROVIDER}": _provider(),
        "projects": f'{{{workspace}={{trust_level="untrusted"}}}}',  # nothing of the repository's `.codex` is loaded
        "project_doc_max_bytes": "0",  # AGENTS.md arrives as text
        "skills.include_instructions": "false",
        "web_search": '"disabled"',
        "tools.experimental_request_user_input.enabled": "false",  # nobody would answer
        "mcp_servers": "{}",
        "approvals_reviewer": '"user"',
        "sandbox_mode": json.dumps(SANDBOX_MODE),
        "allow_login_shell": "false",  # a profile in the worker's home does not run before each command
        "history.persistence": '"none"',
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
        "feedback.enabled": "false",
        "otel.exporter": '"none"',
        "suppress_unstable_features_warning": "true",
    }
    return pinned | {f"features.{name}": _toml(on) for name, on in features(task).items()}


def _provider() -> str:
    retries = f"request_max_retries=0, stream_max_retries={STREAM_RETRIES}"
    where = f'name="gateway", base_url="http://127.0.0.1:{RELAY_PORT}/v1", wire_api="responses"'
    key = 'env_key="OPENAI_API_KEY", requires_openai_auth=false'
    return f"{{{where}, {key}, {retries}, stream_idle_timeout_ms={STREAM_IDLE_MS}, supports_websockets=false}}"


def command_line(task: WorkerTask) -> tuple[str, ...]:
    """The program's words. The model goes with the thread, so that no text of a person stands here."""
    words = [str(PROGRAM_FOLDER / "bin" / "codex")]
    for key, value in settings(task).items():
        words += ["-c", f"{key}={value}"]
    return (*words, "app-server", "--listen", "stdio://")


def requirements(task: WorkerTask) -> str:
    """`/etc/codex/requirements.toml`: what no configuration of the worker or the repository can change.

    A hook that fails in any other way than exit 2 with text on standard error lets the call pass to the approval,
    so every fault is turned into exactly that.
    """
    ask = f"timeout {HOOK_TIMEOUT_S - 10} {HELPER} hook --seconds {HELPER_SECONDS}"
    hook = f"{ask} || {{ echo 'The call was refused before it ran.' >&2; exit 2; }}"
    pinned = "\n".join(f"{name} = {_toml(on)}" for name, on in features(task).items())
    return f"""\
allow_managed_hooks_only = true
allowed_approval_policies = ["{APPROVAL_POLICY}"]
allowed_approvals_reviewers = ["user"]
allowed_sandbox_modes = ["read-only", "{SANDBOX_MODE}"]
allowed_web_search_modes = ["disabled"]
allow_login_shell = false
allow_remote_control = false
check_for_update_on_startup = false

[features]
{pinned}

[mcp_servers]

[rules]
prefix_rules = [{{ pattern = [{{ any_of = ["bash", "sh", "dash", "zsh"] }}], decision = "prompt" }}]

[hooks]
managed_dir = "{HELPER.parent}"

[[hooks.PreToolUse]]
matcher = ""

[[hooks.PreToolUse.hooks]]
type = "command"
command = {json.dumps(hook)}
timeout = {HOOK_TIMEOUT_S}
"""


def pinned_files(task: WorkerTask) -> dict[str, str]:
    """Absolute path in the container -> content. The program's home is the worker's, where sessions must be
    writable; what it would read there at a start or for a sub-agent is covered by files that the worker can neither
    write nor move."""
    return {
        REQUIREMENTS: requirements(task),
        str(HOME / "config.toml"): "# Pinned: the settings stand on the command line and in requirements.toml.\n",
        str(HOME / ".env"): "",
        str(HOME / "hooks.json"): "{}\n",
        str(HOME / "AGENTS.md"): "",
    }


def launch_plan(task: WorkerTask, pinned: PinnedFolder) -> LaunchPlan:
    """Everything the container must hold for `task`. Raises `MatrixError` where the wheel brings no program."""
    files = [pinned.write(path, content) for path, content in pinned_files(task).items()]
    env = {"HOME": str(HOME), "CODEX_HOME": str(HOME), "OPENAI_API_KEY": PLACEHOLDER_KEY}
    program = ReadOnlyMount(program_folder(), PROGRAM_FOLDER)
    no_rules = ReadOnlyMount(program_folder() / "bin", RULES)
    return LaunchPlan(argv=command_line(task), env=env, mounts=(program, no_rules, *files))


AGENT_TOOLS: Final = frozenset({"spawn_agent", "send_input", "resume_agent", "wait_agent", "close_agent"})
"""Where a model is offered `tool_search`, they are on the surface only after it has searched."""
_PLAIN: Final = frozenset({"exec_command", "write_stdin", "view_image"})
_SURFACES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"plain": _PLAIN, "patch": _PLAIN | {"apply_patch"}, CODE_MODE: frozenset({"exec", "wait"})}
)


def expected_surface(task: WorkerTask) -> frozenset[str]:
    """The names in each request of the main thread, as the gateway reads them; empty where metadata decides.

    In code mode the Matrix tools and the sub-agents' are described inside `exec` and have no entry of their own.
    """
    foretold = task.model is None or task.surface == "plain" or task.model in MODEL_OF_SURFACE.values()
    surface = task.surface or ("patch" if task.model == MODEL_OF_SURFACE["patch"] else None)
    if surface is None or not foretold:
        return frozenset()
    pinned = features(task)
    names = set(_SURFACES[surface])
    if surface == CODE_MODE:
        return frozenset(names)
    names -= set() if pinned["shell_tool"] else {"exec_command", "write_stdin"}
    names -= set() if pinned["view_image"] else {"view_image"}
    if pinned["multi_agent"]:
        names |= AGENT_TOOLS if surface == "plain" else AGENT_TOOLS | {"tool_search"}
    return frozenset(names | {tool.name for tool in task.tools})


def _toml(on: bool) -> str:
    return "true" if on else "false"
