"""Sub-agents of both kinds: judged and recorded like their parent, waited for, and absent where not granted."""

import pytest

from tests.e2e.conftest import SHOP, git
from tests.e2e.roles import FORBIDDEN, INVENTORY, OWN_TOOLS, role_file

pytestmark = pytest.mark.container
GRANTED = (*OWN_TOOLS, "agent.spawn")
PROMPT = "Please help with the shop."
HELPED = """\
agents:
  helper:
    steps:
      - delayMs: 2000
        call: {{tool: shell, args: {{command: "sleep 0.5; echo helped > helped.txt"}}}}
      - call: {{tool: shell, args: {{command: "touch denied.txt; {forbidden}"}}}}
        expect: "(?i)refused"
{more}
      - say: "Helped."
"""
MATRIX = """\
      - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.check, payload: {sku: WIDGET-42}}}
        expect: '"available": ?147'
      - call: {tool: matrix_invoke, args: {target: demo.inventory, op: inventory.delete, payload: {sku: WIDGET-42}}}
        expect: "MX_AGENT_COMMAND_NOT_ALLOWED"
"""
SPAWNING = f"""\
steps:
  - call: {{tool: spawn, args: {{agent: helper, prompt: "{PROMPT}"}}}}
  - say: "My own turn is over."
"""
KINDS_AND_SURFACES = [("claude", None), ("codex", "patch"), ("codex", "code")]


def _script(surface, more):
    head = f"codexSurface: {surface}\n" if surface else ""
    return head + SPAWNING + HELPED.format(forbidden=FORBIDDEN, more=more)


@pytest.mark.parametrize(("kind", "surface"), KINDS_AND_SURFACES)
def test_a_sub_agent_is_judged_recorded_and_waited_for(mxs, shop, script, tmp_path, kind, surface):
    """The sub-agents of Codex have no Matrix tools: its dynamic tools belong to the main thread."""
    policy = role_file(tmp_path, native=GRANTED, grants=INVENTORY)
    words = ("--repo", shop, "--policy", policy, "--actors", SHOP / "actors")
    outcome = mxs.run(kind, *words, *script(_script(surface, MATRIX if kind == "claude" else "")))
    assert outcome.code == 0, outcome.result

    calls = [record for record in mxs.records(outcome.worker) if record["kind"] == "tool.call"]
    told = [(record["op"], record["decision"]["reason"], bool(record.get("agent"))) for record in calls]
    assert told[:3] == [
        ("agent.spawn", "GRANTED", False),
        ("shell.exec", "GRANTED", True),
        ("shell.exec", "SHELL_DENIED", True),
    ]
    matrix = [("inventory.check", "GRANTED"), ("inventory.delete", "COMMAND_NOT_ALLOWED")] if kind == "claude" else []
    assert [(op, reason) for op, reason, _ in told[3:]] == matrix
    assert git(shop, "diff", "--name-only", f"main..{outcome.result['branch']}").split() == ["helped.txt"]


@pytest.mark.parametrize(("kind", "surface"), KINDS_AND_SURFACES)
def test_without_the_grant_there_is_no_tool_to_spawn_with(mxs, shop, script, tmp_path, kind, surface):
    words = ("--repo", shop, "--policy", role_file(tmp_path), *script(_script(surface, "")))
    outcome = mxs.run(kind, *words)
    assert outcome.of("agent.started") == []
    assert not [record for record in mxs.records(outcome.worker) if record.get("op") == "agent.spawn"]
    surfaces = [record["surface"] for record in mxs.records(outcome.worker) if record["kind"] == "gate"]
    assert surfaces
    assert not {"Agent", "Task", "tool_search", "multi_agent_v1"} & set(surfaces[0]["seen"])
