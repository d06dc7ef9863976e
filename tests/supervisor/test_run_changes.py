"""The records of what a call changed."""

import subprocess

import anyio
import pytest

from supervisor import run_changes
from supervisor.run_changes import RunChanges


@pytest.fixture
def repo(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], check=True)
    return tmp_path / "repo"


async def test_a_call_that_changes_very_many_files_is_summed_up_and_its_commit_counts_them_all(
    repo, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_changes, "MOST_FILE_RECORDS", 3)
    records = []

    async def append(kind, fields):
        records.append((kind, fields))

    changes = RunChanges(repo, tmp_path / "worker", "claude-aaaaaa", append)
    await changes.inspect()
    changes.make_workspace()
    owner = changes.workspace.stat()
    await changes.clone((owner.st_uid, owner.st_gid), {"write": ["."], "deny": []})
    for number in range(5):
        await anyio.Path(changes.workspace / f"{number}.txt").write_text("x")
    await changes.record_after("call-1")
    assert [kind for kind, _ in records] == ["file.change"] * 4 + ["commit"]
    assert records[3][1] == {"path": None, "change": "unlisted", "digest": None, "call": "call-1", "files": 2}
    assert records[4][1]["files"] == 5
