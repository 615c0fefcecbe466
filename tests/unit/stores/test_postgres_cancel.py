"""A caller that is cancelled leaves a whole verb or none, and a connection that the next one can use."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from bullpen.domain.event import EventKind
from tests.support.stores import all_events, create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits


async def test_a_verb_cancelled_while_it_waits_for_a_lock_is_undone(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=1) as store:
        team, user = await create_team(store)
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM member WHERE name_key = 'user' FOR UPDATE")
            creating = asyncio.create_task(store.create_task(user, "x"))
            await backend_that_waits(postgres_url)
            creating.cancel()
            await holder.rollback()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert await store.list_tasks(team.id) == []
        assert (await store.create_task(user, "the number was given back")).id == 1


async def test_a_verb_that_is_cancelled_and_gets_no_answer_is_given_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.stores.postgresql.wire.GRACE_SECONDS", 0.05)
    async with opened(postgres_url, pool_size=1) as store:
        team, user = await create_team(store)
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM member WHERE name_key = 'user' FOR UPDATE")
            creating = asyncio.create_task(store.create_task(user, "x"))
            await backend_that_waits(postgres_url)
            creating.cancel()
            async with asyncio.timeout(BOUND_SECONDS):
                with pytest.raises(asyncio.CancelledError):
                    await creating
                assert await store.list_tasks(team.id) == []


async def test_verbs_cancelled_at_any_moment_are_whole_or_nothing(postgres_url: str) -> None:
    """Each is cancelled after a different number of steps of the loop."""
    async with opened(postgres_url, pool_size=2) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        done = 0
        for steps in range(60):
            sending = asyncio.create_task(store.send(user, "ana", f"letter {steps}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            sending.cancel()
            done += not isinstance((await asyncio.gather(sending, return_exceptions=True))[0], BaseException)
        letters = await store.list_mail(team.id, "ana", limit=100)
        events = [event for event in await all_events(store, team.id) if event.kind == EventKind.MESSAGE_SENT]
        assert [event.data["message"] for event in events] == [letter.id for letter in letters]
        assert len(letters) >= done
        taken = await store.take_mail(ana)
        assert (taken is None) == (not letters)
        idle_in = await ask(
            postgres_url,
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()",
        )
        assert idle_in == [(0,)]


async def test_who_waits_is_rung_for_a_verb_whose_caller_was_cancelled_during_commit(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        async with store.listen_events(team.id) as bell:
            for steps in range(40):
                bell.clear()
                before = len(await store.list_mail(team.id, "lead"))
                sending = asyncio.create_task(store.send(user, "lead", "x"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait([sending])
                if len(await store.list_mail(team.id, "lead")) > before:
                    assert await bell.wait(BOUND_SECONDS)
