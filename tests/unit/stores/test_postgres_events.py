"""The log on PostgreSQL: nothing is passed over, and nobody pays for followers who are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Team
from bullpen.domain.request import RequestKind
from bullpen.store import Store
from tests.support.postgres import PrivateServer, create_database, drop_database
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits


@asynccontextmanager
async def a_transaction_that_commits_late(url: str, team: Team) -> AsyncIterator[psycopg.AsyncConnection]:
    """It has taken its number and written its event; inside, it has not committed yet."""
    async with await psycopg.AsyncConnection.connect(url) as late:
        await late.execute("SELECT pg_current_xact_id()")
        await late.execute("SAVEPOINT events")
        await late.execute(
            "INSERT INTO event (team_id, number, n, kind, at, actor, data)"
            " SELECT %s, nextval('event_number'), 1, 'Late', now(), 'x', '{}'",
            [team.id],
        )
        yield late


async def test_an_event_that_commits_late_is_not_passed_over(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        before = await store.last_position(team.id)
        async with a_transaction_that_commits_late(postgres_url, team) as late:
            await store.create_task(user, "later number, earlier commit")
            assert await store.list_events(team.id, after=before) == []
            assert await store.last_position(team.id) == before
            await late.commit()
        assert _kinds(await store.list_events(team.id, after=before)) == ["Late", EventKind.TASK_CREATED]


async def test_a_follower_sees_all_when_the_late_one_commits_though_that_rings_for_nobody(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        seen = asyncio.create_task(_follow(store, team, until=EventKind.TASK_CREATED))
        async with a_transaction_that_commits_late(postgres_url, team) as late:
            await store.create_task(user, "x")
            await late.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert _kinds(await seen) == [EventKind.TEAM_CREATED, "Late", EventKind.TASK_CREATED]


async def test_a_follower_sees_what_was_written_before_it_came_and_committed_after_its_first_look(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        team, _ = await create_team(store)
        async with a_transaction_that_commits_late(postgres_url, team) as late:
            following = aiter(store.follow_events(team.id))
            assert (await anext(following)).kind == EventKind.TEAM_CREATED
            next_one = asyncio.ensure_future(anext(following))
            await asyncio.wait([next_one], timeout=0.3)  # it has looked, and sleeps
            await late.commit()
            async with asyncio.timeout(BOUND_SECONDS):
                assert (await next_one).kind == "Late"
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_late_one_that_gives_up_holds_nobody_back(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        seen = asyncio.create_task(_follow(store, team, until=EventKind.TASK_CREATED))
        async with a_transaction_that_commits_late(postgres_url, team) as late:
            await store.create_task(user, "x")
            await late.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            assert _kinds(await seen) == [EventKind.TEAM_CREATED, EventKind.TASK_CREATED]


async def test_who_waited_for_a_lock_stands_after_the_one_that_held_it(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        team, user = await create_team(store)
        await join(store, team.id, "ana")
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM member WHERE name_key = 'ana' FOR SHARE")
            # It has the team and an id by now, and waits for whom it asks.
            first = asyncio.create_task(store.open_request(user, RequestKind.SHUTDOWN, "ana"))
            await backend_that_waits(postgres_url)
            await other.send(user, "ana", "meanwhile")
            await holder.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            await first
        kinds = _kinds(await store.list_events(team.id))
        assert kinds.index(EventKind.MESSAGE_SENT) < kinds.index(EventKind.REQUEST_OPENED)


async def test_a_transaction_of_another_database_holds_nothing_back(postgres_url: str, postgres_server: str) -> None:
    elsewhere = create_database(postgres_server)
    try:
        async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(elsewhere) as open_one:
            await open_one.execute("CREATE TABLE other (n int)")
            team, user = await create_team(store)
            await store.create_task(user, "x")
            assert _kinds(await store.list_events(team.id))[-1] == EventKind.TASK_CREATED
    finally:
        drop_database(elsewhere, postgres_server)


async def test_a_transaction_that_was_prepared_in_another_database_holds_nothing_back() -> None:
    with PrivateServer(settings={"max_prepared_transactions": "1"}) as server:
        elsewhere = create_database(server.url)
        async with opened(server.url) as store:
            team, user = await create_team(store)
            async with await psycopg.AsyncConnection.connect(elsewhere) as leaver:
                await leaver.execute("CREATE TABLE other (n int)")
                await leaver.execute("PREPARE TRANSACTION 'left behind'")
            await store.create_task(user, "x")
            assert _kinds(await store.list_events(team.id))[-1] == EventKind.TASK_CREATED


async def test_a_notice_for_events_is_sent_only_while_another_process_follows(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other, _heard(postgres_url) as heard:
        team, user = await create_team(store)
        await heard.listen(f"bullpen_t{team.id}")
        await store.create_task(user, "nobody follows")
        async with store.listen_events(team.id):
            await store.create_task(user, "only this process follows")
        async with other.listen_events(team.id) as bell:
            bell.clear()
            await store.create_task(user, "another one follows")
            assert await bell.wait(BOUND_SECONDS)
        await store.create_task(user, "nobody follows any more")
        assert await heard.until_now() == [f"bullpen_t{team.id}"]


async def test_a_ring_for_a_member_goes_to_its_worker_alone_and_not_at_all_inside_a_process(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other, _heard(postgres_url) as heard:
        team, user = await create_team(store)
        here, there = await store.register_worker(), await other.register_worker()
        for worker in (here, there):
            await heard.listen(f"bullpen_w{worker.id}")
        await store.join_member(here.id, team.id, "ana")
        ben = await other.join_member(there.id, team.id, "ben")
        async with other.listen_member(ben.ref) as bell:
            bell.clear()
            await store.send(user, "ana", "from her own process")
            await store.send(user, "ben", "from another process")
            assert await bell.wait(BOUND_SECONDS)
        assert await heard.until_now() == [f"bullpen_w{there.id}"]


async def test_a_follower_that_died_is_forgotten(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, _ = await create_team(store)
        await ask(postgres_url, "INSERT INTO follower VALUES (%s, 'dead', now() - interval '2 hours')", [team.id])
        async with store.listen_events(team.id):
            rows = await ask(postgres_url, "SELECT process FROM follower")
            assert len(rows) == 1
            assert rows != [("dead",)]
        assert await ask(postgres_url, "SELECT * FROM follower") == []


class _Ear:
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def listen(self, channel: str) -> None:
        await self._connection.execute(f'LISTEN "{channel}"'.encode())

    async def until_now(self) -> list[str]:
        """Notices come in the order of commits: one that we send ourselves is the last of those until now."""
        await self.listen("until_now")
        await self._connection.execute("NOTIFY until_now")
        heard: list[str] = []
        async for notice in self._connection.notifies(timeout=BOUND_SECONDS):
            if notice.channel == "until_now":
                return heard
            heard.append(notice.channel)
        raise AssertionError("our own notice did not arrive")


@asynccontextmanager
async def _heard(url: str) -> AsyncIterator[_Ear]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield _Ear(connection)


async def _follow(store: Store, team: Team, until: str) -> list[Event]:
    seen = []
    async for event in store.follow_events(team.id):
        seen.append(event)
        if event.kind == until:
            break
    return seen


def _kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]
