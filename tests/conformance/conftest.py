"""One suite over every store: each test that asks for `store` (or `board`) runs once on each implementation.

Rings are tested with the safety net out of the way: it looks again only every hour, so what arrives was rung.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bullpen.clock import FakeClock
from bullpen.store import Store
from bullpen.stores import open_store
from tests.conformance.board import ROOM, Board
from tests.support.stores import NEVER_SECONDS, SHARED_STORES, STORES, empty_store_url

OpenAnother = Callable[[], Awaitable[Store]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_url" in metafunc.fixturenames:
        names = SHARED_STORES if "open_another" in metafunc.fixturenames else STORES
        metafunc.parametrize("store_url", names, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    return empty_store_url(request, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(store_url: str, clock: FakeClock) -> AsyncIterator[Store]:
    async with open_store(store_url, clock=clock, poll_interval_seconds=NEVER_SECONDS) as opened:
        yield opened


@pytest.fixture
async def open_another(store: Store, store_url: str, clock: FakeClock) -> AsyncIterator[OpenAnother]:
    """Opens further store objects on the same store, as other processes would; closed with the test."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            other = open_store(store_url, clock=clock, poll_interval_seconds=NEVER_SECONDS)
            return await stack.enter_async_context(other)

        yield open_one


@pytest.fixture
async def board(store: Store, clock: FakeClock) -> Board:
    """A team with room for everyone, and a worker of this store object that hosts its members."""
    team = await store.create_team("crew", goal="ship it", settings=ROOM)
    worker = await store.register_worker(slots=1000)
    return Board(store, team, worker, clock)
