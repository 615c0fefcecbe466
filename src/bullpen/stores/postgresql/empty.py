"""What a reader sees in a database without our tables: an empty store. Looking creates nothing."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar, cast

from bullpen.domain.event import Event
from bullpen.stores.postgresql.transaction import START, parse_position
from bullpen.stores.sqlite.connection import connect, migrate
from bullpen.stores.sqlite.transaction import SqliteTransaction
from bullpen.stores.transaction import drive
from bullpen.stores.verbs.verb import Body

T = TypeVar("T")


class _EmptyTransaction(SqliteTransaction):
    """An empty SQLite store in memory, with the positions of this one."""

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        parse_position(after)
        return []

    async def last_position(self, team_id: int) -> str:
        return START


def look_at_nothing(body: Body[T], now: datetime) -> T:
    connection = connect(None)
    try:
        migrate(connection)
        return cast(T, drive(body(_EmptyTransaction(connection.cursor(), now))))
    finally:
        connection.close()
