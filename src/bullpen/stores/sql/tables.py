"""How each record of the domain lies in its table: columns from the dataclass, keys beside them.

A column's kind says how its value is written: `plain` as it is, `time`, `json`,
`bool` and `enum` by the dialect. What a table has beyond the fields of its record
(`name_key`, `role_key`, …) is computed from the record when it is written.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

from bullpen.domain.background import Background
from bullpen.domain.budget import Account, ProviderGate, Reservation
from bullpen.domain.member import Member, Team, Worker
from bullpen.domain.message import Message
from bullpen.domain.record import taker
from bullpen.domain.request import Request
from bullpen.domain.submission import Submission
from bullpen.domain.task import Task
from bullpen.domain.transcript import ToolCall, Turn


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: str  # plain | time | json | bool | enum
    hint: Any
    optional: bool

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    record: type
    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    computed: Mapping[str, str]
    """Columns beside the fields, and the attribute of the record that each is."""
    has_own_id: bool = False

    @cache  # noqa: B019 - a table lives as long as the process
    def key_taker(self) -> Callable[[Any], tuple[Any, ...]]:
        """What takes the values of the key from a record."""
        return taker([self.computed.get(name, name) for name in self.key])

    @property
    def written(self) -> tuple[str, ...]:
        """Every column that an insert writes."""
        return (*(column.name for column in self.columns), *self.computed)

    @property
    def changing(self) -> tuple[str, ...]:
        """Every column that an update writes."""
        # `open_blockers` is kept by edges alone: a record read earlier must not write an old count back.
        kept = {*self.key, "open_blockers"}
        return tuple(name for name in self.written if name not in kept)


def _column(name: str, hint: Any) -> Column:
    inner, optional = _without_none(hint)
    if inner in (int, str, float):
        kind = "plain"
    elif inner is bool:
        kind = "bool"
    elif inner is datetime:
        kind = "time"
    elif isinstance(inner, type) and issubclass(inner, Enum):
        kind = "enum"
    else:
        kind = "json"
    return Column(name, kind, inner, optional)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _table(
    record: type,
    name: str,
    key: tuple[str, ...],
    *,
    computed: Mapping[str, str] | None = None,
    leave_out: tuple[str, ...] = (),
) -> Table:
    hints = typing.get_type_hints(record)
    columns = tuple(
        _column(field.name, hints[field.name]) for field in dataclasses.fields(record) if field.name not in leave_out
    )
    return Table(record, name, key, columns, computed or {}, has_own_id=key == ("id",))


TEAM = _table(Team, "team", ("id",), computed={"name_key": "key"})
WORKER = _table(Worker, "worker", ("id",))
MEMBER = _table(Member, "member", ("team_id", "name_key"), computed={"name_key": "key", "role_key": "role_key"})
TASK = _table(
    Task,
    "task",
    ("team_id", "id"),
    computed={"role_key": "role_key", "owner_key": "owner_key"},
    # Edges lie in a table of their own and are read back beside the row.
    leave_out=("blocked_by", "blocks"),
)
MESSAGE = dataclasses.replace(
    _table(Message, "message", ("team_id", "id"), computed={"recipient_key": "recipient_key"}), has_own_id=True
)
REQUEST = _table(Request, "request", ("team_id", "id"), computed={"asker_key": "asker_key", "asked_key": "asked_key"})
TURN = _table(Turn, "turn", ("team_id", "member_key", "seq"), computed={"member_key": "member_key"})
TOOL_CALL = _table(ToolCall, "tool_call", ("team_id", "member_key", "call_id"), computed={"member_key": "member_key"})
BACKGROUND = _table(Background, "background", ("team_id", "id"), computed={"member_key": "member_key"})
SUBMISSION = _table(Submission, "submission", ("team_id", "id"), computed={"member_key": "member_key"})
RESERVATION = _table(Reservation, "reservation", ("team_id", "id"), computed={"member_key": "member_key"})
ACCOUNT = _table(Account, "account", ("team_id", "member_key"))
PROVIDER_GATE = _table(ProviderGate, "provider_gate", ("provider_key",))

TABLES: Mapping[type, Table] = {
    table.record: table
    for table in (
        TEAM,
        WORKER,
        MEMBER,
        TASK,
        MESSAGE,
        REQUEST,
        TURN,
        TOOL_CALL,
        BACKGROUND,
        SUBMISSION,
        RESERVATION,
        ACCOUNT,
        PROVIDER_GATE,
    )
}
