"""Settings and fixtures for all tests: asyncio only, hypothesis profiles, real PostgreSQL."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.support.postgres import postgres_server, postgres_url, private_postgres

__all__ = ["anyio_backend", "postgres_server", "postgres_url", "private_postgres"]

# No deadline: the machines that run this are shared. In CI the same examples every time: red means changed.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("default")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
