"""How records become rows and rows become records: once for both databases, and how each of them differs.

`Dialect` has what is common, and names what is not; `SqliteDialect` and `PostgresDialect` fill that in.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any

from bullpen.domain.codec import decoder, encode
from bullpen.domain.member import Member, Team
from bullpen.domain.record import maker, taker
from bullpen.errors import StoreError
from bullpen.stores.sql.tables import MEMBER, TABLES, TASK, TEAM, Column, Table
from bullpen.stores.transaction import Lock

# What is written contains itself nowhere.
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"), default=encode)
# What `_ENCODER.encode` would make anew for every value, which costs as much as to write a small one; where it is.
_MAKE = getattr(json.encoder, "c_make_encoder", None)
_write_json = _MAKE and _MAKE(None, encode, json.encoder.encode_basestring, None, ":", ",", False, False, True)


def to_json(value: Any) -> str:
    # Most lists and mappings of a row are empty.
    if not value and isinstance(value, tuple | dict):
        return "{}" if isinstance(value, dict) else "[]"
    return "".join(_write_json(value, 0)) if _write_json else _ENCODER.encode(value)


def _json_reader(column: Column) -> Callable[[str], Any]:
    build = decoder(column.hint)
    if column.name == "settings":
        # A team's row changes with each new task, its settings hardly ever, and every member here holds them.
        return lru_cache(maxsize=64)(lambda text: build(json.loads(text)))
    if typing.get_origin(column.hint) is tuple:
        return lambda text: () if text == "[]" else build(json.loads(text))
    # A new one for each row: somebody could write into it.
    return lambda text: build({} if text == "{}" else json.loads(text))


def _enum_reader(kind: type[Enum]) -> Callable[[Any], Enum]:
    members = {member.value: member for member in kind}
    # One that is not there is told of by the type itself.
    return lambda value: members.get(value) or kind(value)


# The same moments are written and read many times: that of a transaction into many columns, that of a record's
# creation with every change of it. In UTC and of a fixed width, so that text compares as time does.
@lru_cache(maxsize=4096)
def _moment(value: datetime) -> str:
    in_utc = value if value.tzinfo is UTC else value.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds")


_read_moment = lru_cache(maxsize=4096)(datetime.fromisoformat)

# What those raise that read back what was written, where something else lies there now.
UNREADABLE = (ValueError, TypeError, KeyError)


def damaged(table: str, error: Exception) -> StoreError:
    return StoreError(f"a row of {table} cannot be read ({error}): the store is damaged, restore it from a backup")


class Dialect:
    """Statements are written once with `:name` parameters and `{…}` for what differs."""

    name: str
    ids_of_blockers: str
    ids_of_blocked: str
    locks: Mapping[Lock, str]
    skip_locked: str
    true: str
    no_limit: int | None
    labels_allowed: str
    """Is every label of the member one of `:labels`?"""
    team_excepted: str
    """Is the row's team one of `:except_teams`?"""
    transaction_id: str
    """What the fence asks for beside the row, where a lost COMMIT has to be asked after."""

    def writer(self, column: Column) -> Callable[[Any], Any] | None:
        """How a value of this column, if it is not None, is written; None for as it is."""
        raise NotImplementedError

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        """How a value of this column is read back; None for as it is."""
        raise NotImplementedError

    def moment(self, value: datetime) -> Any:
        raise NotImplementedError

    def json(self, value: Any) -> Any:
        raise NotImplementedError

    def read_json(self, value: Any) -> Any:
        raise NotImplementedError

    def read_moment(self, value: Any) -> datetime:
        raise NotImplementedError

    def ids(self, value: Any) -> tuple[int, ...]:
        """The list of numbers that `ids_of_…` yields."""
        raise NotImplementedError

    # -- derived -------------------------------------------------------------------

    def select_list(self, table: Table) -> str:
        columns = ", ".join(f"{table.name}.{column.quoted}" for column in table.columns)
        if table is TASK:
            columns += f", {self.ids_of_blockers}, {self.ids_of_blocked}"
        return columns

    def row(self, table: Table, record: Any) -> dict[str, Any]:
        """The parameters of an insert or update."""
        names, values_of, writers = self._writing(table)
        values = dict(zip(names, values_of(record), strict=True))
        for name, write in writers:
            if values[name] is not None:
                values[name] = write(values[name])
        return values

    def changed(self, table: Table, old: Any, new: Any) -> dict[str, Any]:
        """The parameters of an update that makes the one of the other: of the columns that differ."""
        values = {}
        columns, values_of = self._changing(table)
        before, after = values_of(old), values_of(new)
        # Most are the very same: those are passed over without a step of the interpreter for each.
        for (name, write), was, now in compress(zip(columns, before, after, strict=True), map(is_not, before, after)):
            if was != now:
                values[name] = now if write is None or now is None else write(now)
        return values

    def record(self, table: Table, row: Sequence[Any]) -> Any:
        make, readers = self._reading(table)
        values = list(row)
        try:
            for index, read in readers:
                value = values[index]
                if value is not None:
                    values[index] = read(value)
        except UNREADABLE as error:
            raise damaged(table.name, error) from error
        return make(values)

    # The same rows come again and again as they were: who writes, whom to, and the team.
    @lru_cache(maxsize=512)  # noqa: B019 - a dialect lives as long as the process
    def known_member(self, row: tuple[Any, ...]) -> Member:
        member: Member = self.record(MEMBER, row)
        return member

    # Few, and not together with its members: its settings are large, and a member's row changes with each step.
    @lru_cache(maxsize=64)  # noqa: B019
    def known_team(self, row: tuple[Any, ...]) -> Team:
        team: Team = self.record(TEAM, row)
        return team

    def known_fence(self, row: tuple[Any, ...]) -> tuple[Team, Member]:
        """Of a row of `FENCE`, without the transaction's id."""
        width = len(MEMBER.columns)
        return self.known_team(row[width:]), self.known_member(row[:width])

    @cache  # noqa: B019
    def _writing(
        self, table: Table
    ) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], list[tuple[str, Callable[[Any], Any]]]]:
        """All columns, what takes their values from a record, and how those are written that are not as they are."""
        attributes = [table.computed.get(name, name) for name in table.written]
        found = ((column.name, self.writer(column)) for column in table.columns)
        writers = [(name, write) for name, write in found if write is not None]
        return table.written, taker(attributes), writers

    @cache  # noqa: B019
    def _changing(
        self, table: Table
    ) -> tuple[list[tuple[str, Callable[[Any], Any] | None]], Callable[[Any], tuple[Any, ...]]]:
        """Each column that may change and how it is written, and what takes their values from a record."""
        writers = dict(self._writing(table)[2])
        attributes = [table.computed.get(name, name) for name in table.changing]
        return [(name, writers.get(name)) for name in table.changing], taker(attributes)

    @cache  # noqa: B019
    def _reading(self, table: Table) -> tuple[Callable[[Iterable[Any]], Any], list[tuple[int, Callable[[Any], Any]]]]:
        """What makes a record of the values of the select list, and how those are read that are not as they are."""
        names: list[str] = [column.name for column in table.columns]
        readers = [self.reader(column) for column in table.columns]
        if table is TASK:
            names, readers = [*names, "blocked_by", "blocks"], [*readers, self.ids, self.ids]
        return maker(table.record, names), [(index, read) for index, read in enumerate(readers) if read is not None]

    @cache  # noqa: B019
    def named(self, statement: str) -> str:
        """A statement of `statements.py`, with the select lists and clauses of this dialect."""
        lists = {f"{table.name}_columns": self.select_list(table) for table in TABLES.values()}
        return statement.format(
            **lists,
            for_update=self.locks[Lock.UPDATE],
            for_share=self.locks[Lock.SHARE],
            skip_locked=self.skip_locked,
            true=self.true,
            labels_allowed=self.labels_allowed,
            team_excepted=self.team_excepted,
            transaction_id=self.transaction_id,
        )


