"""What can be wrong with a server is said in one line, of the right kind, and is over when the cause is."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from bullpen.domain.member import Member, MemberRef, MemberStatus
from bullpen.errors import BullpenError, StoreError, StoreUnavailable, UsageError
from bullpen.store import Store
from bullpen.stores import open_store, shown
from tests.support.postgres import PrivateServer
from tests.support.processes import BOUND_SECONDS
from tests.support.stores import create_team, join, opened
from tests.unit.stores.postgres_server import ask

SECRET = "s3cr3t%20w0rd"


async def _failure(url: str) -> BullpenError:
    with pytest.raises(BullpenError) as caught:
        async with open_store(url, patience_seconds=0.2) as store:
            await store.create_team("crew")
    message = str(caught.value)
    assert "\n" not in message
    assert "s3cr3t" not in message
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@db.example.org:5433/bullpen?sslmode=verify-full",
        f"postgres://me@db.example.org:5433/bullpen?password={SECRET}",
    ],
)
def test_a_store_is_named_without_its_password(url: str) -> None:
    assert shown(url) == "postgresql://me@db.example.org:5433/bullpen"


@pytest.mark.parametrize(
    "url",
    [
        f"host=db.example.org user=me password={SECRET} dbname=bullpen",
        "host=db.example.org password = 's3cr3t \\' s3cr3t' dbname=bullpen",
        f"POSTGRESQL://db.example.org/bullpen?user=me&password={SECRET}@",
        f" postgresql://me:{SECRET}@db.example.org/bullpen?sslpassword={SECRET}",
    ],
)
async def test_what_is_no_url_of_a_store_is_repeated_without_its_password(url: str) -> None:
    error = await _failure(url)
    assert isinstance(error, UsageError)
    assert "db.example.org" in str(error)
    assert "bullpen" in str(error)


async def test_nobody_listens_there() -> None:
    error = await _failure(f"postgresql://me:{SECRET}@127.0.0.1:1/bullpen")
    assert isinstance(error, StoreUnavailable)
    assert "me@127.0.0.1:1/bullpen" in str(error)
    assert "refused" in str(error)


async def test_what_the_environment_says_is_named_where_the_url_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGHOST": "127.0.0.2", "PGPORT": "1", "PGUSER": "me", "PGDATABASE": "bullpen"}.items():
        monkeypatch.setenv(name, value)
    assert "me@127.0.0.2:1/bullpen " in str(await _failure("postgresql://"))
    assert "you@127.0.0.3:2/theirs " in str(await _failure("postgresql://you@127.0.0.3:2/theirs"))
    services = tmp_path / "services"
    services.write_text("[mine]\nhost=127.0.0.4\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    assert "me@service mine:1/bullpen " in str(await _failure("postgresql:///?service=mine"))


async def test_there_is_no_socket(tmp_path: Path) -> None:
    error = await _failure(f"postgresql://me:{SECRET}@/bullpen?host={tmp_path}")
    assert isinstance(error, StoreUnavailable)
    assert "No such file" in str(error)


async def test_there_is_no_such_host() -> None:
    assert isinstance(await _failure(f"postgresql://me:{SECRET}@nowhere.invalid/bullpen"), StoreUnavailable)


async def test_there_is_no_such_database(postgres_url: str) -> None:
    error = await _failure(urlsplit(postgres_url)._replace(path="/missing").geturl())
    assert isinstance(error, StoreUnavailable)
    assert str(error).endswith('database "missing" does not exist')


async def test_the_password_is_wrong(private_postgres: PrivateServer) -> None:
    access = private_postgres.data / "pg_hba.conf"
    await ask(private_postgres.url, "CREATE ROLE me LOGIN PASSWORD 'right'")
    access.write_text(f"local all me scram-sha-256\n{access.read_text()}")
    await ask(private_postgres.url, "SELECT pg_reload_conf()")
    url = private_postgres.url.replace("postgres@", f"me:{SECRET}@")
    error = await _failure(url)
    assert isinstance(error, StoreUnavailable)
    assert "password authentication failed" in str(error)


async def _begin(url: str) -> None:
    async with open_store(url, patience_seconds=BOUND_SECONDS) as store:
        await create_team(store)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@s3cr3t@h/d",
        "postgresql://u:s3cr3t%zz@h/d",
        "postgresql://h/d?s3cr3t=1",
        "postgresql://u:s3cr3t/x@127.0.0.1/d",
        "postgresql://u:1/s3cr3t@127.0.0.1/d",
        "postgresql://u:s3cr3t/x?y@127.0.0.1/d",
        "postgresql://u:s3cr3t@127.0.0.1:99999/d",
        "postgresql://u:s3cr3t@127.0.0.1/d\udcff",
    ],
)
async def test_a_url_that_makes_no_sense_is_not_repeated(url: str) -> None:
    assert isinstance(await _failure(url), UsageError)


async def test_a_server_without_a_free_connection_is_used_when_one_is_free(private_postgres: PrivateServer) -> None:
    await ask(private_postgres.url, "ALTER SYSTEM SET max_connections = 12")
    await asyncio.to_thread(private_postgres.stop)
    await asyncio.to_thread(private_postgres.start)
    others = []
    with suppress(psycopg.OperationalError):
        while True:
            others.append(await psycopg.AsyncConnection.connect(private_postgres.url))
    error = await _failure(private_postgres.url)
    assert isinstance(error, StoreUnavailable)
    assert "too many clients" in str(error)
    # Whoever opens it meanwhile waits for a connection, as verbs do.
    opening = asyncio.create_task(_begin(private_postgres.url))
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError):
            await psycopg.AsyncConnection.connect(private_postgres.url)
    for other in others:
        await other.close()
    await opening


async def make_role(server: PrivateServer, *, connections: int) -> str:
    """The URL of one who may have only so many."""
    await ask(server.url, f"CREATE ROLE me LOGIN CONNECTION LIMIT {connections}")
    await ask(server.url, "GRANT CREATE ON SCHEMA public TO me")
    return server.url.replace("postgres@", "me@")


async def write_many(store: Store, user: MemberRef) -> None:
    await asyncio.gather(*(store.send(user, "lead", str(number)) for number in range(50)))


async def write_until_life_is_proved(store: Store, user: MemberRef, member: Member) -> None:
    assert member.worker_id is not None
    await write_many(store, user)
    while not store.proves_life(member.worker_id):
        await write_many(store, user)


async def test_verbs_leave_a_connection_to_what_wakes_and_proves_life(private_postgres: PrivateServer) -> None:
    url = await make_role(private_postgres, connections=3)
    async with asyncio.timeout(BOUND_SECONDS), opened(url) as store:
        team, user = await create_team(store)
        await write_many(store, user)
        ana = await join(store, team.id, "ana")
        await ask(private_postgres.url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'me'")
        await write_until_life_is_proved(store, user, ana)


async def test_the_room_that_verbs_make_for_it_is_not_taken_by_others_of_them(private_postgres: PrivateServer) -> None:
    url = await make_role(private_postgres, connections=3)
    async with asyncio.timeout(BOUND_SECONDS), opened(url) as store:
        team, user = await create_team(store)
        ana = await join(store, team.id, "ana")
        await write_many(store, user)
        await ask(private_postgres.url, "ALTER ROLE me CONNECTION LIMIT 2")
        # The verbs have two, which are all that there may be from here on.
        await ask(
            private_postgres.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE usename = 'me' AND query NOT IN ('COMMIT', 'ROLLBACK')",
        )
        await write_until_life_is_proved(store, user, ana)


async def test_those_who_all_bring_the_same_member_back_do_so_in_turn(private_postgres: PrivateServer) -> None:
    """Each shares it and then wants it alone: whoever was undone for that asks for it alone at once."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(BOUND_SECONDS), opened(private_postgres.url) as store:
        _, user = await create_team(store)
        await store.spawn_member(user, "ana")
        worker = await store.register_worker(slots=1)
        ana = await store.host_member(worker.id)
        assert ana is not None
        await store.take_mail(ana.ref)
        await store.set_member_status(ana.ref, MemberStatus.IDLE)
        assert await store.leave_if_nothing(ana.ref) is None
        async with await psycopg.AsyncConnection.connect(private_postgres.url) as other:
            await other.execute("SELECT 1 FROM member WHERE name = 'ana' FOR SHARE")
            sending = [asyncio.create_task(store.send(user, "ana", str(number))) for number in range(5)]
            while await ask(private_postgres.url, waiting) != [(5,)]:
                assert not any(task.done() for task in sending)
        outcomes = [receipt.outcome for receipts in await asyncio.gather(*sending) for receipt in receipts]
    assert sorted(outcomes) == ["queued"] * 4 + ["revives"]


