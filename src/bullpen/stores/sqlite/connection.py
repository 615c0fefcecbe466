"""Opening the SQLite database, and what its errors mean to a user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from bullpen.errors import BullpenError, SchemaTooNew, StoreError, StoreUnavailable
from bullpen.stores.sql.migration import Version, known_versions, statements_of

# Beyond the gate: only programs that are not Bullpen can hold the database.
BUSY_TIMEOUT_MS = 5000


def connect(path: Path | None, *, must_exist: bool = False) -> apsw.Connection:
    """Durable at every commit. `None` is a database in memory."""
    flags = apsw.SQLITE_OPEN_READWRITE | (0 if must_exist else apsw.SQLITE_OPEN_CREATE)
    with translated(path):
        connection = apsw.Connection(":memory:" if path is None else str(path), flags=flags, statementcachesize=256)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Else SQLite plans a statement anew for each new value bound to it: 350 us instead of 25 for a claim.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", True)
        connection.pragma("journal_size_limit", 16_000_000)
    return connection


def stored_version(connection: apsw.Connection) -> Version | None:
    """(major, minor), or None for an empty database; StoreError for one that is not ours."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "schema_version" in names:
        rows = list(connection.execute("SELECT major, minor FROM schema_version"))
        return (int(rows[0][0]), int(rows[0][1]))
    if names:
        raise StoreError("this SQLite database is not a Bullpen store: choose another path")
    return None


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, inside the gate. Refused while an older worker lives, if the step is a major one."""
    current = stored_version(connection)
    latest = known_versions("sqlite")[-1]
    check_version(current)
    if current is not None and current >= latest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        current = stored_version(connection)
        _refuse_while_older_workers_live(connection, current, latest)
        if current is None:
            connection.execute("CREATE TABLE schema_version (major INTEGER NOT NULL, minor INTEGER NOT NULL) STRICT")
            connection.execute("INSERT INTO schema_version VALUES (0, 0)")
        for version in known_versions("sqlite"):
            if current is None or version > current:
                connection.execute(statements_of("sqlite", version))
                connection.execute("UPDATE schema_version SET major = ?, minor = ?", version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_version(current: Version | None) -> None:
    """A newer minor version only added things; a newer major one changed what we rely on."""
    latest = known_versions("sqlite")[-1]
    if current is not None and current[0] > latest[0]:
        raise SchemaTooNew(
            f"this store has schema {current[0]}.{current[1]}, this Bullpen understands {latest[0]}.x: upgrade Bullpen"
        )


def _refuse_while_older_workers_live(connection: apsw.Connection, current: Version | None, latest: Version) -> None:
    if current is None or current[0] == latest[0]:
        return
    older = list(connection.execute("SELECT id FROM worker WHERE stopped_at IS NULL AND schema_max < ?", (latest[0],)))
    if older:
        raise StoreUnavailable(f"worker {older[0][0]} still runs an older Bullpen: stop it, then try again")


@contextmanager
def translated(path: Path | None) -> Iterator[None]:
    """SQLite's errors as ours: what happened, in words that help."""
    try:
        yield
    except BullpenError:
        raise
    except apsw.FullError as error:
        raise StoreUnavailable(f"the disk is full, nothing was changed: make room for {path}") from error
    except apsw.ReadOnlyError as error:
        raise StoreUnavailable(f"{path} cannot be written (read-only file or directory)") from error
    except apsw.CantOpenError as error:
        raise StoreUnavailable(f"{path} cannot be opened: does its directory exist, may you write there?") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"another program holds a lock on {path}; nothing was changed, try again") from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreError(f"{path} is not a SQLite database, or is damaged: restore it from a backup") from error
    except apsw.IOError as error:
        raise StoreUnavailable(f"{path} cannot be read or written: {error}") from error
    except apsw.Error as error:
        raise StoreError(f"SQLite refused: {error}") from error
