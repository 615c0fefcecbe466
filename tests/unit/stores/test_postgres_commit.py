"""A connection that is lost costs nothing and doubles nothing, whenever it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import psycopg
import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef
from bullpen.domain.request import RequestKind
from bullpen.errors import StoreUnavailable
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.stores.postgresql.commit import Fate, fate_of
from bullpen.stores.postgresql.connection import connect, parse_url
from bullpen.stores.postgresql.wire import Statement, Wire
from tests.support.postgres_proxy import Cut, proxied
from tests.support.stores import all_events, create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits

Verb = Callable[[Store, MemberRef], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("operation_id", [None, "op-1"])
async def test_a_connection_lost_during_commit_neither_loses_nor_doubles_the_verb(
    postgres_url: str, cut: Cut, operation_id: str | None
) -> None:
    async with proxied(postgres_url) as proxy, opened(proxy.url) as store:
        team, user = await create_team(store)
        proxy.next_cut = cut
        task = await store.create_task(user, "once", operation_id=operation_id)
        assert proxy.cuts == 1
        assert [found.id for found in await store.list_tasks(team.id)] == [task.id]
        created = [event for event in await all_events(store, team.id) if event.kind == EventKind.TASK_CREATED]
        assert [event.data["task"] for event in created] == [task.id]


async def test_who_waits_in_this_process_is_rung_though_the_answer_to_commit_was_lost(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy, opened(proxy.url) as store:
        team, user = await create_team(store)
        async with store.listen_events(team.id) as bell:
            bell.clear()
            proxy.next_cut = Cut.AFTER
            await store.create_task(user, "x")
            assert await bell.wait(BOUND_SECONDS)


async def test_a_verb_whose_fate_cannot_be_found_out_says_so(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy, open_store(proxy.url, patience_seconds=0.3) as store:
        team, user = await create_team(store)
        proxy.refuses = True
        proxy.next_cut = Cut.AFTER
        with pytest.raises(StoreUnavailable, match="look before you repeat"):
            await store.create_task(user, "perhaps")
        proxy.refuses = False
        assert len(await store.list_tasks(team.id)) == 1


async def test_a_verb_whose_connection_is_killed_before_commit_is_run_again(postgres_url: str) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as holder:
        team, user = await create_team(store)
        await holder.execute("SELECT * FROM team FOR UPDATE")
        creating = asyncio.create_task(store.create_task(user, "again"))
        victim = await backend_that_waits(postgres_url)
        await ask(postgres_url, "SELECT pg_terminate_backend(%s)", [victim])
        await holder.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await creating).id == 1
        assert len(await store.list_tasks(team.id)) == 1


async def test_a_deadlock_is_run_again(postgres_url: str) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        for subject in ("one", "two"):
            await store.create_task(user, subject)
        await other.execute("SET deadlock_timeout = '1h'")
        await other.execute("SELECT * FROM member WHERE name_key = 'user' FOR UPDATE")
        # The verb holds the team and waits for its member; we hold the member and wait for the team.
        creating = asyncio.create_task(store.create_task(user, "three"))
        await backend_that_waits(postgres_url)
        async with asyncio.timeout(BOUND_SECONDS):
            await other.execute("UPDATE team SET goal = 'g'")
            await other.commit()
            assert (await creating).id == 3
        assert (await store.get_team(team.id)).goal == "g"


@pytest.mark.parametrize("kind", [RequestKind.PLAN, RequestKind.SHUTDOWN])
async def test_who_asks_holds_nobody_while_it_waits_for_the_team(postgres_url: str, kind: RequestKind) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as creator:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        # As who creates a task: the team, then its members.
        await creator.execute("UPDATE team SET next_task_id = next_task_id + 1")
        asker, asked = (ana, "user") if kind is RequestKind.PLAN else (user, "ana")
        asking = asyncio.create_task(store.open_request(asker, kind, asked, content="this is why"))
        await backend_that_waits(postgres_url)
        await creator.execute("SELECT * FROM member WHERE name_key IN ('ana', 'user') FOR SHARE NOWAIT")
        await creator.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await asking).id == 1


_OF_THE_TEAM: Mapping[str, Verb] = {
    "spawn": lambda store, user: store.spawn_member(user, "ana"),
    "change": lambda store, user: store.change_team(user, goal="another"),
    "delete": lambda store, user: store.delete_team(user),
}


@pytest.mark.parametrize("verb", _OF_THE_TEAM)
async def test_who_changes_a_team_holds_nobody_while_it_waits_for_it(postgres_url: str, verb: str) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as creator:
        _, user = await create_team(store)
        # As who creates a task: the team, then its members.
        await creator.execute("UPDATE team SET next_task_id = next_task_id + 1")
        changing = asyncio.create_task(_OF_THE_TEAM[verb](store, user))
        await backend_that_waits(postgres_url)
        await creator.execute("SELECT * FROM member FOR UPDATE NOWAIT")
        await creator.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            await changing


_ENDS: Mapping[str, tuple[RequestKind, Verb]] = {
    "answer": (RequestKind.PLAN, lambda store, lead: store.answer_request(lead, 1, approve=True)),
    "cancel": (RequestKind.SHUTDOWN, lambda store, lead: store.cancel_request(lead, 1)),
    "expire a plan": (RequestKind.PLAN, lambda store, lead: store.expire_requests()),
    "expire a shutdown": (RequestKind.SHUTDOWN, lambda store, lead: store.expire_requests()),
    "delete": (RequestKind.SHUTDOWN, lambda store, lead: store.delete_team(lead)),
}


@pytest.mark.parametrize("verb", _ENDS)
async def test_who_ends_a_request_holds_it_after_its_members(postgres_url: str, verb: str) -> None:
    """Else who answers it holds one of them, and they wait for each other."""
    kind, end = _ENDS[verb]
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, _ = await create_team(store)
        lead = (await store.get_member(team.id, "lead")).ref
        ana = (await join(store, team.id, "ana")).ref
        asker, asked = (ana, "lead") if kind is RequestKind.PLAN else (lead, "ana")
        await store.open_request(asker, kind, asked, content="this is why", timeout_seconds=0)
        # As whose phase ends: alone on itself, then a message to the lead.
        await other.execute("SELECT * FROM member WHERE name_key = 'ana' FOR UPDATE")
        ending = asyncio.create_task(end(store, lead))
        await backend_that_waits(postgres_url)
        await other.execute("SELECT * FROM member WHERE name_key = 'lead' FOR SHARE NOWAIT")
        await other.execute("SELECT * FROM request FOR UPDATE NOWAIT")
        await other.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            await ending


async def test_a_plan_is_handed_in_while_the_lead_deals_with_its_author(postgres_url: str) -> None:
    """Who spawns, wakes or asks holds itself and then another: it must not be wanted alone by that one."""
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, _ = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await other.execute("SELECT * FROM member WHERE name_key = 'lead' FOR SHARE")
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await store.open_request(ana, RequestKind.PLAN, "lead", content="this is how")).id == 1


async def test_the_same_operation_sent_twice_at_once_happens_once(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        team, user = await create_team(one)
        sent = await asyncio.gather(
            *(store.send(user, "lead", "hello", operation_id="same") for store in (one, two) for _ in range(8))
        )
        assert len({receipts[0].message.id for receipts in sent}) == 1
        assert len(await one.list_mail(team.id, "lead")) == 1


async def test_an_id_that_a_crashed_server_gave_out_again_is_not_taken_for_ours(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await create_team(store)
    [(another,)] = await ask(postgres_url, "SELECT pg_current_xact_id()::text")
    [(beyond,)] = await ask(postgres_url, "SELECT (pg_current_xact_id()::text::bigint + 1000000)::text")
    ours = Statement("SELECT 1 FROM event WHERE kind = :kind", {"kind": "TaskCreated"})

    async def connected() -> Wire:
        return (await connect(parse_url(postgres_url)))[0]

    async def fate(transaction_id: str, trace: Statement | None) -> Fate:
        return await fate_of(transaction_id, trace, connected, patience_seconds=BOUND_SECONDS)

    assert await fate(another, None) is Fate.COMMITTED
    assert await fate(another, ours) is Fate.ABORTED, "committed, but not by us: our event is not there"
    assert await fate(beyond, ours) is Fate.ABORTED
    assert await fate(beyond, None) is Fate.ABORTED
