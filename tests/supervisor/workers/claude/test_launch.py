"""The words, the environment and the pinned files that Claude Code is started with."""

import json
from pathlib import Path

from supervisor.workers.claude_code_launch import launch_plan, program
from supervisor.workers.native_claude import CLAUDE_TOOLS
from supervisor.workers.worker import WorkerTask
from tests.supervisor.workers.driven import STOCK, FolderOfPins

CODER = WorkerTask("claude-aaaaaa", None, (STOCK,), "", frozenset({"shell.exec", "file.read"}))


def test_nothing_of_repository_or_user_is_read_and_every_tool_asks(tmp_path: Path) -> None:
    plan = launch_plan(CODER, FolderOfPins(tmp_path))
    words = plan.argv
    assert words[0] == "/opt/claude/claude"
    assert {"--setting-sources=", "--strict-mcp-config", "--disable-slash-commands"} <= set(words)
    assert words[words.index("--tools") + 1] == "Bash,Read,Grep,Glob"
    assert words[words.index("--permission-prompt-tool") + 1] == "stdio"
    assert json.loads(words[words.index("--mcp-config") + 1]) == {
        "mcpServers": {"matrix": {"type": "sdk", "name": "matrix"}}
    }
    assert not {"--bare", "--dangerously-skip-permissions", "--append-system-prompt-file"} & set(words)


def test_the_environment_pins_the_relay_a_placeholder_key_and_what_would_switch_hooks_off(tmp_path: Path) -> None:
    env = launch_plan(CODER, FolderOfPins(tmp_path)).env
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"
    assert env["ANTHROPIC_API_KEY"].startswith("placeholder")
    assert env["CLAUDE_CODE_SIMPLE"] == "0"
    assert env["ENABLE_TOOL_SEARCH"] == "false"
    assert env["CLAUDE_CONFIG_DIR"].startswith(env["HOME"])


def test_the_managed_settings_bring_every_native_tool_to_the_second_line(tmp_path: Path) -> None:
    plan = launch_plan(CODER, FolderOfPins(tmp_path))
    mounts = {str(mount.target): mount.source for mount in plan.mounts}
    assert mounts["/opt/claude/claude"] == program()
    settings = json.loads(mounts["/etc/claude-code/managed-settings.json"].read_text())
    assert set(CLAUDE_TOOLS) <= set(settings["permissions"]["ask"])
    assert settings["allowManagedHooksOnly"] is True


def test_values_cannot_become_options_and_instructions_go_by_file(tmp_path: Path) -> None:
    task = WorkerTask("w", "--bare", (), "--bare\n" * 100_000, frozenset(), "--continue")
    plan = launch_plan(task, FolderOfPins(tmp_path))
    assert {"--model=--bare", "--resume=--continue"} <= set(plan.argv)
    assert not {"--bare", "--continue"} & set(plan.argv)
    assert max(map(len, plan.argv)) < 4096
    instructions = next(mount for mount in plan.mounts if mount.target.name == "instructions.md")
    assert instructions.source.read_text() == task.instructions
