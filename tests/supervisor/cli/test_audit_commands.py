"""`mxs audit` on the files of a state folder, without a supervisor."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from bridge.audit.audit_log import AuditLog
from bridge.contract.json_types import JsonObject
from supervisor.cli.audit_commands import audit_app


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder whose log holds one call that was allowed and one that was denied."""
    monkeypatch.setenv("MXS_HOME", str(tmp_path))

    async def write() -> None:
        async with AuditLog.open(tmp_path / "audit") as log:
            for call, verdict in (("c1", "allow"), ("c2", "deny")):
                payload: JsonObject = {"command": "printf '\x1b]0;x\x07 \u202e\x7f'"}
                reason = "GRANTED" if verdict == "allow" else "SHELL_DENIED"
                decision: JsonObject = {"verdict": verdict, "reason": reason}
                await log.append(
                    "tool.call", {"call": call, "op": "shell.exec\n\x1b[2J", "payload": payload, "decision": decision}
                )
                await log.append("tool.result", {"call": call, "outcome": "ok", "durationMs": 3.5})

    anyio.run(write)
    return tmp_path


def mxs_audit(*words: str) -> Result:
    return CliRunner().invoke(audit_app, list(words))


def test_verify_says_intact_and_ends_with_0(home: Path) -> None:
    outcome = mxs_audit("verify")
    assert outcome.exit_code == 0
    assert outcome.stdout == "intact: 5 records, 5 anchored, 0 unanchored\n"
    assert json.loads(mxs_audit("verify", "--json").stdout)["intact"] is True


def test_verify_names_the_first_bad_record_and_ends_with_1(home: Path) -> None:
    log = home / "audit" / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"call":"c2"', b'"call":"c3"', 1))
    outcome = mxs_audit("verify")
    assert outcome.exit_code == 1
    assert "BROKEN at record 3 (line 3)" in outcome.stdout
    assert json.loads(mxs_audit("verify", "--json").stdout)["firstBad"]["seq"] == 3


def test_export_prints_the_lines_as_stored_and_the_export_verifies(home: Path, tmp_path: Path) -> None:
    stored = (home / "audit" / "log.jsonl").read_bytes()
    outcome = mxs_audit("export")
    assert outcome.exit_code == 0
    assert outcome.stdout_bytes == stored
    copy = tmp_path / "copy.jsonl"
    assert mxs_audit("export", "-o", str(copy)).exit_code == 0
    assert copy.read_bytes() == stored
    assert mxs_audit("verify", str(copy)).exit_code == 0
    assert mxs_audit("export", "-o", str(copy)).exit_code == 2, "nothing is overwritten"
    copy.write_bytes(b"".join(stored.splitlines(keepends=True)[:-2]))
    assert mxs_audit("verify", str(copy)).exit_code == 1


def test_verify_of_a_file_that_is_not_there_is_a_usage_error(home: Path) -> None:
    assert mxs_audit("verify", str(home / "none.jsonl")).exit_code == 2


def test_nothing_that_is_shown_can_steer_a_terminal(home: Path) -> None:
    for words in (["tail"], ["query"], ["show", "c1"], ["export"], ["tail", "--json"], ["show", "c1", "--json"]):
        outcome = mxs_audit(*words)
        assert outcome.exit_code == 0
        assert not [character for character in outcome.stdout if character != "\n" and not character.isprintable()]


def test_tail_shows_one_line_a_record_with_its_verdict(home: Path) -> None:
    lines = mxs_audit("tail", "-n", "3").stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("3  ")
    assert lines[0].endswith("tool.call  shell.exec\\n\\x1b[2J  deny  SHELL_DENIED")
    assert lines[1].endswith("tool.result  ok  3.5 ms")


def test_query_filters_and_prints_json_lines(home: Path) -> None:
    found = [
        json.loads(line)
        for line in mxs_audit("query", "--verdict", "deny", "--since", "1h", "--json").stdout.splitlines()
    ]
    assert [record["call"] for record in found] == ["c2"]
    assert mxs_audit("query", "--until", "2000-01-01T00:00:00Z").stdout == ""
    assert len(mxs_audit("query", "--kind", "tool.call", "--limit", "1").stdout.splitlines()) == 1


@pytest.mark.parametrize("time", ["yesterday", "99999999d", "12", ""])
def test_a_time_that_is_none_is_a_usage_error(home: Path, time: str) -> None:
    assert mxs_audit("query", "--since", time).exit_code == 2


def test_show_puts_a_call_together(home: Path) -> None:
    outcome = mxs_audit("show", "c2")
    assert "record 3" in outcome.stdout
    assert "record 4" in outcome.stdout
    assert "record 1" not in outcome.stdout
    assert mxs_audit("show", "c9").exit_code == 1


def test_without_a_log_there_is_nothing_to_show_and_nothing_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXS_HOME", str(tmp_path / "fresh"))
    for words in (["tail"], ["query"], ["export"], ["verify"]):
        assert mxs_audit(*words).exit_code == 0
    assert not (tmp_path / "fresh").exists()


def test_a_followed_log_streams_until_it_is_interrupted(home: Path) -> None:
    script = "from supervisor.cli.audit_commands import audit_app; audit_app()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, "tail", "-f", "-n", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MXS_HOME": str(home)},
    ) as followed:
        assert followed.stdout is not None
        assert json.loads(followed.stdout.readline())["kind"] == "checkpoint"

        async def write() -> None:
            async with AuditLog.open(home / "audit") as log:
                await log.append("gate", {"worker": "new"})

        anyio.run(write)
        assert json.loads(followed.stdout.readline())["worker"] == "new"
        followed.send_signal(signal.SIGINT)
        assert followed.wait(timeout=10) == 130
