"""Settings and fixtures for all tests: asyncio only, hypothesis profiles, real PostgreSQL."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from tests.support.postgres import postgres_server, postgres_url, private_postgres
from tests.support.processes import chance, crew, nursery
from tests.support.sandboxes import ground, sandbox, sandbox_kind, token, walled
from tests.support.stores import shared_store_url

__all__ = [
    "anyio_backend",
    "chance",
    "crew",
    "ground",
    "nursery",
    "postgres_server",
    "postgres_url",
    "private_postgres",
    "sandbox",
    "sandbox_kind",
    "shared_store_url",
    "token",
    "walled",
]

# Who runs this in the background may ignore Ctrl-C; the commands that are tested inherit that, and must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the machines that run this are shared. In CI the same examples every time: red means changed.
settings.register_profile("default", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("default")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
