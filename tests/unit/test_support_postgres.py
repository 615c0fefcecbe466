"""The PostgreSQL fixtures keep what the store tests build on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import PrivateServer, create_database, drop_database, shared_server

ROOT = Path(__file__).parents[2]


def test_server_keeps_its_promises_and_has_room(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:

        def show(setting: str) -> str:
            row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
            assert row is not None
            return str(row[0])

        assert (show("fsync"), show("synchronous_commit")) == ("on", "on")
        assert int(show("max_connections")) >= 100
        assert int(show("server_version_num")) >= 160000


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_database(postgres_url: str, turn: int) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE mine (turn int)")
        connection.execute("INSERT INTO mine VALUES (%s)", [turn])


def test_a_database_is_dropped_under_open_connections(postgres_server: str) -> None:
    url = create_database(postgres_server)
    with psycopg.connect(url, autocommit=True) as connection:
        drop_database(url, postgres_server)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


async def test_async_tests_run_on_asyncio(postgres_url: str) -> None:
    assert asyncio.get_running_loop() is not None
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        cursor = await connection.execute("SELECT 1")
        assert await cursor.fetchone() == (1,)


def test_committed_rows_survive_kill9_and_stop(private_postgres: PrivateServer) -> None:
    server = private_postgres
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
    for n, end in enumerate([server.kill9, server.stop, server.kill9]):
        with psycopg.connect(server.url) as connection:
            connection.execute("INSERT INTO kept VALUES (%s)", [n])
            connection.commit()
            end()
            assert not server.is_running
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT n FROM kept ORDER BY n").fetchall() == [(0,), (1,), (2,)]


def test_processes_that_meet_share_one_server(tmp_path: Path) -> None:
    with shared_server(tmp_path) as first, shared_server(tmp_path) as second:
        assert first == second


def test_whoever_comes_while_the_last_one_leaves_gets_a_running_server(tmp_path: Path) -> None:
    for _ in range(4):  # the old one, if we are faster than its guard, or else a new one
        with shared_server(tmp_path) as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_session_leaves_no_server_behind() -> None:
    program = (
        "import sys\n"
        "from tests.support.postgres import PrivateServer\n"
        "server = PrivateServer().__enter__()\n"
        "print(server.directory, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdout is not None
        directory = Path(session.stdout.readline().strip())
        pid = int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(session.pid, signal.SIGKILL)
    give_up_at = time.monotonic() + 60
    while directory.exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "zombie" in status.read_text()
