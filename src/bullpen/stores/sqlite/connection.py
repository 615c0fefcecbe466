"""Opening the SQLite database, and what its errors mean to a user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bullpen.errors import StoreError, StoreUnavailable
from bullpen.stores.sql.migration import (
    OLDER_WORKERS,
    Version,
    check_version,
    is_major_step,
    known_versions,
    pending_versions,
    refuse_while_they_live,
    statements_of,
)

# Beyond the gate: only programs that are not Bullpen can hold the database.
BUSY_TIMEOUT_MS = 5000


def connect(path: Path | None, *, must_exist: bool = False) -> apsw.Connection:
    """Durable at every commit. `None` is a database in memory."""
    flags = apsw.SQLITE_OPEN_READWRITE | (0 if must_exist else apsw.SQLITE_OPEN_CREATE)
    with translated(path):
        connection = apsw.Connection(":memory:" if path is None else str(path), flags=flags, statementcachesize=256)
        set_patience(connection, may_wait=True)
        # Else SQLite plans a statement anew for each new value bound to it: 350 us instead of 25 for a claim.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if not must_exist:
            # Kept in the file: who only looks finds it there, and does not write to a file that is just being made.
            connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", True)
        connection.pragma("journal_size_limit", 16_000_000)
    return connection


def set_patience(connection: apsw.Connection, *, may_wait: bool) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS if may_wait else 0)


def leave_to_parent(connection: apsw.Connection) -> None:
    """In a child: SQLite takes the locks of an inherited connection, which are the parent's, for the child's own, and
    shares them with every connection that the child opens. So it is closed, and nothing of the database is tidied up.
    One that is in a transaction is left as it is: to undo that would be to undo the parent's."""
    if not connection.in_transaction:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()


def is_there(path: Path) -> bool:
    """StoreUnavailable where that cannot be told: a way that is closed to us, a link that leads to itself."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be used: {error.strerror}") from error
    return True


NO_FILE = (0, 0)


def file_at(path: Path | str | None) -> tuple[int, int]:
    """Which file lies there now; while one is open, no other can be the same."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        found = None
    return NO_FILE if found is None else (found.st_dev, found.st_ino)


def stored_version(connection: apsw.Connection) -> Version | None:
    """(major, minor), or None for an empty database; StoreError for one that is not ours."""
    if not list(connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' LIMIT 1")):
        return None
    try:
        # Other programs have a table of this name, too, with something else in it.
        [(major, minor)] = connection.execute("SELECT major, minor FROM schema_version")
        return int(major), int(minor)
    except (apsw.SQLError, ValueError, TypeError) as error:
        raise StoreError("this SQLite database is not a Bullpen store: choose another path") from error


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, inside the gate. Refused while an older worker lives, if the step is a major one."""
    current = stored_version(connection)
    check_version("sqlite", current)
    if not pending_versions("sqlite", current):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        current = stored_version(connection)
        if is_major_step("sqlite", current):
            major = known_versions("sqlite")[-1][0]
            refuse_while_they_live([row[0] for row in connection.execute(OLDER_WORKERS, {"major": major})])
        if current is None:
            connection.execute("CREATE TABLE schema_version (major INTEGER NOT NULL, minor INTEGER NOT NULL) STRICT")
            connection.execute("INSERT INTO schema_version VALUES (0, 0)")
        for version in pending_versions("sqlite", current):
            connection.execute(statements_of("sqlite", version))
            connection.execute("UPDATE schema_version SET major = ?, minor = ?", version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(path: Path | None) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise in_our_words(error, path) from error


def in_our_words(error: BaseException, path: Path | None) -> BaseException:
    """SQLite's errors as ours, in words that help; any other is returned as it is."""
    if not isinstance(error, apsw.Error):
        return error
    ours = _in_our_words(error, path)
    ours.__cause__ = error
    return ours


def _in_our_words(error: apsw.Error, path: Path | None) -> StoreError:
    match error:
        case apsw.FullError():
            return StoreUnavailable(f"the disk is full, nothing was changed: make room for {path}")
        case apsw.ReadOnlyError():
            return StoreUnavailable(f"{path} cannot be written (read-only file or directory)")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{path} cannot be opened: does its directory exist, may you write there?")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"another program holds a lock on {path}; nothing was changed, try again")
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreError(f"{path} is not a SQLite database, or is damaged: restore it from a backup")
        case apsw.IOError():
            return StoreUnavailable(f"{path} cannot be read or written: {error}")
    return StoreError(f"SQLite refused: {error}")
