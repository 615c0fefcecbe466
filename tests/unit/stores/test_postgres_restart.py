"""The server goes away and comes back: whoever waits is woken, whoever writes goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from bullpen.errors import StoreUnavailable
from bullpen.stores import open_store
from tests.support.postgres import PrivateServer
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask


async def _restart(server: PrivateServer, *, kill: bool) -> None:
    await asyncio.to_thread(server.kill9 if kill else server.stop)
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("kill", [True, False])
async def test_a_sleeper_is_woken_by_mail_sent_after_a_restart(private_postgres: PrivateServer, kill: bool) -> None:
    async with opened(private_postgres.url) as store, opened(private_postgres.url) as other:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        async with store.listen_member(ana) as bell, asyncio.timeout(BOUND_SECONDS):
            bell.clear()
            await _restart(private_postgres, kill=kill)
            await other.send(user, "ana", "after the restart")
            while not (mail := await store.take_mail(ana)):
                assert await bell.wait()
                bell.clear()
            assert [message.content for message in mail.messages] == ["after the restart"]


async def test_followers_and_workers_are_heard_again_after_a_restart(private_postgres: PrivateServer) -> None:
    async with opened(private_postgres.url) as store, opened(private_postgres.url) as other:
        team, user = await create_team(store)
        async with (
            store.listen_events(team.id) as log_bell,
            store.listen_wanted() as wanted_bell,
            asyncio.timeout(BOUND_SECONDS),
        ):
            for bell in (log_bell, wanted_bell):
                bell.clear()
            await _restart(private_postgres, kill=True)
            # Everyone looks once when the connection is back; from then on notices arrive again.
            for bell in (log_bell, wanted_bell):
                assert await bell.wait()
                bell.clear()
            await other.spawn_member(user, "ben")
            for bell in (log_bell, wanted_bell):
                assert await bell.wait()


async def test_writers_go_on_through_a_restart_and_nothing_is_done_twice(private_postgres: PrivateServer) -> None:
    async with opened(private_postgres.url, patience_seconds=60.0) as store:
        team, user = await create_team(store)
        created: list[int] = []
        enough = asyncio.Event()
        progress = asyncio.Semaphore(0)

        async def write() -> None:
            while not enough.is_set():
                created.append((await store.create_task(user, "x")).id)
                progress.release()

        writers = [asyncio.create_task(write()) for _ in range(4)]
        async with asyncio.timeout(2 * BOUND_SECONDS):
            for kill in (True, False):
                await _restart(private_postgres, kill=kill)
                so_far = len(created)
                while len(created) < so_far + 20:
                    await progress.acquire()
            enough.set()
            await asyncio.gather(*writers)
        assert sorted(created) == [task.id for task in await store.list_tasks(team.id)]


async def test_a_server_that_stays_away_is_an_error_within_the_patience_and_forgotten_when_it_is_back(
    private_postgres: PrivateServer,
) -> None:
    async with open_store(private_postgres.url, patience_seconds=0.5) as store:
        team, user = await create_team(store)
        await asyncio.to_thread(private_postgres.stop)
        async with asyncio.timeout(BOUND_SECONDS):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await store.create_task(user, "x")
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await store.list_tasks(team.id)
        await asyncio.to_thread(private_postgres.start)
        assert (await store.create_task(user, "x")).id == 1


async def test_a_crowd_waits_no_longer_for_a_server_that_stays_away_than_one_alone(
    private_postgres: PrivateServer,
) -> None:
    async with open_store(private_postgres.url, patience_seconds=2.0) as store:
        _, user = await create_team(store)
        await asyncio.to_thread(private_postgres.stop)
        async with asyncio.timeout(15):
            crowd = (store.create_task(user, "x") for _ in range(40))
            ends = await asyncio.gather(*crowd, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnavailable}
        assert all("cannot be reached" in str(end) for end in ends)


async def test_a_crowd_waits_for_a_host_that_swallows_everything_as_long_as_one_pair(
    private_postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{private_postgres.url}&connect_timeout=2"
    async with open_store(url, patience_seconds=0.5) as store:
        team, user = await create_team(store)
        with _stopped(await _all_of(url)):
            monkeypatch.setattr("bullpen.stores.postgresql.wire.ANSWER_SECONDS", 0.5)
            async with asyncio.timeout(15):
                crowd = (store.create_task(user, "x") for _ in range(40))
                ends = await asyncio.gather(*crowd, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnavailable}
        assert all("cannot be reached" in str(end) for end in ends)
        assert await store.list_tasks(team.id) == []


async def test_a_store_is_closed_in_good_order_though_its_server_is_gone(private_postgres: PrivateServer) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        async with open_store(private_postgres.url, patience_seconds=0.2) as store:
            team, _ = await create_team(store)
            ana = (await join(store, team.id, "ana")).ref
            async with store.listen_member(ana), store.listen_events(team.id):
                await asyncio.to_thread(private_postgres.kill9)


async def test_a_session_that_says_nothing_any_more_is_given_up_and_the_verb_done_in_another(
    private_postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(private_postgres.url) as store:
        team, user = await create_team(store)
        frozen = await ask(private_postgres.url, _SESSIONS)
        with _stopped([pid for (pid,) in frozen]):
            monkeypatch.setattr("bullpen.stores.postgresql.wire.ANSWER_SECONDS", 0.5)
            async with asyncio.timeout(BOUND_SECONDS):
                assert (await store.create_task(user, "in another session")).id == 1
                assert [task.id for task in await store.list_tasks(team.id)] == [1]


async def test_sessions_that_rest_are_given_up_with_the_one_that_says_nothing(
    private_postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(private_postgres.url) as store:
        team, user = await create_team(store)
        async with await psycopg.AsyncConnection.connect(private_postgres.url) as holder:
            await holder.execute("SELECT * FROM team FOR UPDATE")
            creating = [asyncio.create_task(store.create_task(user, "x")) for _ in range(8)]
            async with asyncio.timeout(BOUND_SECONDS):
                while await ask(private_postgres.url, _THAT_WAIT) != [(8,)]:
                    continue
        await asyncio.gather(*creating)
        frozen = await ask(private_postgres.url, _SESSIONS)
        with _stopped([pid for (pid,) in frozen]):
            monkeypatch.setattr("bullpen.stores.postgresql.wire.ANSWER_SECONDS", 0.5)
            async with asyncio.timeout(BOUND_SECONDS):
                assert len(await store.list_tasks(team.id)) == 8
                assert (await store.create_task(user, "in another session")).id == 9


async def test_a_server_that_is_frozen_is_an_error_within_a_bound_and_nothing_is_lost(
    private_postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{private_postgres.url}&connect_timeout=2"
    async with open_store(url, patience_seconds=0.5) as store:
        team, user = await create_team(store)
        with _stopped(await _all_of(url)):
            monkeypatch.setattr("bullpen.stores.postgresql.wire.ANSWER_SECONDS", 0.5)
            async with asyncio.timeout(BOUND_SECONDS):
                with pytest.raises(StoreUnavailable):
                    await store.create_task(user, "x")
        assert (await store.create_task(user, "x")).id == 1
        assert [task.id for task in await store.list_tasks(team.id)] == [1]


_THAT_WAIT = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
_SESSIONS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


async def _all_of(url: str) -> list[int]:
    """The sessions of the server, and who lets in new ones."""
    rows = [*await ask(url, _SESSIONS), *await ask(url, "SELECT pg_read_file('postmaster.pid')")]
    return [int(str(row[0]).split()[0]) for row in rows]


@contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
