"""What the repository tests share."""

from pathlib import Path

import pytest

from tests.supervisor.repo.repositories import SHOP, UserRepository


@pytest.fixture
def user(tmp_path: Path) -> UserRepository:
    """A small repository with one commit and an executable file."""
    repository = UserRepository(tmp_path / "user")
    repository.write(SHOP)
    (repository.top / "run.sh").chmod(0o755)
    repository.commit()
    return repository
