"""However a store ends, refused or cancelled at any moment, none of its connections stays open."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest

from bullpen.errors import SchemaTooNew, StoreError, StoreUnavailable, UsageError
from bullpen.stores import open_store
from bullpen.stores.postgresql import connection as connecting
from bullpen.stores.postgresql.pool import Pool
from bullpen.stores.postgresql.wire import Lost, Wire
from tests.support.stores import create_team, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask


@pytest.fixture(autouse=True)
def without_what_was_there_before() -> Iterator[None]:
    """Hundreds of times all objects are looked through: only those that are made from here on."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Interrupted:
    """Awaits a coroutine, and cancels the task that does so where it sleeps for the nth time (and from then on)."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, *, again: bool) -> None:
        self._coroutine = coroutine
        self._at = at
        self._again = again
        self.sleeps = 0

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._coroutine.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                sleep = step()
            except StopIteration as end:
                return end.value
            self.sleeps += 1
            if self.sleeps == self._at or (self._again and self.sleeps > self._at):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield sleep
            except BaseException as error:
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps)


async def interrupt_everywhere(scenario: Callable[[], Coroutine[Any, Any, Any]], *, again: bool = False) -> int:
    """Run it once for each of its sleeps, cancelled there; how many there were."""
    for at in count(1):
        interrupted = Interrupted(scenario(), at, again=again)
        await alone(interrupted)
        assert_none_is_open(f"cancelled at sleep {at}")
        if interrupted.sleeps < at:
            return at - 1
    raise AssertionError


async def alone(work: Awaitable[Any]) -> None:
    """In a task of its own, until that has ended with everything that it started."""

    async def run() -> None:
        with suppress(asyncio.CancelledError, StoreUnavailable):
            await work

    before = asyncio.all_tasks()
    started = asyncio.create_task(run())
    async with asyncio.timeout(BOUND_SECONDS):
        await started
        while others := asyncio.all_tasks() - before:
            await asyncio.wait(others)


def assert_none_is_open(when: str = "") -> None:
    """Looked for among all objects: one that is collected before it is seen here warns, which is an error too."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, psycopg.AsyncConnection) and not each.closed]
    assert not found, when


# -- refused -------------------------------------------------------------------------------


async def test_a_store_that_refuses_to_open_leaves_no_connection(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await create_team(store)
    await ask(postgres_url, "UPDATE schema_version SET major = 99")
    with pytest.raises(SchemaTooNew):
        await open_store(postgres_url).__aenter__()
    assert_none_is_open()
    await ask(postgres_url, "ALTER TABLE schema_version RENAME major TO mayor")
    with pytest.raises(StoreError, match="not those of a Bullpen store"):
        await open_store(postgres_url).__aenter__()
    assert_none_is_open()


@pytest.mark.parametrize("statement", ["_SESSION", "_SERVER"])
async def test_a_session_that_cannot_be_prepared_leaves_no_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(connecting, statement, "SELECT no_such_function()")
    with pytest.raises(StoreError, match="no_such_function"):
        await open_store(postgres_url).__aenter__()
    assert_none_is_open()


async def test_a_server_that_is_too_old_leaves_no_connection(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_OLDEST_SERVER", 10**9)
    with pytest.raises(StoreError, match="too old"):
        await open_store(postgres_url).__aenter__()
    assert_none_is_open()


# -- cancelled -----------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["once", "again and again"])
async def test_a_store_cancelled_at_any_moment_of_its_life_leaves_no_connection(postgres_url: str, again: bool) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)

    async def live() -> None:
        async with opened(postgres_url, pool_size=2) as store:
            await store.register_worker()
            async with store.listen_events(team.id) as bell:
                await store.send(user, "lead", "hello")
                await bell.wait(BOUND_SECONDS)
                await asyncio.gather(*(store.list_tasks(team.id) for _ in range(3)))

    assert await interrupt_everywhere(live, again=again) > 20


async def test_many_that_wait_for_one_connection_leave_none_when_they_are_cancelled(postgres_url: str) -> None:
    async def crowd() -> None:
        async with opened(postgres_url, pool_size=1) as store, asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(store.list_teams())
            await store.list_teams()

    assert await interrupt_everywhere(crowd) > 5


# -- closed under way ----------------------------------------------------------------------


async def test_a_store_that_is_closed_under_verbs_leaves_no_connection(postgres_url: str) -> None:
    """Closed after a different number of steps of the loop, while verbs and listeners are opening connections."""

    async def listen(store: Any, team_id: int) -> None:
        async with store.listen_events(team_id):
            await store.list_tasks(team_id)

    async with opened(postgres_url) as store:
        team, _ = await create_team(store)

    async def abandon(steps: int) -> None:
        async with opened(postgres_url, pool_size=1, patience_seconds=0.1) as store:
            doing: list[asyncio.Task[Any]] = [asyncio.create_task(store.list_teams()) for _ in range(3)]
            doing.append(asyncio.create_task(listen(store, team.id)))
            doing.append(asyncio.create_task(store.register_worker()))
            for _ in range(steps):
                await asyncio.sleep(0)
        for outcome in await asyncio.gather(*doing, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, StoreUnavailable | UsageError)

    for steps in range(0, 400, 9):
        await alone(abandon(steps))
        assert_none_is_open(f"closed after {steps} steps")


async def test_a_store_that_is_closed_while_it_comes_back_leaves_no_connection(postgres_url: str) -> None:
    async def come_back(steps: int) -> None:
        async with opened(postgres_url, patience_seconds=0.1) as store:
            team, _ = await create_team(store, f"crew-{steps}")
            await store.register_worker()
            async with store.listen_events(team.id) as bell:
                bell.clear()
                await ask(
                    postgres_url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'bullpen' AND datname = current_database()",
                )
                for _ in range(steps):
                    await asyncio.sleep(0)

    for steps in range(0, 300, 12):
        await alone(come_back(steps))
        assert_none_is_open(f"closed after {steps} steps")


def test_a_loop_that_ends_under_a_verb_leaves_no_connection_of_it(postgres_url: str) -> None:
    """Never cancelled, never closed: what held the connection is thrown away with its loop."""

    async def hold(pool: Pool, is_held: asyncio.Event, *, asks: bool) -> None:
        async with pool.wire() as wire:
            await wire.ask("SELECT 1")
            is_held.set()
            try:
                await (wire.ask("SELECT pg_sleep(600)") if asks else asyncio.Event().wait())
            finally:
                with suppress(Lost):
                    await wire.ask("ROLLBACK")

    async def begin() -> None:
        async def connect() -> Wire:
            return (await connecting.connect(connecting.parse_url(postgres_url)))[0]

        pool = Pool(connect, size=2, patience_seconds=1)
        pool.open()
        for asks in (False, True):
            is_held = asyncio.Event()
            tasks.append(asyncio.create_task(hold(pool, is_held, asks=asks)))
            await is_held.wait()

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(begin())
    loop.close()
    tasks.clear()
    assert_none_is_open()
