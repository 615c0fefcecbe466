"""`Transaction` over SQL: one class for both databases, over `execute` and a dialect.

Events and rings are gathered: a database writes all events in one statement, as the
last thing before the commit, and is asked as seldom as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, cast

from bullpen.domain.background import Background
from bullpen.domain.budget import TEAM_ACCOUNT, Account, Reservation
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Autonomy, Member, MemberKind, MemberRef, MemberStatus, Team, Worker
from bullpen.domain.message import Message, MessageType
from bullpen.domain.record import replace
from bullpen.domain.request import Request, RequestKind, RequestStatus
from bullpen.domain.submission import Submission
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.text import name_key
from bullpen.domain.transcript import ToolCall, TranscriptEnd, Turn
from bullpen.stores.sql import statements
from bullpen.stores.sql.dialect import Dialect
from bullpen.stores.sql.tables import (
    ACCOUNT,
    BACKGROUND,
    MEMBER,
    REQUEST,
    RESERVATION,
    SUBMISSION,
    TABLES,
    TASK,
    TEAM,
    Table,
)
from bullpen.stores.transaction import EventRing, Lock, R, Ring

Row = tuple[Any, ...]
Parameters = Mapping[str, Any]


class NewEvent(NamedTuple):
    team_id: int
    kind: str
    actor: str
    data: Mapping[str, Any]


class SqlTransaction:
    def __init__(self, dialect: Dialect, now: datetime) -> None:
        self.now = now
        self._dialect = dialect
        self._events: list[NewEvent] = []
        self._rings: dict[Ring, None] = {}
        self._transaction_id: str | None = None
        self._stored: dict[Table, Any] = {}
        """Of each table the row that was read or written last, as it lies there: an update writes what differs."""

    # -- what a database provides --------------------------------------------------------

    async def execute(self, sql: str, parameters: Parameters) -> list[Row]:
        raise NotImplementedError

    async def claim_next(self, member: Member) -> Task | None:
        raise NotImplementedError

    async def lock_graph(self, team_id: int) -> None:
        raise NotImplementedError

    async def lock_claims(self, team_id: int) -> None:
        raise NotImplementedError

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        raise NotImplementedError

    async def last_position(self, team_id: int) -> str:
        raise NotImplementedError

    # -- shared -------------------------------------------------------------------------

    def _rows(self, statement: str, lock: Lock = Lock.NONE, /, **parameters: Any) -> Coroutine[Any, Any, list[Row]]:
        sql = self._dialect.named(statement)
        if lock is not Lock.NONE and (clause := self._dialect.locks[lock]):
            sql = f"{sql} {clause}"
        return self.execute(sql, parameters)

    async def _change(self, statement: str, /, **parameters: Any) -> None:
        """A write whose answer nobody needs: a database across a network may send it along with the next statement."""
        await self._rows(statement, **parameters)

    async def _all(self, table: Table, statement: str, lock: Lock = Lock.NONE, /, **parameters: Any) -> list[Any]:
        return [self._dialect.record(table, row) for row in await self._rows(statement, lock, **parameters)]

    async def _one(self, table: Table, statement: str, lock: Lock = Lock.NONE, /, **parameters: Any) -> Any | None:
        rows = await self._rows(statement, lock, **parameters)
        return self._stored_record(table, rows[0]) if rows else None

    def _stored_record(self, table: Table, row: Row) -> Any:
        read = self._dialect
        record = self._stored[table] = read.known_member(row) if table is MEMBER else read.record(table, row)
        return record

    async def _exists(self, statement: str, /, **parameters: Any) -> bool:
        return bool(await self._rows(statement, **parameters))

    async def _number(self, statement: str, /, **parameters: Any) -> int:
        rows = await self._rows(statement, **parameters)
        return int(rows[0][0])

    def foresee(self, *calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        return None

    def foresee_claim(self, ref: MemberRef) -> None:
        return None

    # -- any record -----------------------------------------------------------------------

    async def find(self, kind: type[R], *key: Any, lock: Lock = Lock.NONE) -> R | None:
        table = TABLES[kind]
        parameters = dict(zip(table.key, key, strict=True))
        found: R | None = await self._one(table, _find_statement(table), lock, **parameters)
        return found

    async def insert(self, record: R) -> R:
        table = TABLES[type(record)]
        row = self._dialect.row(table, record)
        if table.has_own_id:
            del row["id"]
            number = await self._number(_insert_statement(table), **row)
            return replace(record, id=number)
        await self._change(_insert_statement(table), **row)
        if isinstance(record, Task):
            for blocker_id in record.blocked_by:
                edge = {"team_id": record.team_id, "task_id": record.id, "blocker_id": blocker_id}
                await self._change(statements.ADD_EDGE, **edge)
        return record

    async def update(self, record: R) -> None:
        table = TABLES[type(record)]
        old, key_of = self._stored.get(table), table.key_taker()
        self._stored[table] = record
        if old is None or key_of(old) != key_of(record):
            await self._change(_update_statement(table, table.changing), **self._dialect.row(table, record))
        elif changed := self._dialect.changed(table, old, record):
            key = dict(zip(table.key, key_of(record), strict=True))
            await self._change(_update_statement(table, tuple(changed)), **changed, **key)

    # -- teams, workers, members -------------------------------------------------------------

    async def fence(self, ref: MemberRef, lock: Lock) -> tuple[Team, Member] | None:
        rows = await self._rows(statements.FENCE, team_id=ref.team_id, name_key=name_key(ref.name))
        if not rows:
            return None
        self._transaction_id = rows[0][-1]
        team, member = self._dialect.known_fence(rows[0][:-1])
        self._stored[MEMBER] = member
        return team, member

    async def find_live_team(self, key: str) -> Team | None:
        return cast("Team | None", await self._one(TEAM, statements.FIND_LIVE_TEAM, name_key=key))

    async def list_teams(self, include_deleted: bool) -> list[Team]:
        return await self._all(TEAM, statements.LIST_TEAMS if include_deleted else statements.LIST_LIVE_TEAMS)

    async def count_generations(self, key: str) -> int:
        return await self._number(statements.COUNT_GENERATIONS, name_key=key)

    async def list_workers(self, include_stopped: bool) -> list[Worker]:
        statement = statements.LIST_WORKERS if include_stopped else statements.LIST_LIVE_WORKERS
        return await self._all(TABLES[Worker], statement)

    async def list_members(self, team_id: int, lock: Lock = Lock.NONE) -> list[Member]:
        statement = statements.LIST_MEMBERS if lock is Lock.NONE else statements.HOLD_MEMBERS
        members = await self._all(MEMBER, statement, lock, team_id=team_id)
        return sorted(members, key=lambda member: (member.created_at, member.key))

    async def list_members_of(self, worker_id: int, lock: Lock) -> list[Member]:
        return await self._all(MEMBER, statements.LIST_MEMBERS_OF, lock, worker_id=worker_id)

    async def find_members(self, team_id: int, keys: Sequence[str], lock: Lock) -> list[Member]:
        found = [await self.find(Member, team_id, key, lock=lock) for key in sorted(set(keys))]
        return [member for member in found if member is not None]

    async def list_wanted(
        self,
        team_id: int | None,
        *,
        except_teams: Sequence[int],
        leads_only: bool,
        labels: Sequence[str],
        limit: int,
    ) -> list[Member]:
        sought = {"leads_only": int(leads_only), "labels": self._dialect.json(tuple(labels)), "limit": limit}
        if team_id is None:
            excepted = self._dialect.json(tuple(except_teams))
            return await self._all(MEMBER, statements.LIST_WANTED, except_teams=excepted, **sought)
        return await self._all(MEMBER, statements.LIST_WANTED_OF_TEAM, team_id=team_id, **sought)

    async def has_wanted(self) -> bool:
        return await self._exists(statements.HAS_WANTED)

    async def count_hosted(self, worker_id: int) -> int:
        return await self._number(statements.COUNT_HOSTED, worker_id=worker_id)

    async def count_teammates(self, team_id: int) -> int:
        return await self._number(statements.COUNT_TEAMMATES, team_id=team_id)

    async def list_claimers(
        self,
        team_id: int,
        role_key: str,
        statuses: Sequence[MemberStatus],
        limit: int,
        lock: Lock = Lock.NONE,
    ) -> list[Member]:
        return await self._all(
            MEMBER, claimers_statement(tuple(statuses)), lock, team_id=team_id, role_key=role_key, limit=limit
        )

    async def list_due_members(self, worker_id: int) -> list[Member]:
        due: dict[tuple[int, str], Member] = {}
        for statement in (statements.LIST_DUE_FOR_MAIL, statements.LIST_DUE_FOR_ASSIGNED):
            for member in await self._all(MEMBER, statement, worker_id=worker_id):
                due[member.team_id, member.key] = member
        for team_id, role_key in await self._rows(statements.LIST_IDLE_ROLES, worker_id=worker_id):
            for member in await self._idle_for_claimable(worker_id, team_id, role_key):
                due[member.team_id, member.key] = member
        return list(due.values())

    async def _idle_for_claimable(self, worker_id: int, team_id: int, role_key: str) -> list[Member]:
        """Not more than there are tasks: the safety net makes no stampede either."""
        count = 0
        for role in {"", role_key}:
            count += await self._number(statements.COUNT_CLAIMABLE, team_id=team_id, role_key=role, limit=100)
        if count == 0:
            return []
        return await self._all(
            MEMBER,
            statements.LIST_IDLE_OF_ROLE,
            team_id=team_id,
            role_key=role_key,
            worker_id=worker_id,
            limit=count,
        )

    async def has_role(self, team_id: int, role_key: str) -> bool:
        return await self._exists(statements.HAS_ROLE, team_id=team_id, role_key=role_key)

    # -- tasks --------------------------------------------------------------------------------

    async def take_task_id(self, team_id: int) -> int:
        rows = await self._rows(statements.TAKE_TASK_ID, team_id=team_id)
        return int(rows[0][0]) if rows else 0

    async def list_tasks(
        self, team_id: int, status: TaskStatus | None, owner_key: str | None, after_id: int, limit: int | None
    ) -> list[Task]:
        statement = {
            (False, False): statements.LIST_TASKS,
            (True, False): statements.LIST_TASKS_BY_STATUS,
            (False, True): statements.LIST_TASKS_BY_OWNER,
            (True, True): statements.LIST_TASKS_BY_STATUS_AND_OWNER,
        }[status is not None, owner_key is not None]
        parameters: dict[str, Any] = {"team_id": team_id, "after_id": after_id, "limit": self._limit(limit)}
        if status is not None:
            parameters["status"] = status.value
        if owner_key is not None:
            parameters["owner_key"] = owner_key
        return await self._all(TASK, statement, **parameters)

    async def find_tasks(self, team_id: int, ids: Sequence[int], lock: Lock) -> list[Task]:
        found = [await self.find(Task, team_id, number, lock=lock) for number in sorted(set(ids))]
        return [task for task in found if task is not None]

    async def list_claimable(self, member: Member, limit: int) -> list[Task]:
        key = {"team_id": member.team_id, "limit": limit}
        found = await self._all(TASK, statements.LIST_ASSIGNED, name_key=member.key, **key)
        free: list[Task] = []
        for role_key in {"", member.role_key}:
            free += await self._all(TASK, statements.LIST_CLAIMABLE, role_key=role_key, **key)
        return [*found, *sorted(free, key=lambda task: task.id)][:limit]

    async def claim(self, member: Member, number: int) -> Task | None:
        claimed = await self._one(
            TASK,
            statements.CLAIM_ONE,
            team_id=member.team_id,
            id=number,
            name=member.name,
            name_key=member.key,
            role_key=member.role_key,
            now=self._dialect.moment(self.now),
        )
        return cast("Task | None", claimed)

    async def list_in_progress(self, team_id: int) -> list[Task]:
        return await self._all(TASK, statements.LIST_IN_PROGRESS, team_id=team_id)

    async def find_in_progress(self, team_id: int, owner_key: str) -> Task | None:
        found = await self._one(TASK, statements.FIND_IN_PROGRESS, team_id=team_id, owner_key=owner_key)
        return cast("Task | None", found)

    async def clear_reservation(self, team_id: int, owner_key: str) -> None:
        await self._change(statements.CLEAR_RESERVATION, team_id=team_id, owner_key=owner_key)

    async def has_claimable(self, team_id: int, role_key: str) -> bool:
        return await self._exists(statements.HAS_CLAIMABLE, team_id=team_id, role_key=role_key)

    async def has_open_task_for(self, member: Member) -> bool:
        if await self._exists(statements.HAS_ASSIGNED_TASK, team_id=member.team_id, name_key=member.key):
            return True
        if member.autonomy is not Autonomy.AUTO or member.kind not in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
            return False
        return await self._exists(statements.HAS_FREE_TASK, team_id=member.team_id, role_key=member.role_key)

    async def has_tasks(self, team_id: int) -> bool:
        return await self._exists(statements.HAS_TASKS, team_id=team_id)

    async def list_reserved_before(self, moment: datetime) -> list[Task]:
        return await self._all(TASK, statements.LIST_RESERVED_BEFORE, moment=self._dialect.moment(moment))

    async def blockers_of(self, team_id: int, ids: Sequence[int]) -> Mapping[int, Sequence[int]]:
        return {task.id: task.blocked_by for task in await self.find_tasks(team_id, ids, Lock.NONE)}

    async def add_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        edge = {"team_id": team_id, "task_id": task_id, "blocker_id": blocker_id}
        added = await self._exists(statements.ADD_EDGE, **edge)
        if added and is_open:
            await self._change(statements.COUNT_BLOCKER, team_id=team_id, task_id=task_id, change=1)
        return added

    async def remove_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        edge = {"team_id": team_id, "task_id": task_id, "blocker_id": blocker_id}
        removed = await self._exists(statements.REMOVE_EDGE, **edge)
        if removed and is_open:
            await self._change(statements.COUNT_BLOCKER, team_id=team_id, task_id=task_id, change=-1)
        return removed

    async def settle_blocker(self, team_id: int, blocker_id: int, *, is_open: bool) -> list[Task]:
        dependents = await self._rows(statements.DEPENDENTS, team_id=team_id, blocker_id=blocker_id)
        freed = []
        for (task_id,) in dependents:
            await self._change(statements.COUNT_BLOCKER, team_id=team_id, task_id=task_id, change=1 if is_open else -1)
            task = await self.find(Task, team_id, task_id)
            if task is not None and task.status is TaskStatus.PENDING and task.open_blockers == 0:
                freed.append(task)
        return freed

    # -- the queue --------------------------------------------------------------------------------

    async def take_submission_id(self, team_id: int) -> int:
        return await self._number_in_team(statements.NEXT_SUBMISSION_ID, team_id)

    async def find_queued(self, team_id: int | None, except_teams: Sequence[int] = ()) -> Submission | None:
        found = (
            await self._one(SUBMISSION, statements.FIND_QUEUED, except_teams=self._dialect.json(tuple(except_teams)))
            if team_id is None
            else await self._one(SUBMISSION, statements.FIND_QUEUED_OF_TEAM, team_id=team_id)
        )
        return cast("Submission | None", found)

    async def list_submissions(self, team_id: int, open_only: bool) -> list[Submission]:
        statement = statements.LIST_OPEN_SUBMISSIONS if open_only else statements.LIST_SUBMISSIONS
        return await self._all(SUBMISSION, statement, team_id=team_id)

    async def list_submissions_of(self, team_id: int, member_key: str) -> list[Submission]:
        return await self._all(SUBMISSION, statements.LIST_SUBMISSIONS_OF, team_id=team_id, member_key=member_key)

    async def list_taken(self, worker_id: int) -> list[Submission]:
        return await self._all(SUBMISSION, statements.LIST_TAKEN, Lock.UPDATE, worker_id=worker_id)

    # -- mail, requests, transcript --------------------------------------------------------------

    async def list_undelivered(self, team_id: int, key: str, limit: int) -> list[Message]:
        return await self._all(
            TABLES[Message], statements.LIST_UNDELIVERED, Lock.UPDATE, team_id=team_id, key=key, limit=limit
        )

    async def list_offered(self, team_id: int, key: str, limit: int) -> list[Message]:
        return await self._all(TABLES[Message], statements.LIST_UNDELIVERED, team_id=team_id, key=key, limit=limit)

    async def has_undelivered(self, team_id: int, key: str) -> bool:
        return await self._exists(statements.HAS_UNDELIVERED, team_id=team_id, key=key)

    async def mark_delivered(self, team_id: int, key: str, ids: Sequence[int], turn_seq: int | None) -> None:
        now = self._dialect.moment(self.now)
        for number in ids:
            await self._change(statements.MARK_DELIVERED, team_id=team_id, id=number, now=now, turn_seq=turn_seq)

    async def list_mail(self, team_id: int, key: str, undelivered_only: bool, limit: int) -> list[Message]:
        statement = statements.LIST_MAIL_UNDELIVERED if undelivered_only else statements.LIST_MAIL
        newest = await self._all(TABLES[Message], statement, team_id=team_id, key=key, limit=limit)
        return newest[::-1]

    async def list_mail_keys(self, team_id: int) -> list[str]:
        return [key for (key,) in await self._rows(statements.LIST_MAIL_KEYS, team_id=team_id)]

    async def find_last_mail(self, team_id: int, key: str, sender: str, type: MessageType | None) -> Message | None:
        wanted = {"team_id": team_id, "key": key, "sender": sender, "type": "" if type is None else type.value}
        return cast("Message | None", await self._one(TABLES[Message], statements.FIND_LAST_MAIL, **wanted))

    async def take_request_id(self, team_id: int) -> int:
        rows = await self._rows(statements.TAKE_REQUEST_ID, team_id=team_id)
        return int(rows[0][0]) if rows else 0

    async def list_requests(
        self,
        team_id: int,
        status: RequestStatus | None,
        kind: RequestKind | None,
        asked_key: str | None,
        asker_key: str | None,
        lock: Lock = Lock.NONE,
    ) -> list[Request]:
        wanted = {"status": status, "kind": kind, "asked_key": asked_key, "asker_key": asker_key}
        given = {name: value for name, value in wanted.items() if value is not None}
        statement = _requests_statement(tuple(given))
        plain = {name: str(value) for name, value in given.items()}
        return await self._all(REQUEST, statement, lock, team_id=team_id, **plain)

    async def list_requests_due(self, moment: datetime) -> list[Request]:
        due = await self._all(REQUEST, statements.LIST_REQUESTS_DUE, moment=self._dialect.moment(moment))
        for member in await self._all(MEMBER, statements.LIST_STOPPING):
            said_yes = await self.find(Request, member.team_id, member.shutdown_request_id)
            if said_yes is not None and said_yes.status is RequestStatus.ANSWERED and _is_due(said_yes, moment):
                due.append(said_yes)
        return due

    async def find_end(self, team_id: int, key: str) -> TranscriptEnd:
        [(seq, has_open_calls)] = await self._rows(statements.FIND_END, team_id=team_id, key=key)
        return TranscriptEnd(seq, bool(has_open_calls))

    async def list_turns(self, team_id: int, key: str, after_seq: int, limit: int | None) -> list[Turn]:
        return await self._all(
            TABLES[Turn],
            statements.LIST_TURNS,
            team_id=team_id,
            key=key,
            after_seq=after_seq,
            limit=self._limit(limit),
        )

    async def list_calls(self, team_id: int, key: str, open_only: bool) -> list[ToolCall]:
        statement = statements.LIST_OPEN_CALLS if open_only else statements.LIST_CALLS
        return await self._all(TABLES[ToolCall], statement, team_id=team_id, key=key)

    def _limit(self, limit: int | None) -> int | None:
        return self._dialect.no_limit if limit is None else limit

    # -- background work, budgets ------------------------------------------------------------------

    async def take_background_id(self, team_id: int) -> int:
        return await self._number_in_team(statements.NEXT_BACKGROUND_ID, team_id)

    async def _number_in_team(self, statement: str, team_id: int) -> int:
        # Counted by a statement of its own: who had to wait for the lock must see what was written meanwhile.
        await self._change(statements.HOLD_TEAM, team_id=team_id)
        return await self._number(statement, team_id=team_id)

    async def list_backgrounds(self, team_id: int, key: str | None, running_only: bool) -> list[Background]:
        statement = statements.LIST_RUNNING_BACKGROUNDS if running_only else statements.LIST_BACKGROUNDS
        return await self._all(BACKGROUND, statement, team_id=team_id, key=key or "")

    async def hold_accounts(self, team_id: int, key: str) -> tuple[Account, Account]:
        held = await self._all(ACCOUNT, statements.HOLD_ACCOUNTS, Lock.UPDATE, team_id=team_id, key=key)
        if len(held) < 2:
            for each in (TEAM_ACCOUNT, key):
                await self._change(statements.MAKE_ACCOUNT, team_id=team_id, key=each)
            held = await self._all(ACCOUNT, statements.HOLD_ACCOUNTS, Lock.UPDATE, team_id=team_id, key=key)
        return held[0], held[1]

    async def list_accounts(self, team_id: int) -> list[Account]:
        return await self._all(ACCOUNT, statements.LIST_ACCOUNTS, team_id=team_id)

    async def list_open_reservations(self, team_id: int) -> list[Reservation]:
        return await self._all(RESERVATION, statements.LIST_OPEN_RESERVATIONS, team_id=team_id)

    # -- operations, events, rings ------------------------------------------------------------------

    async def find_operation(self, operation_id: str) -> Mapping[str, Any] | None:
        rows = await self._rows(statements.FIND_OPERATION, id=operation_id)
        return cast("Mapping[str, Any]", self._dialect.read_json(rows[0][0])) if rows else None

    async def save_operation(self, operation_id: str, outcome: Mapping[str, Any]) -> None:
        await self._change(
            statements.SAVE_OPERATION,
            id=operation_id,
            now=self._dialect.moment(self.now),
            outcome=self._dialect.json(outcome),
        )

    def record(self, team_id: int, kind: EventKind, actor: str, **data: Any) -> None:
        facts = {name: value for name, value in data.items() if value is not None}
        if not self._events or self._events[-1].team_id != team_id:
            self.ring(EventRing(team_id))
        self._events.append(NewEvent(team_id, kind._value_, actor, facts))

    def ring(self, ring: Ring) -> None:
        self._rings[ring] = None


def _is_due(request: Request, moment: datetime) -> bool:
    return request.open_until is not None and request.open_until < moment


@cache
def _find_statement(table: Table) -> str:
    where = " AND ".join(f"{column} = :{column}" for column in table.key)
    return f"SELECT {{{table.name}_columns}} FROM {table.name} WHERE {where}"


@cache
def _insert_statement(table: Table) -> str:
    names = [name for name in table.written if not (table.has_own_id and name == "id")]
    columns = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(f":{name}" for name in names)
    returning = " RETURNING id" if table.has_own_id else ""
    return f"INSERT INTO {table.name} ({columns}) VALUES ({values}){returning}"


@cache
def _update_statement(table: Table, columns: tuple[str, ...]) -> str:
    changed = ", ".join(f'"{name}" = :{name}' for name in columns)
    where = " AND ".join(f"{column} = :{column}" for column in table.key)
    return f"UPDATE {table.name} SET {changed} WHERE {where}"


@cache
def claimers_statement(statuses: tuple[MemberStatus, ...]) -> str:
    written = ", ".join(f"'{status.value}'" for status in statuses)
    return statements.LIST_CLAIMERS.replace("{statuses}", written)


@cache
def _requests_statement(filters: tuple[str, ...]) -> str:
    where = "".join(f" AND {name} = :{name}" for name in filters)
    return statements.LIST_REQUESTS.replace(" ORDER BY", f"{where} ORDER BY")
