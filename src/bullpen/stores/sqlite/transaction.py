"""A transaction on the one connection that writes, or on one that reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import apsw

from bullpen.domain.event import Event
from bullpen.domain.member import Member
from bullpen.domain.task import Task
from bullpen.errors import UsageError
from bullpen.stores.sql import statements
from bullpen.stores.sql.dialect import SqliteDialect
from bullpen.stores.sql.tables import TASK
from bullpen.stores.sql.transaction import Parameters, Row, SqlTransaction
from bullpen.stores.transaction import Ring

DIALECT = SqliteDialect()

_INSERT_EVENT = "INSERT INTO event (team_id, kind, at, actor, data) VALUES (?, ?, ?, ?, ?)"
_LIST_EVENTS = """
    SELECT position, kind, at, actor, data FROM event WHERE team_id = ? AND position > ? ORDER BY position LIMIT ?
"""
_LAST_OF_ALL = "SELECT coalesce(max(position), 0) FROM event"
_LAST_POSITION = "SELECT coalesce(max(position), 0) FROM event WHERE team_id = ?"


class SqliteTransaction(SqlTransaction):
    def __init__(self, connection: apsw.Connection, now: datetime) -> None:
        super().__init__(DIALECT, now)
        self._connection = connection

    async def execute(self, sql: str, parameters: Parameters) -> list[Row]:
        return cast("list[Row]", self._connection.execute(sql, cast(Any, parameters)).fetchall())

    async def claim_next(self, member: Member) -> Task | None:
        claimed = await self._one(
            TASK,
            statements.CLAIM_NEXT_SQLITE,
            team_id=member.team_id,
            name=member.name,
            name_key=member.key,
            role_key=member.role_key,
            now=DIALECT.moment(self.now),
        )
        return cast("Task | None", claimed)

    async def lock_graph(self, team_id: int) -> None:
        """One transaction writes at a time."""

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        position = _position(after)
        if position and position > self._last_position():
            raise UsageError(f"{after[:40]!r} is not a position of this store's log")
        rows = self._connection.execute(_LIST_EVENTS, (team_id, position, limit))
        return [
            Event(
                team_id=team_id,
                position=str(position),
                kind=kind,
                at=datetime.fromisoformat(at),
                actor=actor,
                data=DIALECT.read_json(data),
            )
            for position, kind, at, actor, data in cast("Sequence[Any]", rows)
        ]

    def _last_position(self) -> int:
        """Of all teams: a position that was given out for another one is none of this store's mistakes."""
        [(position,)] = self._connection.execute(_LAST_OF_ALL).fetchall()
        return int(cast(int, position))

    async def last_position(self, team_id: int) -> str:
        [(position,)] = self._connection.execute(_LAST_POSITION, (team_id,)).fetchall()
        return str(position)

    async def flush(self) -> list[Ring]:
        if self._events:
            at = DIALECT.moment(self.now)
            self._connection.executemany(
                _INSERT_EVENT,
                [(event.team_id, event.kind, at, event.actor, DIALECT.json(event.data)) for event in self._events],
            )
        return list(self._rings)


def _position(after: str) -> int:
    if not after:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise UsageError(f"{after[:40]!r} is not a position of this store's log")
    return int(after)
