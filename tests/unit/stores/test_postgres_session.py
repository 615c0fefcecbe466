"""What a server, a database or a URL says by default changes nothing of what is stored and read back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

from bullpen.clock import SystemClock
from bullpen.stores import open_store
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits

TEXT = "naïve ß ﬁ \N{LATIN SMALL LETTER DOTLESS I} \N{PILE OF POO} \\x41 '%s'"
COST = 0.1234567890123456


async def _is_kept(url: str) -> None:
    async with open_store(url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        created = await store.create_task(user, TEXT)
        await store.reserve(ana, purpose="work", provider_key="key", model="model", tokens=1, cost_usd=COST)
    async with open_store(url) as again:
        assert await again.get_task(team.id, created.id) == created
        accounts = await again.list_accounts(team.id)
        assert [account.open_cost_usd for account in accounts] == [COST, COST]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DateStyle", "SQL, DMY"),
        ("DateStyle", "German"),
        ("IntervalStyle", "iso_8601"),
        ("TimeZone", "Asia/Kathmandu"),
        ("extra_float_digits", "-15"),
        ("client_encoding", "LATIN1"),
        ("standard_conforming_strings", "off"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"),
        ("idle_session_timeout", "50ms"),
    ],
)
async def test_what_a_database_sets_for_its_sessions_changes_nothing(postgres_url: str, name: str, value: str) -> None:
    [(database,)] = await ask(postgres_url, "SELECT current_database()")
    parts = sql.Identifier(database), sql.SQL(name), sql.Literal(value)
    await ask(postgres_url, sql.SQL("ALTER DATABASE {} SET {} = {}").format(*parts))
    await _is_kept(postgres_url)


@pytest.mark.parametrize("setting", ["statement_timeout", "transaction_timeout"])
async def test_a_time_that_a_database_sets_for_what_it_does_ends_no_verb_that_waits(
    postgres_url: str, setting: str
) -> None:
    if not await ask(postgres_url, "SELECT 1 FROM pg_settings WHERE name = %s", [setting]):
        pytest.skip(f"this server has no {setting}")
    [(database,)] = await ask(postgres_url, "SELECT current_database()")
    set_it = sql.SQL("ALTER DATABASE {} SET {} = '300ms'")
    await ask(postgres_url, set_it.format(sql.Identifier(database), sql.Identifier(setting)))
    longer = (
        "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND clock_timestamp() - query_start > interval '0.6 seconds'"
    )
    async with opened(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as holder:
        _, user = await create_team(store)
        await holder.execute(sql.SQL("SET {} = 0").format(sql.Identifier(setting)))
        await holder.execute("SELECT * FROM team FOR UPDATE")
        creating = asyncio.create_task(store.create_task(user, "x"))
        waiting = await backend_that_waits(postgres_url)
        async with asyncio.timeout(BOUND_SECONDS):
            while not (creating.done() or await ask(postgres_url, longer, [waiting])):
                continue
            await holder.rollback()
            assert (await creating).id == 1


@pytest.mark.parametrize("setting", ["client_encoding=LATIN1", "options=-c%20DateStyle%3DSQL"])
async def test_what_a_url_sets_for_its_sessions_changes_nothing(postgres_url: str, setting: str) -> None:
    await _is_kept(f"{postgres_url}&{setting}")


async def test_what_the_environment_sets_changes_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGDATESTYLE", "Postgres, DMY")
    await _is_kept(postgres_url)


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_clock_that_is_set_anew_while_a_store_is_open_changes_no_time_that_is_stored(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    async with open_store(postgres_url) as store:
        _, user = await create_team(store)
        monkeypatch.setattr(SystemClock, "now", lambda clock: datetime.now(UTC) + timedelta(hours=hours))
        for _ in range(2):
            task = await store.create_task(user, "x")
            assert abs(task.created_at - datetime.now(UTC)) < timedelta(hours=1)
