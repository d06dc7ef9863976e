"""What the README shows is what happens: its commands run, its permission file is used, its output is the real one."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import SHOP, git

pytestmark = pytest.mark.container

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SH_BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
SHOWN = re.search(r"<!-- output: make run -->\n```\n(.*?)```", README, re.DOTALL)
EDIT = """
steps:
  - call: {tool: edit, args: {path: shop/cart.py, old: "stock + ordered", new: "stock - ordered"}}
  - say: Done.
"""
SHOW_TIMEOUT_S = 180


def commands():
    """The `mxs` commands of the README, without their comments and keys."""
    lines = [line for block in SH_BLOCKS for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [[word for word in line if "_API_KEY=" not in word] for line in words if "mxs" in line]


def test_every_command_of_the_readme_works_in_a_repository(mxs, shop, tmp_path):
    (tmp_path / "edit.yaml").write_text(EDIT)
    policy = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert policy is not None
    (shop / "permissions.toml").write_text(policy[1])
    (shop / "actors").symlink_to(SHOP / "actors")
    worker = ""
    for words in commands():
        assert words[0] == "mxs", words
        told = [worker if re.fullmatch(r"claude-[a-z0-9]{6}", word) else word for word in words[1:]]
        if told[0] == "run":
            script = SHOP / "fix.yaml" if "--policy" in told else tmp_path / "edit.yaml"
            told += ["--model", f"script:{script}", "--name", f"{told[1]}-of-the-readme", "--no-input"]
        done = mxs(*told, cwd=shop, check=0)
        worker = worker or _worker_in(done.stdout)
    assert worker.startswith("claude-")
    assert git(shop, "branch", "--list", f"mxs/{worker}")


def _worker_in(output):
    found = re.search(r"claude-[a-z0-9]{6}", output)
    return found[0] if found else ""


def test_the_readme_shows_the_real_output_of_make_run(mxs):
    assert SHOWN is not None
    environment = {**mxs.environment(), "MXS": str(Path(sys.executable).parent / "mxs"), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["sh", SHOP / "show.sh", "claude"], env=environment, capture_output=True, text=True,
        timeout=SHOW_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert _without_figures(SHOWN[1]).endswith(_without_figures(done.stdout))


def _without_figures(output):
    """The output without what differs from run to run: ids, times, record numbers, temporary names."""
    plain = re.sub(r"claude-[a-z2-7]{6}", "WORKER", output)
    plain = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", plain)
    plain = re.sub(r"index [0-9a-f]+\.\.[0-9a-f]+", "index", plain)
    plain = re.sub(r"in \d+\.\d+s", "in TIME", plain)
    return re.sub(r"\d+(\.\d+)?", "N", plain).strip()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(((?!http)[^)#]+)", README))))
def test_every_page_the_readme_links_to_is_there(target):
    assert (ROOT / target).exists()
