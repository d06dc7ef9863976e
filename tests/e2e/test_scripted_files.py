"""The neutral file tools of a script, each in a way that a worker's own tool is particular about."""

import pytest

from tests.e2e.conftest import git

pytestmark = pytest.mark.container

SCRIPT = """
steps:
  - calls:
      - {tool: write, args: {path: shop/known.txt, content: "written over\\n"}}
      - {tool: write, args: {path: shop/new.txt, content: "new\\n"}}
  - calls:
      - {tool: edit, args: {path: shop/lines.txt, old: "one", new: "first"}}
      - {tool: edit, args: {path: shop/lines.txt, old: "first two", new: "second"}}
  - call: {tool: shell, args: {command: "cat shop/known.txt shop/new.txt shop/lines.txt"}}
    expect: "written over\\nnew\\nsecond three"
  - say: "Done."
"""


@pytest.mark.parametrize(
    ("kind", "surface"), [("claude", "patch"), ("codex", "patch"), ("codex", "plain"), ("codex", "code")]
)
def test_files_are_written_over_and_changed_twice_in_one_step(mxs, kind, surface, shop, shop_words, script):
    (shop / "shop" / "known.txt").write_text("nobody has read this\n")
    (shop / "shop" / "lines.txt").write_text("one two three\n")
    git(shop, "add", "-A")
    git(shop, "commit", "-q", "-m", "Files")

    outcome = mxs.run(kind, *shop_words, *script(f"codexSurface: {surface}\n{SCRIPT}"), check=0)

    changed = git(shop, "diff", "--name-only", f"main..mxs/{outcome.worker}").split()
    assert changed == ["shop/known.txt", "shop/lines.txt", "shop/new.txt"]
