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


SLOWEST = (
    "test_apart.py",
    "test_agents_killed.py",
    "test_http_killed.py",
    "test_machines.py",
    "test_ray_",
    "test_bench.py",
    "test_http_command.py",
    "test_cli_clones.py",
    "test_race_mail.py",
)
"""Begun first, so that at the end nobody waits for one of them alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process begins with an equal part of the list (`--dist worksteal`): with its share of the slowest."""
    slow = [item for item in items if any(name in item.nodeid for name in SLOWEST)]
    rest = [item for item in items if not any(name in item.nodeid for name in SLOWEST)]
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # The others stay together: what a module has in common is made once.
    edges = [len(rest) * part // parts for part in range(parts + 1)]
    items[:] = [item for part in range(parts) for item in (*slow[part::parts], *rest[edges[part] : edges[part + 1]])]
