"""The tables appear with the first write, once, and never by looking."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from bullpen.domain.member import MemberRef
from bullpen.errors import NotFound, SchemaTooNew, StoreError, StoreUnavailable
from bullpen.store import BEGINNING
from bullpen.stores import open_store
from bullpen.stores.sql import migration
from tests.support.postgres import PrivateServer
from tests.support.processes import Crew, Line, release
from tests.support.stores import create_team, opened
from tests.unit.stores.postgres_server import BOUND_SECONDS, ask, backend_that_waits

TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
)


async def create_a_team(line: Line, url: str, name: str) -> None:
    async with opened(url) as store:
        await line.meet()
        team = await store.create_team(name)
        await line.say("created", id=team.id)


async def test_processes_that_open_an_empty_database_at_the_same_moment_all_succeed(
    postgres_url: str, crew: Crew
) -> None:
    children = [crew.start(create_a_team, url=postgres_url, name=f"team-{number}") for number in range(6)]
    await release(children)
    ids = {(await child.hear("created"))["id"] for child in children}
    assert len(ids) == 6
    assert await ask(postgres_url, "SELECT count(*) FROM schema_version") == [(1,)]


async def test_looking_creates_nothing_and_sees_an_empty_store(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        assert await store.list_teams() == []
        assert await store.find_team("crew") is None
        assert await store.list_events(1) == []
        with pytest.raises(NotFound):
            await store.get_task(1, 1)
        position = await store.last_position(1)
        assert await ask(postgres_url, TABLES) == []
        team, _ = await create_team(store)
        assert await store.list_events(team.id, after=position) == await store.list_events(team.id, after=BEGINNING)


async def test_who_follows_before_there_are_tables_sees_what_then_comes(postgres_url: str) -> None:
    async with opened(postgres_url) as store, opened(postgres_url) as other:
        following = aiter(store.follow_events(1))
        first = asyncio.ensure_future(anext(following))
        team = await other.create_team("crew")
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await first).team_id == team.id
        await following.aclose()  # type: ignore[attr-defined]


async def test_tables_lie_in_the_schema_that_the_url_names(postgres_url: str) -> None:
    await ask(postgres_url, "CREATE SCHEMA mine")
    async with opened(f"{postgres_url}&options=-csearch_path%3Dmine") as store, opened(postgres_url) as public:
        await create_team(store)
        assert await public.list_teams() == []
    assert await ask(
        postgres_url, "SELECT to_regclass('mine.task') IS NOT NULL, to_regclass('public.task') IS NULL"
    ) == [(True, True)]


async def test_a_schema_that_does_not_exist_is_named_as_the_reason(postgres_url: str) -> None:
    async with opened(f"{postgres_url}&options=-csearch_path%3Dnowhere") as store:
        assert await store.list_teams() == []
        with pytest.raises(StoreError, match="search_path"):
            await store.create_team("crew")


async def test_tables_of_somebody_else_are_left_alone(postgres_url: str) -> None:
    await ask(postgres_url, "CREATE TABLE task (mine text)")
    async with opened(postgres_url) as store:
        with pytest.raises(StoreError, match="somebody else"):
            await store.create_team("crew")
    assert await ask(postgres_url, TABLES) == [("task",)]


@pytest.mark.parametrize("rows", ["", "(NULL, NULL)", "('one', 'two')", "('1', '0'), ('1', '1')"])
async def test_a_version_of_somebody_else_is_left_alone(postgres_url: str, rows: str) -> None:
    await ask(postgres_url, "CREATE TABLE schema_version (major text, minor text)")
    if rows:
        await ask(postgres_url, f"INSERT INTO schema_version VALUES {rows}")
    for writes in (True, False):
        with pytest.raises(StoreError, match="somebody else"):
            async with opened(postgres_url) as store:
                await (store.create_team("crew") if writes else store.list_teams())
    assert await ask(postgres_url, TABLES) == [("schema_version",)]


async def test_a_database_that_cannot_keep_every_text_is_refused_at_once(private_postgres: PrivateServer) -> None:
    for name in ("latin1", "sql_ascii"):
        await ask(private_postgres.url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{name}'")
    async with opened(private_postgres.url.replace("/postgres?", "/latin1?")) as store:
        with pytest.raises(StoreError, match="LATIN1"):
            await store.create_team("crew")
    assert await ask(private_postgres.url.replace("/postgres?", "/latin1?"), TABLES) == []
    async with opened(private_postgres.url.replace("/postgres?", "/sql_ascii?")) as store:
        assert (await store.create_team("crew", goal="naïve 日本")).goal == "naïve 日本"


async def test_tables_get_what_they_lack_while_an_older_bullpen_goes_on_writing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        _, user = await create_team(store)
    await ask(
        postgres_url,
        "DROP TABLE submission; DROP INDEX member_by_waiting; ALTER TABLE member DROP COLUMN labels;"
        " ALTER TABLE task DROP COLUMN submission, DROP COLUMN files, DROP COLUMN commit;"
        " UPDATE schema_version SET minor = 1",
    )
    async with await psycopg.AsyncConnection.connect(postgres_url) as older:
        await older.execute("SET deadlock_timeout = '1h'")
        # A verb takes its member, then a task; the steps take the task's table, then the member's.
        await older.execute("SELECT 1 FROM member FOR SHARE")
        opening = asyncio.create_task(_create_task(postgres_url, user))
        await backend_that_waits(postgres_url)
        async with asyncio.timeout(BOUND_SECONDS):
            await older.execute("SELECT 1 FROM task")
            await older.commit()
            assert await opening == 1


async def _create_task(url: str, by: MemberRef) -> int:
    async with opened(url) as store:
        return (await store.create_task(by, "x")).id


async def test_a_newer_major_version_is_refused_and_a_newer_minor_one_is_not(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await create_team(store)
    await ask(postgres_url, "UPDATE schema_version SET minor = 99")
    async with opened(postgres_url) as store:
        assert len(await store.list_teams()) == 1
        await store.create_team("another")
    await ask(postgres_url, "UPDATE schema_version SET major = 99")
    with pytest.raises(SchemaTooNew, match=r"99\.99"):
        async with opened(postgres_url):
            pass


async def test_a_major_step_is_refused_while_an_older_worker_lives(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as store:
        await create_team(store)
        worker = await store.register_worker()
        monkeypatch.setattr(migration, "_files", lambda dialect: {(1, 0): "1.0_ground.sql", (2, 0): "2.0_next.sql"})
        async with open_store(postgres_url) as newer:
            with pytest.raises(StoreUnavailable, match=f"worker {worker.id} still runs an older Bullpen"):
                await newer.create_team("another")
