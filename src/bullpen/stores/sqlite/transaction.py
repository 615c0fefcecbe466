"""A transaction on the one connection that writes, or on one that reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any

import apsw

from bullpen.domain.event import Event
from bullpen.domain.member import Member
from bullpen.domain.task import Task
from bullpen.errors import UsageError
from bullpen.stores.sql import statements
from bullpen.stores.sql.dialect import UNREADABLE, SqliteDialect, damaged
from bullpen.stores.sql.tables import TASK
from bullpen.stores.sql.transaction import Parameters, Row, SqlTransaction
from bullpen.stores.transaction import Ring

DIALECT = SqliteDialect()

# An event's id is its team's, times 2^40, and its position. One transaction writes at a time, and nothing is ever
# deleted from the log.
_ROOM = 1 << 40
_IS_OF_TEAM = f"id BETWEEN :team_id * {_ROOM} AND :team_id * {_ROOM} + {_ROOM - 1}"
_LIST_EVENTS = f"""
    SELECT id - :team_id * {_ROOM}, kind, at, actor, data FROM event_line
    WHERE {_IS_OF_TEAM} AND id > :team_id * {_ROOM} + :after ORDER BY id LIMIT :limit
"""
_LAST_POSITION = f"SELECT coalesce(max(id) - :team_id * {_ROOM}, 0) FROM event_line WHERE {_IS_OF_TEAM}"
# One for all events of a transaction; values by their place, like those of the others once they are compiled.
_INSERT_EVENT = f"""
    INSERT INTO event_line (id, kind, at, actor, data) VALUES (
        (SELECT coalesce(max(id), ?1 * {_ROOM}) + 1 FROM event_line WHERE {_IS_OF_TEAM.replace(":team_id", "?1")}),
        ?2, ?3, ?4, ?5)
"""


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


# Values are bound by their place: by name, that takes apsw three times as long. And it looks at every character of a
# statement, each time, to find the prepared one.
@cache
def _compiled(sql: str) -> tuple[str, Callable[[Parameters], tuple[Any, ...]]]:
    """The statement in one line with `?1` for each name, and what takes their values in that order."""
    names: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"?{names.setdefault(found[1], len(names) + 1)}", " ".join(sql.split()))
    if len(names) > 1:
        return text, itemgetter(*names)
    return text, lambda parameters: tuple(parameters[name] for name in names)


class SqliteTransaction(SqlTransaction):
    def __init__(self, cursor: apsw.Cursor, now: datetime) -> None:
        """`cursor` serves one statement after the other: to make one for each costs a third of it."""
        super().__init__(DIALECT, now)
        self._cursor = cursor

    async def execute(self, sql: str, parameters: Parameters) -> list[Row]:
        text, values_of = _compiled(sql)
        try:
            rows: Any = self._cursor.execute(text, values_of(parameters)).fetchall()
        except UnicodeDecodeError as error:
            # SQLite keeps any bytes as a text: what lies there is not what was written.
            raise damaged("the database", error) from error
        return rows  # type: ignore[no-any-return]

    async def claim_next(self, member: Member) -> Task | None:
        claimed: Task | None = await self._one(
            TASK,
            statements.CLAIM_NEXT_SQLITE,
            team_id=member.team_id,
            name=member.name,
            name_key=member.key,
            role_key=member.role_key,
            now=DIALECT.moment(self.now),
        )
        return claimed

    async def lock_graph(self, team_id: int) -> None:
        """One transaction writes at a time."""

    async def lock_claims(self, team_id: int) -> None:
        """One transaction writes at a time."""

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        position = _position(after)
        if position and position > int(await self.last_position(team_id)):
            raise UsageError(f"{after[:40]!r} is not a position of this store's log")
        wanted = {"team_id": team_id, "after": position, "limit": limit}
        return [_event(team_id, row) for row in await self.execute(_LIST_EVENTS, wanted)]

    async def last_position(self, team_id: int) -> str:
        return str(await self._number(_LAST_POSITION, team_id=team_id))

    def flush(self) -> list[Ring]:
        """Write the events, the last thing before the commit; what is to ring after it."""
        if self._events:
            at = DIALECT.moment(self.now)
            self._cursor.executemany(
                _INSERT_EVENT,
                [(event.team_id, event.kind, at, event.actor, DIALECT.json(event.data)) for event in self._events],
            )
        return list(self._rings)


def _event(team_id: int, row: Row) -> Event:
    position, kind, at, actor, data = row
    try:
        moment, facts = datetime.fromisoformat(at), DIALECT.read_json(data)
    except UNREADABLE as error:
        raise damaged("event_line", error) from error
    return Event(team_id=team_id, position=str(position), kind=kind, at=moment, actor=actor, data=facts)


def _position(after: str) -> int:
    if not after:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise UsageError(f"{after[:40]!r} is not a position of this store's log")
    return int(after)
