"""Two verbs that meet on PostgreSQL: neither undoes what the other has done, and nothing passes between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import psycopg
import pytest

from bullpen.domain.member import Member, MemberRef, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.submission import Work
from bullpen.domain.task import Task, TaskChanges, TaskStatus
from bullpen.store import Store
from bullpen.stores.postgresql.transaction import PostgresTransaction
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, backend_that_waits, backends_that_wait

Verb = Callable[[Store, Member], Coroutine[Any, Any, Any]]

WORK = Work(base="0" * 40, commit="a" * 40)

_LEAVE: Mapping[str, Verb] = {
    "leaves": lambda store, ana: store.shut_down_member(ana.ref),
    "rests": lambda store, ana: store.rest_member(ana.ref),
}


@pytest.mark.parametrize("leave", _LEAVE)
async def test_a_task_that_is_integrated_while_its_owner_leaves_stays_completed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        team, user = await create_team(store)
        host, integrator = await store.register_worker(slots=1), await other.register_worker(slots=1)
        await store.create_task(user, "x")
        await store.create_task(user, "next", blocked_by=[1])
        await store.spawn_member(user, "ana")
        ana = await store.host_member(host.id)
        assert ana is not None
        await store.claim_task(ana.ref, 1)
        await store.complete_task(ana.ref, 1, work=WORK)
        assert await other.take_submission(integrator.id) is not None
        find = PostgresTransaction.find_in_progress

        async def find_just_before(self: PostgresTransaction, team_id: int, owner_key: str) -> Task | None:
            found = await find(self, team_id, owner_key)
            await other.accept_submission(integrator.id, team.id, 1, "b" * 40)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(PostgresTransaction, "find_in_progress", find_just_before)
            await _LEAVE[leave](store, ana)
        task = await store.get_task(team.id, 1)
        assert (task.status, task.owner, task.reserved_until) == (TaskStatus.COMPLETED, "ana", None)
        assert (await store.get_task(team.id, 2)).open_blockers == 0


async def test_a_task_that_is_left_to_who_is_up_is_not_left_alone_when_that_one_leaves_meanwhile(
    postgres_url: str,
) -> None:
    """Who returns it sees ben at work and brings nobody back for it; ben, who leaves, must not look too early."""
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        host = await store.register_worker(slots=1)
        await store.spawn_member(user, "cat")
        cat = await store.host_member(host.id)
        assert cat is not None
        await store.shut_down_member(cat.ref, reason="timeout")
        ana, ben = [await join(store, team.id, name) for name in ("ana", "ben")]
        await store.create_task(user, "x")
        await store.claim_task(ana.ref, 1)
        # What comes last in the verb, after the task was offered, is to tell the lead.
        await other.execute("SELECT * FROM member WHERE name_key = 'lead' FOR UPDATE")
        assert ana.worker_id is not None
        lapsing = asyncio.create_task(store.lapse_worker(ana.worker_id, renewals_seen=None))
        await backend_that_waits(postgres_url)
        leaving = asyncio.create_task(store.shut_down_member(ben.ref))
        await backends_that_wait(postgres_url, 2, unless=leaving.done)
        await other.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            await asyncio.gather(lapsing, leaving)
        assert (await store.get_member(team.id, "cat")).status is MemberStatus.WANTED


_AWAY_FROM_ITS_OWNER: Mapping[str, Callable[[Store, MemberRef], Coroutine[Any, Any, Any]]] = {
    "complete": lambda store, user: store.complete_task(user, 1),
    "hand in": lambda store, user: store.complete_task(user, 1, work=WORK),
    "fail": lambda store, user: store.fail_task(user, 1),
    "release": lambda store, user: store.release_task(user, 1),
    "delete": lambda store, user: store.delete_task(user, 1),
    "give away": lambda store, user: store.update_task(user, 1, TaskChanges(owner="lead")),
    "take back": lambda store, user: store.update_task(user, 1, TaskChanges(owner=None)),
}


@pytest.mark.parametrize("verb", _AWAY_FROM_ITS_OWNER)
async def test_who_takes_a_task_away_holds_its_owner_first(postgres_url: str, verb: str) -> None:
    """Else one who leaves, which holds itself and then its task, and who does that wait for each other."""
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x")
        await store.claim_task(ana, 1)
        await other.execute("SELECT * FROM member WHERE name_key = 'ana' FOR UPDATE")
        ending = asyncio.create_task(_AWAY_FROM_ITS_OWNER[verb](store, user))
        await backend_that_waits(postgres_url)
        await other.execute("SELECT * FROM task FOR UPDATE NOWAIT")
        await other.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            await ending
        assert "stop working on it" in (await store.list_mail(team.id, "ana"))[-1].content


async def test_who_refuses_work_on_a_task_holds_its_owner_first(postgres_url: str) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        worker = await store.register_worker(slots=1)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x")
        await store.claim_task(ana, 1)
        await store.complete_task(ana, 1, work=WORK)
        assert await store.take_submission(worker.id) is not None
        await other.execute("SELECT * FROM member WHERE name_key = 'ana' FOR UPDATE")
        refusing = asyncio.create_task(store.refuse_submission(worker.id, team.id, 1, "it does not build"))
        await backend_that_waits(postgres_url)
        await other.execute("SELECT * FROM task FOR UPDATE NOWAIT")
        await other.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await refusing).note == "it does not build"


async def test_who_gives_a_task_to_somebody_holds_that_one_first(postgres_url: str) -> None:
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        await join(store, team.id, "ana")
        await store.create_task(user, "x")
        await other.execute("SELECT * FROM member WHERE name_key = 'ana' FOR UPDATE")
        giving = asyncio.create_task(store.update_task(user, 1, TaskChanges(owner="ana")))
        await backend_that_waits(postgres_url)
        await other.execute("SELECT * FROM task FOR UPDATE NOWAIT")
        await other.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await giving).owner == "ana"


async def test_who_sends_to_everybody_holds_nobody_while_it_waits_for_one_whom_that_brings_back(
    postgres_url: str,
) -> None:
    """Else they wait for each other: whoever brings that one back too then tells the lead."""
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as other:
        team, user = await create_team(store)
        host = await store.register_worker(slots=1)
        await store.spawn_member(user, "cat")
        cat = await store.host_member(host.id)
        assert cat is not None
        await join(store, team.id, "ana")
        await store.shut_down_member(cat.ref, reason="timeout")
        # As who is about to send to it.
        await other.execute("SELECT * FROM member WHERE name_key = 'cat' FOR SHARE")
        sending = asyncio.create_task(store.send(user, None, "to all", type=MessageType.BROADCAST))
        await backend_that_waits(postgres_url)
        await other.execute("SELECT * FROM member WHERE name_key IN ('ana', 'lead') FOR UPDATE NOWAIT")
        await other.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert [receipt.outcome for receipt in await sending].count("revives") == 1