async def test_fewer_connections_than_verbs_are_enough(postgres_url: str) -> None:
    async with opened(postgres_url, pool_size=2) as store:
        team, user = await create_team(store)
        await write_many(store, user)
        assert len(await store.list_mail(team.id, "lead")) == 50


async def test_a_read_only_server_can_be_read(private_postgres: PrivateServer) -> None:
    async with open_store(private_postgres.url) as store:
        team, user = await create_team(store)
        await ask(private_postgres.url, "ALTER SYSTEM SET default_transaction_read_only = on")
        await ask(private_postgres.url, "SELECT pg_reload_conf()")
        async with open_store(private_postgres.url) as other:
            with pytest.raises(StoreUnavailable, match="read-only"):
                await other.create_task(user, "x")
            assert await other.list_tasks(team.id) == []
            async with other.listen_events(team.id):
                pass


async def test_a_standby_can_be_read(private_postgres: PrivateServer) -> None:
    async with open_store(private_postgres.url) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        await store.send(ana, "user", "hello")
    await asyncio.to_thread(private_postgres.stop)
    (private_postgres.data / "standby.signal").touch()
    await asyncio.to_thread(private_postgres.start)
    async with open_store(private_postgres.url) as standby:
        with pytest.raises(StoreUnavailable, match="read-only"):
            await standby.create_task(user, "x")
        assert [message.content for message in await standby.list_offered_mail(user)] == ["hello"]
        assert (await standby.attend(user)).has_mail
        assert await standby.find_work(user) == "mail"
        assert not await standby.has_prospects(user)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [("53100", StoreUnavailable, "disk"), ("42501", StoreError, "does not allow"), ("XX000", StoreError, "refused")],
)
async def test_a_statement_that_fails_leaves_nothing_and_the_store_usable(
    postgres_url: str, code: str, kind: type[BullpenError], words: str
) -> None:
    async with opened(postgres_url) as store:
        team, user = await create_team(store)
        await ask(
            postgres_url,
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN RAISE 'could not extend file' USING ERRCODE = '{code}'; END$$;"
            f" CREATE TRIGGER fail BEFORE INSERT ON event EXECUTE FUNCTION fail()".encode(),
        )
        with pytest.raises(kind, match=words):
            await store.create_task(user, "x")
        assert await store.list_tasks(team.id) == []
        await ask(postgres_url, "DROP TRIGGER fail ON event")
        assert (await store.create_task(user, "x")).id == 1


async def test_nothing_is_said_on_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    await _failure(f"postgresql://me:{SECRET}@/bullpen?host={tmp_path}")
    logging.getLogger("psycopg").warning("said by psycopg")
    assert capfd.readouterr() == ("", "")


def test_psycopg_is_imported_for_this_store_alone() -> None:
    modules = "sys, bullpen.stores, bullpen.stores.sqlite, bullpen.stores.sql.transaction"
    code = f"import {modules}; print('psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
