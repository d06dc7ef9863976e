"""What every test shares: one event loop engine, and a hypothesis profile that is fast and repeatable."""

import os

import pytest
from hypothesis import settings

settings.register_profile("suite", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("proof", max_examples=20_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio, which the worker SDKs force."""
    return "asyncio"
