"""A claim on PostgreSQL: three round trips, by partial indexes whatever the board holds, and nobody sleeps for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from bullpen.domain.member import MemberStatus
from bullpen.errors import AlreadyClaimed
from bullpen.stores.postgresql.connection import _SESSION
from bullpen.stores.postgresql.transaction import DIALECT
from bullpen.stores.postgresql.wire import Wire, _compiled
from bullpen.stores.sql import statements
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits


@asynccontextmanager
async def about_to_offer(url: str, team_id: int) -> AsyncIterator[psycopg.AsyncConnection]:
    """A writer that has made all tasks of the team claimable, and has not committed."""
    async with await psycopg.AsyncConnection.connect(url) as writer:
        await writer.execute("UPDATE task SET owner = NULL, owner_key = NULL")
        await writer.execute("SELECT pg_advisory_xact_lock_shared(hashtext('bullpen offer'), hashint8(%s))", [team_id])
        yield writer


async def test_a_claim_takes_three_round_trips(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana", role="backend")).ref
        await store.create_task(user, "x")
        trips = 0
        run = Wire.run

        async def counted(self: Wire, *args: object, **kwargs: object) -> object:
            nonlocal trips
            trips += 1
            return await run(self, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(Wire, "run", counted)
        assert await store.claim_next_task(ana)
        assert trips == 3


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_a_claim_reads_the_partial_indexes_alone(postgres_url: str, is_analyzed: bool) -> None:
    async with opened(postgres_url) as store:
        team, _ = await create_team(store)
        await join(store, team.id, "m", role="r")
    text, names = _compiled(DIALECT.named(statements.CLAIM_NEXT_POSTGRES))
    values = {"name": "'m'", "name_key": "'m'", "now": "now()", "team_id": "1", "role_key": "'r'"}
    explain = f"EXPLAIN (ANALYZE, COSTS OFF) EXECUTE claim ({', '.join(values[name] for name in names)})"
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute(_SESSION)
        # Planned while the table is empty: that plan is kept until the table is analyzed.
        await connection.execute(b"PREPARE claim AS " + text)
        await connection.execute(explain.encode())
        await connection.execute(
            "INSERT INTO task SELECT 1, g, '', '', '', 'pending', NULL, NULL, NULL, '', NULL, NULL, NULL, 0, false,"
            " (g <= 9900)::int, 'user', now(), now(), NULL, NULL, NULL, '[]', '{}' FROM generate_series(1, 10000) AS g"
        )
        if is_analyzed:
            await connection.execute("ANALYZE task")
        plan = [line for (line,) in await (await connection.execute(explain.encode())).fetchall()]
    assert await ask(postgres_url, "SELECT id FROM task WHERE status = 'in_progress'") == [(9901,)]
    assert not [line for line in plan if "Seq Scan" in line or "Rows Removed" in line]
    assert len([line for line in plan if "task_claimable" in line]) == 6


async def test_a_task_that_is_held_only_to_be_looked_at_is_waited_for_before_nothing_is_answered(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x")
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM task FOR SHARE")
            claiming = asyncio.create_task(store.claim_next_task(ana, operation_id="claim"))
            await backend_that_waits(postgres_url)
            await holder.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            claimed = await claiming
        assert claimed is not None
        assert await store.claim_next_task(ana, operation_id="claim") == claimed


async def test_a_wanted_member_that_is_held_only_to_be_looked_at_is_waited_for(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, user = await create_team(store)
        worker = await store.register_worker(slots=1)
        await store.spawn_member(user, "ben")
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM member FOR SHARE")
            hosting = asyncio.create_task(store.host_member(worker.id))
            await backend_that_waits(postgres_url)
            await holder.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await hosting is not None


async def test_who_is_just_making_a_task_claimable_is_waited_for_before_nothing_is_answered(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x", owner="user")
        async with about_to_offer(postgres_url, team.id) as writer:
            claiming = asyncio.create_task(store.claim_next_task(ana))
            await backend_that_waits(postgres_url)
            await writer.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await claiming is not None


async def test_a_session_that_is_ended_while_it_waits_for_others_is_no_answer(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x")
        async with await psycopg.AsyncConnection.connect(postgres_url) as holder:
            await holder.execute("SELECT * FROM task FOR SHARE")
            claiming = asyncio.create_task(store.claim_next_task(ana))
            victim = await backend_that_waits(postgres_url)
            await ask(postgres_url, "SELECT pg_terminate_backend(%s)", [victim])
            async with asyncio.timeout(BOUND_SECONDS):
                while not claiming.done() and await backend_that_waits(postgres_url) == victim:
                    continue
            await holder.rollback()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await claiming is not None


async def test_who_is_just_making_a_task_claimable_is_waited_for_before_an_idle_one_finds_no_work(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.create_task(user, "x", owner="user")
        async with about_to_offer(postgres_url, team.id) as writer:
            # The writer has seen her at work: it will ring for nobody.
            await store.set_member_status(ana, MemberStatus.IDLE)
            looking = asyncio.create_task(store.find_work(ana))
            await backend_that_waits(postgres_url)
            await writer.commit()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await looking == "task"


async def test_the_index_that_allows_one_task_in_progress_is_the_last_word(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        for _ in range(2):
            await store.create_task(user, "x")
        await store.claim_next_task(ana)
        # Behind the store's back: it looks free, and is not.
        await ask(
            postgres_url,
            "CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
            " IF NEW.id = 2 THEN NEW.status = 'in_progress'; NEW.owner = 'ana'; NEW.owner_key = 'ana'; END IF;"
            " RETURN NEW; END$$; CREATE TRIGGER steal BEFORE UPDATE ON task FOR EACH ROW EXECUTE FUNCTION steal()",
        )
        with pytest.raises(AlreadyClaimed):
            await store.fail_task(user, 2, reason="x")
