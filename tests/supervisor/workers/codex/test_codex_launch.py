"""What a Codex process is started with: every pin, read back as TOML."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.sandbox_spec import HELPER, HOME
from supervisor.workers.codex import CodexDriver
from supervisor.workers.codex_launch import (
    HELPER_SECONDS,
    HOOK_TIMEOUT_S,
    REQUIREMENTS,
    RULES,
    SWITCHED_OFF,
    command_line,
    expected_surface,
    model_of,
    pinned_files,
    requirements,
)
from supervisor.workers.codex_mediation import DECISION_TIMEOUT_S
from supervisor.workers.worker import WorkerTask
from tests.supervisor.workers.codex.started_worker import ALL_OPS
from tests.supervisor.workers.driven import STOCK, FolderOfPins

OPS = st.frozensets(st.sampled_from(["shell.exec", "file.read", "file.write", "agent.spawn", "net.fetch", "other.x"]))
SURFACES = st.sampled_from(["plain", "patch", "code", None])


def task(surface: str | None = "patch", ops: frozenset[str] = ALL_OPS, model: str | None = None) -> WorkerTask:
    return WorkerTask("codex-aaaaaa", model, (STOCK,), allowed_native_ops=ops, surface=surface)


def settings_of(words: tuple[str, ...]) -> dict[str, object]:
    """The `-c` values, parsed as the program parses them."""
    given_settings = [after for word, after in pairwise(words) if word == "-c"]
    read: dict[str, object] = {}
    for setting in given_settings:
        key, _, value = setting.partition("=")
        read[key] = tomllib.loads(f"value = {value}")["value"]
    return read


@given(SURFACES, OPS)
def test_the_pins_hold_for_every_task(surface: str | None, ops: frozenset[str]) -> None:
    words = command_line(task(surface, ops))
    pins = settings_of(words)
    assert words[-3:] == ("app-server", "--listen", "stdio://")
    assert pins["model_provider"] == "gw"
    assert pins["projects"] == {"/workspace": {"trust_level": "untrusted"}}
    assert pins["web_search"] == "disabled"
    assert pins["skills.include_instructions"] is False
    assert pins["features.hooks"] is True
    assert all(pins[f"features.{name}"] is False for name in SWITCHED_OFF)
    assert pins["features.multi_agent"] is ("agent.spawn" in ops)
    assert pins["features.shell_tool"] is ("shell.exec" in ops)


def test_the_provider_is_the_relay_and_gives_up_soon() -> None:
    provider = settings_of(command_line(task()))["model_providers.gw"]
    assert isinstance(provider, dict)
    assert provider["base_url"] == "http://127.0.0.1:8080/v1"
    assert (provider["wire_api"], provider["supports_websockets"]) == ("responses", False)
    assert provider["request_max_retries"] + provider["stream_max_retries"] <= 5


@given(SURFACES, OPS)
def test_the_requirements_pin_policy_hook_and_features(surface: str | None, ops: frozenset[str]) -> None:
    pinned = tomllib.loads(requirements(task(surface, ops)))
    assert pinned["allow_managed_hooks_only"] is True
    assert pinned["allowed_approval_policies"] == ["untrusted"]
    assert pinned["mcp_servers"] == {}
    assert pinned["rules"]["prefix_rules"][0]["decision"] == "prompt"
    assert pinned["features"]["hooks"] is True
    assert pinned["features"]["unified_exec_tty"] is False
    (group,) = pinned["hooks"]["PreToolUse"]
    assert group["matcher"] == ""
    assert str(HELPER) in group["hooks"][0]["command"]


def test_each_clock_of_a_question_ends_before_the_one_around_it() -> None:
    hook = tomllib.loads(requirements(task()))["hooks"]["PreToolUse"][0]["hooks"][0]
    around = int(hook["command"].split()[1])
    assert DECISION_TIMEOUT_S < HELPER_SECONDS < around < hook["timeout"] == HOOK_TIMEOUT_S


def test_what_the_program_reads_in_its_home_is_pinned() -> None:
    assert {str(HOME / name) for name in ("config.toml", ".env", "hooks.json", "AGENTS.md")} < set(pinned_files(task()))


def test_the_plan_holds_the_program_and_every_pinned_file(tmp_path: Path) -> None:
    plan = CodexDriver().launch_plan(task(), FolderOfPins(tmp_path))
    assert {str(mount.target) for mount in plan.mounts} == {"/opt/codex", str(RULES), *pinned_files(task())}
    assert REQUIREMENTS in pinned_files(task())
    assert plan.env["CODEX_HOME"] == plan.env["HOME"] == str(HOME)


@given(st.text(), st.text())
def test_no_text_of_a_person_stands_in_the_command_line(model: str, instructions: str) -> None:
    words = command_line(WorkerTask("codex-aaaaaa", model, (), instructions, ALL_OPS, surface="patch"))
    assert words == command_line(task())


@pytest.mark.parametrize(("surface", "model"), [("plain", "matrix-plain"), ("patch", "gpt-5.5"), (None, None)])
def test_a_surface_brings_the_model_that_has_it(surface: str | None, model: str | None) -> None:
    assert model_of(task(surface)) == model
    assert model_of(task(surface, model="given")) == "given"


def test_a_surface_that_only_the_models_metadata_knows_is_not_foretold() -> None:
    assert expected_surface(task(None)) == expected_surface(task("code", model="gpt-6.1-sol")) == frozenset()
    assert expected_surface(task(None, model="gpt-5.5")) == expected_surface(task("patch"))
