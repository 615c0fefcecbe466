"""Opening a connection to PostgreSQL, and what its errors mean to a user.

No message contains a password: a URL that cannot be understood is not repeated,
and of one that can only host, port, database and user are named.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bullpen.clock import SystemClock
from bullpen.errors import AlreadyClaimed, BullpenError, Conflict, StoreError, StoreUnavailable, UsageError
from bullpen.stores.postgresql.wire import Lost, Notice, Wire, first_line, one_line

# psycopg warns there about what it then also raises; without a handler that would reach the terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

# A peer that vanishes without a word is noticed after about 15 seconds. What the URL says goes first.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "fallback_application_name": "bullpen",
}

# What is sent is UTF-8, whatever the URL or the environment says.
_FIXED: Mapping[str, Any] = {"client_encoding": "UTF8"}

# Durable whatever the server's default is, if it is not stricter. Moments and numbers come back as they were: psycopg
# reads no other style of dates, and a float has all its digits. Plans do not depend on the values: the partial
# indexes are chosen by literals, and a plan made while a table was empty must neither scan nor sort. A process that is
# frozen inside a transaction loses it, well before its lease is over, instead of blocking everyone; nobody else pauses
# for seconds between two statements, and who did runs it again. Other times that a database sets are for other sessions
# than these: a step that makes an index takes as long as it takes, and who listens is idle, and holds a proof of life.
# The one of a transaction came with version 17.
_SESSION = """
    SELECT set_config('synchronous_commit',
             CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
           set_config('default_transaction_isolation', 'read committed', false),
           set_config('TimeZone', 'UTC', false),
           set_config('DateStyle', 'ISO', false),
           set_config('extra_float_digits', '1', false),
           set_config('plan_cache_mode', 'force_generic_plan', false),
           set_config('enable_seqscan', 'off', false),
           set_config('enable_sort', 'off', false),
           set_config('enable_incremental_sort', 'off', false),
           set_config('jit', 'off', false),
           set_config('client_min_messages', 'error', false),
           set_config('lock_timeout', '10s', false),
           set_config('statement_timeout', '0', false),
           set_config('idle_session_timeout', '0', false),
           CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
             THEN set_config('transaction_timeout', '0', false) END,
           set_config('idle_in_transaction_session_timeout', '5s', false)
"""
_SERVER = "SELECT clock_timestamp(), current_setting('server_version_num')::bigint"

_VARIABLES: Mapping[str, str] = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "dbname": "PGDATABASE",
    "service": "PGSERVICE",
}

_OLDEST_SERVER = 140_000
_FULL = ("too many clients", "too many connections", "remaining connection slots")


@dataclass(frozen=True, slots=True)
class Address:
    conninfo: str
    where: str
    """For people: user, host, port and database, never the password."""


def parse_url(url: str) -> Address:
    try:
        given = conninfo_to_dict(url)
        conninfo = make_conninfo(**{**_DEFAULTS, **given, **_FIXED})
    except (psycopg.Error, UnicodeError):
        raise _no_url() from None
    host = str(given.get("host") or "")
    # An @ or a / in the password that was not written as %40 or %2F: what follows it is taken for the host, what stands
    # before it for the port.
    if "@" in host or "@" in _path_of(url) or not all(map(_is_port, str(given.get("port") or "").split(","))):
        raise _no_url()
    return Address(conninfo, _where(given))


def _where(given: Mapping[str, Any]) -> str:
    """What the URL leaves out libpq takes from a service or the environment."""
    told = {name: str(given.get(name) or os.environ.get(variable) or "") for name, variable in _VARIABLES.items()}
    service = f"service {told['service']}" if told["service"] else ""
    user = f"{told['user']}@" if told["user"] else ""
    port = f":{told['port']}" if told["port"] else ""
    host = given.get("host") or given.get("hostaddr") or service or told["host"] or told["hostaddr"] or "localhost"
    return f"{user}{host}{port}/{told['dbname']}"


def _path_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[2].partition("?")[0]


def _is_port(text: str) -> bool:
    return not text or (text.isdecimal() and 0 < int(text[:6]) < 65_536)


def _no_url() -> UsageError:
    return UsageError(
        "this PostgreSQL URL cannot be understood (not repeated here, for the sake of its password): "
        "use postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters written as %40"
    )


async def connect(address: Address, on_notice: Notice | None = None) -> tuple[Wire, datetime]:
    """Also what time it was there when our monotonic clock began, as far as a round trip can tell."""
    try:
        connection = await psycopg.AsyncConnection.connect(address.conninfo, autocommit=True)
    except psycopg.Error as error:
        raise StoreUnavailable(f"PostgreSQL at {address.where} cannot be reached: {_cause(error)}") from None
    wire: Wire | None = None
    try:
        wire = Wire(connection, on_notice)
        clock = SystemClock()
        before = clock.monotonic()
        await wire.ask(_SESSION)
        [(now, version)] = await wire.ask(_SERVER)
        between = (before + clock.monotonic()) / 2
    except BaseException as error:
        connection.pgconn.finish() if wire is None else wire.close()
        if isinstance(error, Lost):
            raise StoreUnavailable(f"PostgreSQL at {address.where} hung up: {error}") from None
        if isinstance(error, psycopg.Error):
            raise explained(error, address.where) from error
        raise
    if version < _OLDEST_SERVER:
        wire.close()
        raise StoreError(f"PostgreSQL at {address.where} is too old ({version // 10_000}): 14 or newer is needed")
    return wire, now - timedelta(seconds=between)


def is_full(error: StoreUnavailable) -> bool:
    """No connection was left, for anybody or for this user. By its words: libpq hands on no code of a refusal."""
    return any(words in str(error) for words in _FULL)


def _cause(error: psycopg.Error) -> str:
    """libpq names the address first, which we do in our own words; what the server said stands last."""
    text = one_line(str(error))
    for mark in ("FATAL: ", "failed: "):
        if mark in text:
            return text.rpartition(mark)[2].strip()
    return text


def explained(error: psycopg.Error, where: str) -> BullpenError:
    """The error of one statement as ours: what happened, in words that help. Its transaction is undone."""
    text = first_line(error)
    match error:
        case errors.UniqueViolation() if error.diag.constraint_name == "task_in_progress":
            return AlreadyClaimed("the claimer has another task in progress: complete, fail or release it first")
        case errors.UniqueViolation():
            return Conflict("somebody else wrote the same thing at the same moment; look again")
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return StoreUnavailable("the database is too busy with the same rows; nothing was changed, try again")
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return StoreUnavailable(f"PostgreSQL at {where} gave up waiting ({text}); nothing was changed, try again")
        case errors.ReadOnlySqlTransaction():
            return StoreUnavailable(f"PostgreSQL at {where} is read-only (a standby?); nothing was changed")
        case errors.DiskFull():
            return StoreUnavailable(f"the disk of PostgreSQL at {where} is full; nothing was changed: make room there")
        case errors.InsufficientPrivilege():
            return StoreError(f"PostgreSQL at {where} does not allow that: {text}")
        case errors.NumericValueOutOfRange():
            return UsageError("a number is too large to be one of this store's")
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return StoreError(
                f"the tables at {where} are not those of a Bullpen store ({text}): choose another database"
            )
        case psycopg.OperationalError():
            return StoreUnavailable(f"PostgreSQL at {where} failed: {text}; nothing was changed")
    return StoreError(f"PostgreSQL refused: {text}")
