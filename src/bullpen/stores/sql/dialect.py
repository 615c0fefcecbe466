"""Where SQLite and PostgreSQL differ, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from bullpen.domain.codec import decoder, encode
from bullpen.stores.sql.tables import TABLES, TASK, Column, Table
from bullpen.stores.transaction import Lock

# Made once: `json.dumps` with these arguments would make it for every value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=encode)


def to_json(value: Any) -> str:
    # Most lists and mappings of a row are empty.
    if not value and isinstance(value, tuple | dict):
        return "{}" if isinstance(value, dict) else "[]"
    return _ENCODER.encode(value)


def _json_reader(hint: Any) -> Callable[[str], Any]:
    build = decoder(hint)

    def read(text: str) -> Any:
        if text == "[]":
            return build([])
        return build({} if text == "{}" else json.loads(text))

    return read


def _enum_reader(kind: type[Enum]) -> Callable[[Any], Enum]:
    members = {member.value: member for member in kind}
    # One that is not there is told of by the type itself.
    return lambda value: members.get(value) or kind(value)


# The same moments are written and read many times: that of a transaction into many columns, that of a record's
# creation with every change of it. In UTC and of a fixed width, so that text compares as time does.
@lru_cache(maxsize=4096)
def _moment(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


_read_moment = lru_cache(maxsize=4096)(datetime.fromisoformat)


class Dialect:
    """Statements are written once with `:name` parameters and `{…}` for what differs."""

    name: str
    ids_of_blockers: str
    ids_of_blocked: str
    locks: Mapping[Lock, str]
    skip_locked: str
    true: str
    no_limit: int | None
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
        values = dict(zip(self._names(table), self._values(table)(record), strict=True))
        for name, write in self._writers(table):
            if values[name] is not None:
                values[name] = write(values[name])
        for name, compute in table.computed.items():
            values[name] = compute(record)
        return values

    def changed(self, table: Table, old: Any, new: Any) -> dict[str, Any]:
        """The parameters of an update that makes the one of the other: of the columns that differ."""
        values = {}
        for name, get, write in self._changing(table):
            before, after = get(old), get(new)
            if before is not after and before != after:
                values[name] = after if write is None or after is None else write(after)
        return values

    def record(self, table: Table, row: Sequence[Any]) -> Any:
        names, readers = self._reading(table)
        values = list(row)
        for index, read in readers:
            value = values[index]
            if value is not None:
                values[index] = read(value)
        return table.record(**dict(zip(names, values, strict=False)))

    @lru_cache(maxsize=1024)  # noqa: B019 - a dialect lives as long as the process
    def known_record(self, table: Table, row: tuple[Any, ...]) -> Any:
        """`record` for rows that come again and again as they were, such as who writes."""
        return self.record(table, row)

    @cache  # noqa: B019
    def _names(self, table: Table) -> tuple[str, ...]:
        return tuple(column.name for column in table.columns)

    @cache  # noqa: B019
    def _values(self, table: Table) -> attrgetter[tuple[Any, ...]]:
        return attrgetter(*self._names(table))

    @cache  # noqa: B019
    def _writers(self, table: Table) -> list[tuple[str, Callable[[Any], Any]]]:
        found = ((column.name, self.writer(column)) for column in table.columns)
        return [(name, write) for name, write in found if write is not None]

    @cache  # noqa: B019
    def _changing(self, table: Table) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None]]:
        """Each column that may change: how its value is taken from a record, and how it is written."""
        writers = dict(self._writers(table))
        return [(name, table.computed.get(name, attrgetter(name)), writers.get(name)) for name in table.changing]

    @cache  # noqa: B019
    def _reading(self, table: Table) -> tuple[tuple[str, ...], list[tuple[int, Callable[[Any], Any]]]]:
        """The fields in the order of the select list, and how those are read back that are not as they are."""
        names, readers = self._names(table), [self.reader(column) for column in table.columns]
        if table is TASK:
            names, readers = (*names, "blocked_by", "blocks"), [*readers, self.ids, self.ids]
        return names, [(index, read) for index, read in enumerate(readers) if read is not None]

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
    locks: Mapping[Lock, str] = {Lock.NONE: "", Lock.SHARE: "", Lock.UPDATE: ""}
    skip_locked = ""
    true = "1"
    no_limit = -1
    transaction_id = "NULL"

    def writer(self, column: Column) -> Callable[[Any], Any] | None:
        writers: dict[str, Callable[[Any], Any]] = {
            "time": self.moment,
            "json": self.json,
            "enum": attrgetter("value"),
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
                return _json_reader(column.hint)
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
    locks: Mapping[Lock, str] = {Lock.NONE: "", Lock.SHARE: "FOR SHARE", Lock.UPDATE: "FOR NO KEY UPDATE"}
    skip_locked = "FOR NO KEY UPDATE SKIP LOCKED"
    true = "true"
    no_limit = None
    transaction_id = "pg_current_xact_id()::text"

    def writer(self, column: Column) -> Callable[[Any], Any] | None:
        writers: dict[str, Callable[[Any], Any]] = {"json": self.json, "enum": attrgetter("value")}
        return writers.get(column.kind)

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        match column.kind:
            case "enum":
                return _enum_reader(column.hint)
            case "json":
                return _json_reader(column.hint)
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
