"""Fixtures of the tests that start a real worker."""

from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The worker's workspace, which it may write."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    folder.chmod(0o777)
    return folder
