"""What every test shares: one event loop engine, and a hypothesis profile that is fast and repeatable."""

import pytest
from hypothesis import settings

settings.register_profile("suite", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio, which the worker SDKs force."""
    return "asyncio"
