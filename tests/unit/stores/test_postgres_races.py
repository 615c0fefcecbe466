"""Two verbs that meet on PostgreSQL: neither undoes what the other has done, and nothing passes between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psycopg
import pytest

from bullpen.domain.member import Member, MemberStatus
from bullpen.domain.submission import Work
from bullpen.domain.task import Task, TaskStatus
from bullpen.store import Store
from bullpen.stores.postgresql.transaction import PostgresTransaction
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, backend_that_waits, backends_that_wait

Verb = Callable[[Store, Member], Awaitable[Any]]

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