class SqliteDialect(Dialect):
    name = "sqlite"
    ids_of_blockers = (
        "(SELECT json_group_array(blocker_id) FROM (SELECT e.blocker_id FROM task_edge e"
        " WHERE e.team_id = task.team_id AND e.task_id = task.id ORDER BY 1))"
    )
    ids_of_blocked = (
        "(SELECT json_group_array(task_id) FROM (SELECT e.task_id FROM task_edge e"
        " WHERE e.team_id = task.team_id AND e.blocker_id = task.id ORDER BY 1))"
    )
    # One transaction writes at a time: there is nobody to lock out.
    locks: Mapping[Lock, str] = dict.fromkeys(Lock, "")
    skip_locked = ""
    true = "1"
    no_limit = -1
    labels_allowed = (
        "NOT EXISTS (SELECT 1 FROM json_each(member.labels) wish"
        " WHERE wish.value NOT IN (SELECT value FROM json_each(:labels)))"
    )
    team_excepted = "team_id IN (SELECT value FROM json_each(:except_teams))"
    transaction_id = "NULL"

    def writer(self, column: Column) -> Callable[[Any], Any] | None:
        writers: dict[str, Callable[[Any], Any]] = {
            "time": self.moment,
            "json": self.json,
            "enum": attrgetter("_value_"),
            "bool": int,
        }
        return writers.get(column.kind)

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        match column.kind:
            case "time":
                return _read_moment
            case "bool":
                return bool
            case "enum":
                return _enum_reader(column.hint)
            case "json":
                return _json_reader(column)
        return None

    def moment(self, value: datetime) -> str:
        return _moment(value)

    def read_moment(self, value: Any) -> datetime:
        return _read_moment(value)

    def json(self, value: Any) -> str:
        return to_json(value)

    def read_json(self, value: Any) -> Any:
        return json.loads(value)

    def ids(self, value: Any) -> tuple[int, ...]:
        return () if value == "[]" else tuple(json.loads(value))


