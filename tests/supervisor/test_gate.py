from importlib.metadata import version

import pytest

from supervisor.gate import judge_surface

SURFACE = frozenset({"Bash", "Read", "mcp__matrix__matrix_invoke"})


def test_a_surface_equal_to_the_projection_passes_with_its_evidence():
    record = judge_surface("claude", SURFACE, SURFACE).to_record()
    assert record["verdict"] == "passed"
    assert record["surface"] == {"seen": sorted(SURFACE), "missing": [], "unexpected": []}
    assert record["program"] == {"package": "claude-agent-sdk", "version": version("claude-agent-sdk")}


def test_a_tool_too_many_refuses_the_worker_and_is_named():
    verdict = judge_surface("claude", SURFACE, SURFACE | {"WebSearch"})
    assert verdict.refusal is not None
    assert "WebSearch" in verdict.refusal


def test_a_tool_too_few_is_evidence_and_no_refusal():
    verdict = judge_surface("claude", SURFACE, SURFACE - {"Read"})
    assert verdict.refusal is None
    assert verdict.missing == {"Read"}


def test_a_surface_that_cannot_be_foretold_is_recorded_as_seen():
    verdict = judge_surface("codex", None, frozenset({"exec"}))
    assert verdict.refusal is None
    assert verdict.seen == {"exec"}


@pytest.mark.parametrize(("kind", "old"), [("claude", "0.2.100"), ("codex", "0.99.9")])
def test_a_program_below_its_floor_is_refused_with_the_mend(kind, old):
    verdict = judge_surface(kind, SURFACE, SURFACE, installed=old)
    assert verdict.refusal is not None
    assert "Upgrade" in verdict.refusal


def test_the_installed_programs_are_at_or_above_their_floors():
    assert judge_surface("claude", None, frozenset()).refusal is None
    assert judge_surface("codex", None, frozenset()).refusal is None
