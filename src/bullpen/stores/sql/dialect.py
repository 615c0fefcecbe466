"""Where SQLite and PostgreSQL differ, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from bullpen.domain.codec import decode, encode
from bullpen.stores.sql.tables import TABLES, TASK, Column, Table
from bullpen.stores.transaction import Lock

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Dialect:
    """Statements are written once with `:name` parameters and `{…}` for what differs."""

    name: str
    ids_of_blockers: str
    ids_of_blocked: str
    locks: Mapping[Lock, str]
    skip_locked: str
    true: str
    no_limit: int | None

    def sql(self, statement: str) -> str:
        """The statement as this database wants it."""
        raise NotImplementedError

    def to_db(self, column: Column, value: Any) -> Any:
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
        values = {column.name: self.to_db(column, getattr(record, column.name)) for column in table.columns}
        values.update({name: compute(record) for name, compute in table.computed.items()})
        return values

    def record(self, table: Table, row: Sequence[Any]) -> Any:
        fields = dict(zip(self._names(table), row, strict=False))
        for name, read in self._readers(table):
            if fields[name] is not None:
                fields[name] = read(fields[name])
        if table is TASK:
            fields["blocked_by"] = self.ids(row[-2])
            fields["blocks"] = self.ids(row[-1])
        return table.record(**fields)

    @cache  # noqa: B019 - a dialect lives as long as the process
    def _names(self, table: Table) -> tuple[str, ...]:
        return tuple(column.name for column in table.columns)

    @cache  # noqa: B019
    def _readers(self, table: Table) -> list[tuple[str, Callable[[Any], Any]]]:
        found = ((column.name, self.reader(column)) for column in table.columns)
        return [(name, read) for name, read in found if read is not None]

    @cache  # noqa: B019
    def named(self, statement: str) -> str:
        """A statement of `statements.py`, with the select lists and clauses of this dialect."""
        lists = {f"{table.name}_columns": self.select_list(table) for table in TABLES.values()}
        filled = statement.format(
            **lists,
            for_update=self.locks[Lock.UPDATE],
            for_share=self.locks[Lock.SHARE],
            skip_locked=self.skip_locked,
            true=self.true,
        )
        return self.sql(filled)


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

    def sql(self, statement: str) -> str:
        return statement

    def to_db(self, column: Column, value: Any) -> Any:
        if value is None:
            return None
        if column.kind == "time":
            return self.moment(value)
        if column.kind == "json":
            return self.json(value)
        if column.kind == "enum":
            return value.value
        if column.kind == "bool":
            return int(value)
        return value

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        hint = column.hint
        match column.kind:
            case "time":
                return datetime.fromisoformat
            case "bool":
                return bool
            case "enum":
                return lambda value: hint(value)
            case "json":
                return lambda value: decode(hint, self.read_json(value))
        return None

    def moment(self, value: datetime) -> str:
        # A fixed width, so that text compares as time does.
        return value.isoformat(timespec="microseconds")

    def read_moment(self, value: Any) -> datetime:
        return datetime.fromisoformat(value)

    def json(self, value: Any) -> str:
        return _EMPTY.get(id(value)) or json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"))

    def read_json(self, value: Any) -> Any:
        return json.loads(value)

    def ids(self, value: Any) -> tuple[int, ...]:
        return () if value == "[]" else tuple(json.loads(value))


_EMPTY: dict[int, str] = {id(()): "[]"}


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

    def sql(self, statement: str) -> str:
        return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))

    def to_db(self, column: Column, value: Any) -> Any:
        if value is None:
            return None
        if column.kind == "json":
            return self.json(value)
        if column.kind == "enum":
            return value.value
        return value

    def reader(self, column: Column) -> Callable[[Any], Any] | None:
        hint = column.hint
        match column.kind:
            case "enum":
                return lambda value: hint(value)
            case "json":
                return lambda value: decode(hint, self.read_json(value))
        return None

    def moment(self, value: datetime) -> datetime:
        return value

    def read_moment(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value

    def json(self, value: Any) -> str:
        # Text, not jsonb: it comes back as it was, key order and large numbers included.
        return json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"))

    def read_json(self, value: Any) -> Any:
        return json.loads(value)

    def ids(self, value: Any) -> tuple[int, ...]:
        return tuple(value)
