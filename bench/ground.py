"""Where the stores of a run lie: a folder on disk, and a PostgreSQL server of its own.

Boards are set up by one verb and then multiplied by SQL, or by copying the task's
file, which leaves the same rows and files as a hundred thousand verbs, sooner.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import psycopg

from bullpen.domain.member import USER, MemberRef
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.stores.sql.tables import TASK
from bullpen.stores.sqlite.connection import connect

TEAM_NAME = "bench"
_CHUNK = 256


class Ground:
    def __init__(self) -> None:
        # /tmp is often in memory, where a flush costs nothing.
        self.folder = Path(
            tempfile.mkdtemp(prefix="bullpen-bench-", dir="/var/tmp" if os.access("/var/tmp", 3) else None)
        )
        self._stack = ExitStack()
        self._server: str | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def server(self) -> str:
        """The PostgreSQL server: `BULLPEN_TEST_POSTGRES`, or one started for this run."""
        from tests.support.postgres import PrivateServer

        if self._server is None:
            given = os.environ.get("BULLPEN_TEST_POSTGRES")
            self._server = given or self._stack.enter_context(PrivateServer()).url
        return self._server

    def new_folder(self) -> Path:
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        return folder

    def new_url(self, store: str) -> str:
        """An empty place for a store of this kind."""
        if store == "sqlite":
            return f"sqlite:///{self.new_folder() / 'bullpen.db'}"
        if store == "files":
            return f"files:{self.new_folder()}"
        from tests.support.postgres import create_database, drop_database

        url = create_database(self.server)
        self._stack.callback(drop_database, url, self.server)
        return url


def is_there(store: str) -> bool:
    """Can this store be imported?"""
    try:
        return importlib.util.find_spec(f"bullpen.stores.{store}.store") is not None
    except ModuleNotFoundError:
        return False


def make_board(url: str, size: int) -> int:
    """A team with so many claimable tasks; its id."""
    return asyncio.run(_make_board(url, size))


async def _make_board(url: str, size: int) -> int:
    async with open_store(url) as store:
        team = await store.create_team(TEAM_NAME)
        await create_tasks(store, team.id, min(1, size))
    if size > 1:
        if url.startswith("files:"):
            _multiply_files(Path(url.removeprefix("files:")), size)
            async with open_store(url) as store:
                # The first verb after that finds them; it is not to be part of what is measured.
                await store.create_task(MemberRef(team.id, USER, 0), "One more")
        else:
            with ExitStack() as stack:
                multiply(open_sql(url, stack), team.id, 2, size)
    return team.id


def _multiply_files(root: Path, last: int) -> None:
    from bullpen.stores.files.task_file import parse_task, task_bytes

    home = root / ".teams" / TEAM_NAME
    task = parse_task((home / "tasks" / "task_1.json").read_bytes())
    assert task is not None
    # The text of one for all of them: to write JSON for people takes longer than to write the file.
    before, mark, after = task_bytes({**task, "id": 1}).partition(b'"id": 1')
    assert mark
    for number in range(2, last + 1):
        (home / "tasks" / f"task_{number}.json").write_bytes(before + b'"id": %d' % number + after)
    # Derived: the store makes it again from the tasks.
    shutil.rmtree(home / ".index")


async def create_tasks(store: Store, team_id: int, count: int) -> None:
    user = MemberRef(team_id, USER, 0)
    for start in range(0, count, _CHUNK):
        wave = range(start, min(start + _CHUNK, count))
        await asyncio.gather(
            *(store.create_task(user, f"Task {number}", description="Do what is to be done") for number in wave)
        )


Execute = Callable[[str], Any]


def open_sql(url: str, stack: ExitStack) -> Execute:
    """Runs a statement that commits by itself, on the database behind this URL."""
    if url.startswith("sqlite:///"):
        connection = sqlite_connection(url)
        stack.callback(connection.close)
        return lambda sql: connection.execute(sql).fetchall()
    postgres = stack.enter_context(psycopg.connect(url, autocommit=True))

    def execute(sql: str) -> Any:
        cursor = postgres.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    return execute


def sqlite_connection(url: str) -> apsw.Connection:
    """As the store opens it: WAL, `synchronous=FULL`."""
    return connect(Path(url.removeprefix("sqlite:///")))


def multiply(execute: Execute, team_id: int, first: int, last: int) -> None:
    """Tasks `first` to `last`, copied from #1 as it was when it was new."""
    columns = {f'"{name}"': f'task."{name}"' for name in TASK.written}
    columns |= {'"id"': "n.value", '"status"': "'pending'", '"owner"': "NULL", '"owner_key"': "NULL"}
    execute(
        f"INSERT INTO task ({', '.join(columns)}) "
        f"WITH RECURSIVE n(value) AS (SELECT {first} UNION ALL SELECT value + 1 FROM n WHERE value < {last}) "
        f"SELECT {', '.join(columns.values())} FROM task, n WHERE task.team_id = {team_id} AND task.id = 1"
    )
    execute(f"UPDATE team SET next_task_id = {last + 1} WHERE id = {team_id}")
    # What autovacuum would do a minute later.
    execute("ANALYZE task")
