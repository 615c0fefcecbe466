"""What the tests of the PostgreSQL store do to a server behind the store's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

BOUND_SECONDS = 60.0


async def ask(url: str, query: Any, parameters: Any = None) -> list[Any]:
    """In a session of its own; the rows, if there are any."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(query, parameters)
        return await cursor.fetchall() if cursor.description else []


async def backend_that_waits(url: str) -> int:
    """The process id of the session of this database that waits for a lock."""
    return (await backends_that_wait(url, 1))[0]


async def backends_that_wait(url: str, count: int, *, unless: Callable[[], bool] = lambda: False) -> list[int]:
    """As soon as there are so many, or the other thing has happened."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(BOUND_SECONDS):
        while len(rows := await ask(url, waiting)) < count and not unless():
            continue
    return [int(pid) for (pid,) in rows]
