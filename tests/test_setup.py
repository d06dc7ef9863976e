"""Set-up, as far as it can be seen without a second machine: inputs, the lock, the image's name, what is shown."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sandboxes import has_image, worker_image, worker_image_tag
from sandboxes.set_up import ROOT, SetUpError, inputs_digest, make_environment, phase, run_logged


def test_every_locked_package_has_hashes_and_no_index_is_named() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="ascii")
    packages = re.findall(r"^([a-z0-9-]+)==\S+ ?(;.*)? \\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE)) > 0
    assert "://" not in lock
    assert not re.search(r"^(-i|--index|--extra|--find)", lock, re.MULTILINE)


def test_the_lock_holds_everything_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    lock = (ROOT / "requirements.lock").read_text(encoding="ascii")
    locked = {name.lower() for name in re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)}
    assert {re.split(r"[<>=\[;~! ]", name)[0].lower() for name in named} <= locked


def test_nothing_is_done_where_the_environment_is_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "mxs-setup.sha256").write_text(inputs_digest(tmp_path))
    make_environment(tmp_path)
    assert capsys.readouterr().out == ""


def test_a_changed_lock_or_helper_is_another_digest(tmp_path: Path) -> None:
    digests = {inputs_digest(tmp_path)}
    for name in ("requirements.lock", "sandboxes/helper/a.c", "sandboxes/helper/b.h", "hatch_build.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("same")
        digests.add(inputs_digest(tmp_path))
    assert len(digests) == 5


def test_a_phase_shows_its_name_and_seconds_and_whether_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with phase("worker image"):
        pass
    assert re.fullmatch(r"  worker image +0\.0 s\n", capsys.readouterr().out)
    with pytest.raises(SetUpError), phase("engine"):
        raise SetUpError("no")
    assert re.fullmatch(r"  engine +failed after +0\.0 s\n", capsys.readouterr().out)


def test_a_failed_step_shows_the_end_of_its_own_output(tmp_path: Path) -> None:
    log = tmp_path / "build" / "setup.log"
    run_logged((sys.executable, "-c", "print('earlier')"), log, timeout_s=30)
    failing = "import sys; [print(f'line {i}') for i in range(99)]; sys.exit(3)"
    with pytest.raises(SetUpError) as failed:
        run_logged((sys.executable, "-c", failing), log, timeout_s=30)
    message = str(failed.value)
    assert "exit code 3" in message
    assert "line 98" in message
    assert "line 80" not in message
    assert "earlier" not in message
    assert str(log) in message


def test_a_program_that_is_not_there_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(SetUpError, match="no-such-program"):
        run_logged(("no-such-program",), tmp_path / "log", timeout_s=30)


def test_the_images_name_is_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = worker_image_tag()
    assert re.fullmatch(r"mxs-worker:[0-9a-f]{12}", before)
    for name in ("Dockerfile", "packages.txt"):
        (tmp_path / name).write_bytes((worker_image.IMAGES / name).read_bytes())
    monkeypatch.setattr(worker_image, "IMAGES", tmp_path)
    assert worker_image_tag() == before
    (tmp_path / "packages.txt").write_text("git\nvim\n")
    assert worker_image_tag() != before


def test_the_image_is_there_after_set_up() -> None:
    assert has_image(worker_image_tag())
    assert not has_image("mxs-test-nowhere:none")


def test_the_ci_script_runs_the_test_command_and_nothing_cleverer() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="ascii").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ["set -eu", 'cd "$(dirname "$0")/.."', "exec make test"]


def test_help_names_every_target() -> None:
    shown = subprocess.run(("make", "help"), cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    names = {line.split()[0] for line in shown.splitlines() if line and not line.startswith("make")}
    assert {"run", "test", "setup", "check", "proof", "bench", "soak", "help"} <= names
