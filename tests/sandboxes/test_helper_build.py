"""The helper's build: the same sources give the same bytes, which need nothing of the machine they run on."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from sandboxes import helper as helper_package
from sandboxes.helper import helper_path

ROOT = Path(helper_package.__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from hatch_build import compile_helper
compile_helper(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
"""


def test_two_builds_from_different_folders_are_the_same_bytes(tmp_path: Path) -> None:
    copy, output = tmp_path / "somewhere" / "else", tmp_path / "out"
    shutil.copytree(Path(helper_package.__file__).parent, copy, ignore=shutil.ignore_patterns("bin"))
    words = [sys.executable, "-c", SCRIPT, str(copy), platform.machine(), str(output)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=300)
    assert output.read_bytes() == helper_path().read_bytes()


def test_the_helper_is_static() -> None:
    content = helper_path().read_bytes()
    assert content.startswith(b"\x7fELF")
    assert b"ld-musl" not in content
    assert b"ld-linux" not in content
