"""The stores, behind one function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen.clock import Clock, SystemClock
from bullpen.errors import UsageError

if TYPE_CHECKING:
    from bullpen.store import Store

__all__ = ["is_shared", "migrate_store", "open_store", "shown", "without_password"]


def open_store(url: str, *, clock: Clock | None = None, **settings: Any) -> Store:
    """The store behind a URL, to be entered with `async with`.

    `sqlite:///PATH` (relative, or absolute with four slashes), `sqlite:///:memory:`,
    `files:DIR`, `postgresql://…`. Nothing is imported, opened or created that is not needed.
    """
    clock = clock or SystemClock()
    if url.startswith("sqlite:///"):
        from bullpen.stores.sqlite import SqliteStore

        path = url.removeprefix("sqlite:///")
        if not path:
            raise UsageError("sqlite:/// needs a path, such as sqlite:///work.db")
        return SqliteStore(url, None if path == ":memory:" else _path(path), clock, **settings)
    if url.startswith("files:"):
        from bullpen.stores.files import FilesStore

        directory = url.removeprefix("files:").removeprefix("//")
        if not directory:
            raise UsageError("files: needs a directory, such as files:board")
        return FilesStore(url, _path(directory), clock, **settings)
    if is_shared(url):
        return _open_postgres(url, clock, **settings)
    raise UsageError(
        f"{without_password(url)[:80]!r} is not a store: use sqlite:///PATH, files:DIR or postgresql://HOST/DATABASE"
    )


def _path(text: str) -> Path:
    if "\0" in text:
        raise UsageError(f"{text[:80]!r} is no path: it contains a NUL")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{text[:80]!r} lies in the home of a user that this machine does not know") from error


def _open_postgres(url: str, clock: Clock, **settings: Any) -> Store:
    try:
        from bullpen.stores.postgresql import PostgresStore
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_pool"):
            raise
        raise UsageError("PostgreSQL needs an extra: pip install 'bullpen[postgres]'") from error
    return PostgresStore(url, clock, **settings)


async def migrate_store(url: str) -> tuple[int, int] | None:
    """Make the tables, or take every step that they lack: the version that they have then. None where the store sees
    to that itself; only in PostgreSQL those who write rows may have no right to change tables."""
    async with open_store(url):
        if not is_shared(url):
            return None
    from bullpen.stores.postgresql.owner import migrate_at

    return await migrate_at(url)


def is_shared(url: str) -> bool:
    """Is it a server, for many machines? Whoever writes into it says nothing about where members are hosted."""
    return url.startswith(("postgresql://", "postgres://"))


def shown(url: str) -> str:
    """Of a store that was opened: as it can be named to people, without its password."""
    if not is_shared(url):
        return url
    from bullpen.stores.postgresql.connection import parse_url

    return f"postgresql://{parse_url(url).where}"


# As a parameter of a URL, and as libpq's own `password='…'`. First, as there may be an @ in it.
_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL as it may be shown, though it makes no sense."""
    told = _PASSWORD.sub(r"\1…", url)
    head, at, tail = told.rpartition("@")
    return f"…@{tail}" if at and head else told
