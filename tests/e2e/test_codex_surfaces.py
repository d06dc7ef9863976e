"""Codex with plain tools and in code mode: the same calls, allowed and refused, judged one by one on each surface."""

import pytest

from tests.e2e.conftest import git
from tests.e2e.roles import FORBIDDEN

pytestmark = pytest.mark.container
SCRIPT = f"""
steps:
  - call: {{tool: shell, args: {{command: "python3 -m unittest -q 2>&1"}}}}
    expect: "FAILED"
  - calls:
      - {{tool: local/demo.inventory/inventory.check, args: {{sku: WIDGET-42}}}}
      - {{tool: matrix_invoke, args: {{target: demo.inventory, op: inventory.delete, payload: {{sku: WIDGET-42}}}}}}
    expect: "(?s)147.*MX_AGENT_COMMAND_NOT_ALLOWED"
  - call: {{tool: shell, args: {{command: "touch denied.txt; {FORBIDDEN}"}}}}
    expect: "(?i)refused"
  - call: {{tool: edit, args: {{path: shop/cart.py, old: "stock + ordered", new: "stock - ordered"}}}}
  - call: {{tool: write, args: {{path: docs.txt, content: "outside the write paths\\n"}}}}
  - call: {{tool: shell, args: {{command: "python3 -m unittest -q 2>&1"}}}}
    expect: "OK"
  - say: "Done."
"""
OUTSIDE = {"plain": ("shell.exec", "GRANTED"), "code": ("file.write", "PATH_DENIED")}
"""Without `apply_patch` a file is written by a command; what lies outside the granted paths is then left behind."""
SURFACES = {"plain": {"exec_command", "matrix_invoke", "demo_inventory__inventory_check"}, "code": {"exec", "wait"}}


@pytest.mark.parametrize("surface", ["plain", "code"])
def test_each_call_is_judged_whatever_the_surface(mxs, shop, shop_words, script, surface):
    outcome = mxs.run("codex", *shop_words, *script(f"codexSurface: {surface}\n{SCRIPT}"))
    assert outcome.code == 0, outcome.result
    records = mxs.records(outcome.worker)
    verdicts = [(r["op"], r["decision"]["reason"]) for r in records if r["kind"] == "tool.call"]
    assert verdicts[:4] == [
        ("shell.exec", "GRANTED"),
        ("inventory.check", "GRANTED"),
        ("inventory.delete", "COMMAND_NOT_ALLOWED"),
        ("shell.exec", "SHELL_DENIED"),
    ]
    assert OUTSIDE[surface] in verdicts[4:]
    assert verdicts[-1] == ("shell.exec", "GRANTED")
    seen = next(record["surface"]["seen"] for record in records if record["kind"] == "gate")
    assert set(seen) >= SURFACES[surface]
    assert "apply_patch" not in seen
    changed = git(shop, "diff", "--name-only", f"main..{outcome.result['branch']}").split()
    assert changed == ["shop/cart.py"]
