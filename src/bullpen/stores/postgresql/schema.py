"""The tables: looked for when reading, made when writing.

A migration runs in one transaction under an advisory lock, so of any number of
processes that open an empty database at the same moment one makes the tables and
the others find them.
"""

from __future__ import annotations

from contextlib import suppress

from psycopg import errors

from bullpen.errors import StoreError
from bullpen.stores.postgresql.wire import Wire, first_line, statement
from bullpen.stores.sql.migration import (
    OLDER_WORKERS,
    Version,
    check_version,
    is_behind,
    is_major_step,
    known_versions,
    pending_versions,
    refuse_while_they_live,
    statements_of,
)

_DIALECT = "postgresql"
# Not to_regclass: that one may answer from what this session remembers, and not see what the lock made it wait for.
_IS_THERE = """
    SELECT EXISTS (
        SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relname = 'schema_version' AND nspname = ANY(current_schemas(false)))
"""
# The second one keeps what it is given: UTF-8.
_KEEP_ANY_TEXT = ("UTF8", "SQL_ASCII")
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('bullpen migration'), 0)"
# An index over everything that a large team has written is not made in a moment.
_STEP_SECONDS = 3600.0
# The server notices one after a second.
_MAX_CLASHES = 10


class NotTheOwner(StoreError):
    """The tables lack what this version needs, and this role may not change them."""


async def stored_version(wire: Wire) -> Version | None:
    """(major, minor), or None where there are no tables of ours; SchemaTooNew."""
    [(is_there,)] = await wire.ask(_IS_THERE)
    if not is_there:
        return None
    rows = await wire.ask("SELECT major, minor FROM schema_version")
    if len(rows) != 1 or not all(isinstance(number, int) for number in rows[0]):
        raise StoreError("the table schema_version of this database is somebody else's: choose another database")
    major, minor = rows[0]
    check_version(_DIALECT, (major, minor))
    return major, minor


async def upgrade(wire: Wire) -> None:
    """Tables that lack an additive step get it. Who may only look goes on with what there is."""
    if is_behind(_DIALECT, await stored_version(wire)):
        with suppress(NotTheOwner, errors.ReadOnlySqlTransaction):
            await migrate(wire)


async def migrate(wire: Wire) -> None:
    """Bring the schema up to date. Refused while an older worker lives, if the step is a major one."""
    clashes = 0
    while True:
        try:
            await _migrate(wire)
        except errors.DeadlockDetected:
            # The verbs of an older Bullpen, which goes on beside it, take the tables in another order.
            clashes += 1
            if clashes > _MAX_CLASHES:
                raise
        else:
            return


async def _migrate(wire: Wire) -> None:
    if not pending_versions(_DIALECT, await stored_version(wire)):
        return
    try:
        await wire.run([statement("BEGIN"), statement(_LOCK)])
        await _take_steps(wire, await stored_version(wire))
        await wire.run([statement("COMMIT")])
    except (errors.DuplicateTable, errors.DuplicateObject) as error:
        raise StoreError(
            f"this database has tables of somebody else ({first_line(error)}): choose another one, or another schema"
        ) from error
    except errors.InsufficientPrivilege as error:
        raise NotTheOwner(
            f"the tables are not those that this Bullpen needs, and this role may not change them "
            f"({first_line(error)}): run `bullpen migrate` as their owner"
        ) from error
    except errors.InvalidSchemaName as error:
        raise StoreError("no schema of the search_path exists: create it first (CREATE SCHEMA)") from error
    finally:
        if wire.is_usable and not wire.is_between_transactions:
            await wire.run([statement("ROLLBACK")])


async def _take_steps(wire: Wire, current: Version | None) -> None:
    if is_major_step(_DIALECT, current):
        older = await wire.ask(OLDER_WORKERS, major=known_versions(_DIALECT)[-1][0])
        refuse_while_they_live([number for (number,) in older])
    if current is None:
        await _check_encoding(wire)
        await wire.ask("CREATE TABLE schema_version (major bigint NOT NULL, minor bigint NOT NULL)")
        await wire.ask("INSERT INTO schema_version VALUES (0, 0)")
    for version in pending_versions(_DIALECT, current):
        steps = [statement(each) for each in _split(statements_of(_DIALECT, version))]
        await wire.run(steps, answer_seconds=_STEP_SECONDS)
        await wire.ask("UPDATE schema_version SET major = :major, minor = :minor", major=version[0], minor=version[1])


async def _check_encoding(wire: Wire) -> None:
    """In the middle of a run it would be too late to learn that a model's words cannot be stored."""
    [(encoding,)] = await wire.ask("SELECT current_setting('server_encoding')")
    if encoding not in _KEEP_ANY_TEXT:
        raise StoreError(
            f"a database in {encoding} cannot keep every text: create one with ENCODING 'UTF8' TEMPLATE template0"
        )


def _split(script: str) -> list[str]:
    """Our own files: statements end with a semicolon at the end of a line, comments take whole lines."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [each for part in "\n".join(lines).split(";\n") if (each := part.strip().rstrip(";"))]
