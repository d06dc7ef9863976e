"""What the audit tests share: a verifier written from contracts.md alone, and logs to try things on."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from bridge.audit.audit_log import AuditLog
from bridge.audit.log_file import LOG_FILE
from bridge.contract.json_types import JsonObject

IndependentVerifier = Callable[[bytes], int | None]


def first_bad_line(log: bytes) -> int | None:
    """The number of the first line that is not as contracts.md, section 7, says, or None. Imports nothing of ours."""
    before = "0" * 64
    for number, line in enumerate(log[: log.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line.decode("ascii"))
            covered = line[: line.rindex(b',"hash":')]
            right = (
                record["seq"] == number
                and record["prev"] == before
                and list(record)[-1] == "hash"
                and record["hash"] == hashlib.sha256(covered).hexdigest()
            )
        except (ValueError, KeyError, TypeError):
            return number
        if not right:
            return number
        before = record["hash"]
    return None


@pytest.fixture
def independent() -> IndependentVerifier:
    """The independent verifier."""
    return first_bad_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a log may be opened; its keys come to lie beside it."""
    return tmp_path / "audit"


@pytest.fixture
def written(folder: Path) -> Path:
    """The file of a closed log: 20 calls with results, and the checkpoint at its close."""
    anyio.run(_write, folder)
    return folder / LOG_FILE


async def _write(folder: Path) -> None:
    async with AuditLog.open(folder) as log:
        for number in range(20):
            call: JsonObject = {
                "call": f"c{number}",
                "worker": "claude-aaaaaa",
                "payload": {"text": 'é \u202e ,"hash":'},
            }
            await log.append("tool.call", call)
            await log.append("tool.result", {"call": f"c{number}", "outcome": "ok"}, durable=False)