class PostgresDialect(Dialect):
    name = "postgresql"
    ids_of_blockers = (
        "ARRAY(SELECT e.blocker_id FROM task_edge e WHERE e.team_id = task.team_id AND e.task_id = task.id ORDER BY 1)"
    )
    ids_of_blocked = (
        "ARRAY(SELECT e.task_id FROM task_edge e WHERE e.team_id = task.team_id AND e.blocker_id = task.id ORDER BY 1)"
    )
    locks: Mapping[Lock, str] = {
        Lock.NONE: "",
        Lock.SHARE: "FOR SHARE",
        Lock.SHARE_IF_FREE: "FOR SHARE SKIP LOCKED",
        Lock.UPDATE: "FOR NO KEY UPDATE",
    }
    skip_locked = "FOR NO KEY UPDATE SKIP LOCKED"
    true = "true"
    no_limit = None
    labels_allowed = "member.labels::jsonb <@ :labels::jsonb"
    team_excepted = ":except_teams::jsonb @> to_jsonb(team_id)"
    transaction_id = "pg_current_xact_id()::text"

    def writer(self, column: Column) -> Callable[[Any], Any] | None:
        writers: dict[str, Callable[[Any], Any]] = {"json": self.json, "enum": attrgetter("_value_")}
        return writers.get(column.kind)

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        match column.kind:
            case "enum":
                return _enum_reader(column.hint)
            case "json":
                return _json_reader(column)
        return None

    def moment(self, value: datetime) -> datetime:
        return value

    def read_moment(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value

    def json(self, value: Any) -> str:
        # Text, not jsonb: it comes back as it was, key order and large numbers included.
        return to_json(value)

    def read_json(self, value: Any) -> Any:
        return json.loads(value)

    def ids(self, value: Any) -> tuple[int, ...]:
        return tuple(value)
