"""A transaction on one connection: READ COMMITTED with row locks for verbs, one snapshot for reads.

Round trips are what it saves. BEGIN goes along with the first statement; a write
whose answer nobody needs goes along with the next one; events, notices and COMMIT
go together at the end. A transaction that has written nothing is rolled back,
which spares the flush of the disk.

**Who looks and finds nothing goes to sleep**, and two things could let it sleep for ever.
A writer that is just making a task claimable still saw it at work, so it rings for
nobody; or the claim passed over a row that was locked only to be looked at. So such
a look is undone (`LookAgain`), those writers are waited for without holding anything
(holding its member, it would wait for one who waits for it), and it looks again.

**Positions of events.** Each transaction takes one number for its events as the last
thing before its commit. So who had to wait for another's lock stands after it in
the log, and a verb that began after another had returned does too. But a number is
taken before the commit, and who reads on from the last one seen would pass over one
that commits late. Therefore the events are written in a subtransaction, whose id is
given out after the number was: whoever took a lower number has a lower id. Once all
transactions below it have ended, everything up to this event is in place, and only
then it is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from bullpen.domain.event import Event
from bullpen.domain.member import Member, MemberStatus
from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import UsageError
from bullpen.stores.postgresql import channel
from bullpen.stores.postgresql.wire import Answer, Lost, Statement, Wire
from bullpen.stores.sql import statements
from bullpen.stores.sql.dialect import PostgresDialect
from bullpen.stores.sql.tables import TASK
from bullpen.stores.sql.transaction import Parameters, Row, SqlTransaction, claimers_statement
from bullpen.stores.transaction import EventRing, Lock, MemberRing, Ring, WantedRing

DIALECT = PostgresDialect()

_BEGIN = Statement("BEGIN", {})
_BEGIN_LOOKING = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {})
_COMMIT = Statement("COMMIT", {})
_ROLLBACK = Statement("ROLLBACK", {})

_LOCK_GRAPH = "SELECT pg_advisory_xact_lock(hashtext('bullpen graph'), hashint8(:team_id))"
_OFFER = "SELECT pg_advisory_xact_lock_shared(hashtext('bullpen offer'), hashint8(:team_id))"
_WAIT_FOR_OFFERS = "SELECT pg_advisory_xact_lock(hashtext('bullpen offer'), hashint8(:team_id))"

_SAVEPOINT = Statement("SAVEPOINT events", {})

# Events, and a notice to those processes that follow one of the teams; ours is told directly. The number is taken once,
# before the first row is written, and writing that one is what gives the subtransaction its id.
_RECORD = """
    WITH recorded AS (
        INSERT INTO event (team_id, number, n, kind, at, actor, data)
        SELECT team_id, (SELECT nextval('event_number')), n, kind, :now::timestamptz, actor, data
        FROM ROWS FROM (json_to_recordset(:events) AS (team_id bigint, kind text, actor text, data text))
          WITH ORDINALITY AS new (team_id, kind, actor, data, n))
    SELECT count(pg_notify(:prefix::text || team_id, :process)) FROM follower
    WHERE team_id = ANY(:teams) AND until > clock_timestamp() AND process <> :process
"""

_NOTIFY = """
    SELECT count(pg_notify(channel, payload)) FROM json_to_recordset(:notices) AS new (channel text, payload text)
"""

_TRANSACTION_ID = Statement("SELECT pg_current_xact_id()::text", {})

# The oldest open transaction that may yet write here: those of other databases of the server do not count. One that
# ended since the snapshot was taken cannot be told from ours, and counts. A standby does not list them one by one.
_HORIZON = """
    (SELECT CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE coalesce(
        (SELECT open_one FROM pg_snapshot_xip(pg_current_snapshot()) AS open_one
         WHERE NOT EXISTS (
            SELECT 1 FROM pg_stat_activity AS other
            WHERE other.backend_xid = open_one::xid AND other.datname <> current_database())
         ORDER BY open_one LIMIT 1),
        pg_snapshot_xmax(pg_current_snapshot())) END)
"""

_END = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"

# `xmin` is who wrote the row, in 32 bits: the latest id that ends in them.
_IS_SETTLED = f"{_END} - (({_END} - event.xmin::text::bigint) & 4294967295) <= {_HORIZON}::text::bigint"

_LIST_EVENTS = f"""
    SELECT number, n, kind, at, actor, data, {_IS_SETTLED} FROM event
    WHERE team_id = :team_id AND (number, n) > (:number, :n) ORDER BY number, n LIMIT :limit
"""

_IS_FUTURE = "SELECT 1 FROM event_number WHERE :number > last_value"

_LAST_EVENT = f"""
    SELECT number, n, {_IS_SETTLED} FROM event
    WHERE team_id = :team_id ORDER BY number DESC, n DESC LIMIT 1
"""

_LAST_SETTLED_EVENT = f"""
    SELECT number, n FROM event
    WHERE team_id = :team_id AND {_IS_SETTLED} ORDER BY number DESC, n DESC LIMIT 1
"""

HORIZON = f"SELECT {_HORIZON}::text"

_POSITION = re.compile(r"([0-9]{1,18})-([0-9]{1,9})")
START = "0-0"


class CommitUnknown(Exception):
    """The connection was lost while COMMIT was under way."""

    def __init__(self, transaction_id: str) -> None:
        super().__init__(transaction_id)
        self.transaction_id = transaction_id


class LookAgain(Exception):
    """Nothing is there, as far as can be seen. `holders` waits for those who may be about to put something there."""

    def __init__(self, *, holders: Sequence[Statement], places: Sequence[Statement] = ()) -> None:
        super().__init__()
        self.holders = holders
        self.places = places
        """Where it would be: if one of them has a row now, it is worth looking once more after that."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a reader of the log may see, and whether there is more that it may not see yet."""

    events: list[Event]
    is_behind: bool


class PostgresTransaction(SqlTransaction):
    def __init__(
        self,
        wire: Wire,
        now: datetime,
        *,
        process: str = "",
        own_workers: Container[int] = (),
        looks_only: bool = False,
        may_look_again: bool = False,
    ) -> None:
        super().__init__(DIALECT, now)
        self._wire = wire
        self._process = process
        self._own_workers = own_workers
        self._may_look_again = may_look_again
        self._begin = _BEGIN_LOOKING if looks_only else _BEGIN
        self._deferred: list[Statement] = []
        self._foreseen: dict[tuple[str, tuple[Any, ...]], list[Row]] = {}
        self._has_begun = False
        self._has_written = False
        self.operation_id: str | None = None

    # -- statements ---------------------------------------------------------------------------

    async def execute(self, sql: str, parameters: Parameters) -> list[Row]:
        if self._foreseen and (known := self._foreseen.pop(_question(sql, parameters), None)) is not None:
            return known
        return (await self._run(Statement(sql, parameters)))[-1].rows

    async def _change(self, statement: str, /, **parameters: Any) -> None:
        self._deferred.append(Statement(self._dialect.named(statement), parameters))
        self._has_written = True

    async def _run(self, *batch: Statement) -> list[Answer]:
        """Together with what was deferred. Returns the answers to `batch`."""
        waiting, self._deferred = self._deferred, []
        if not self._has_begun:
            self._has_begun = True
            waiting = [self._begin, *waiting]
        answers = (await self._wire.run([*waiting, *batch]))[len(waiting) :]
        self._has_written |= any(answer.changed for answer in answers)
        return answers

    @property
    def rings(self) -> list[Ring]:
        return list(self._rings)

    # -- the end --------------------------------------------------------------------------------

    async def finish(self) -> list[Ring]:
        """Write what was gathered and commit; what is to ring in this process. `CommitUnknown` if that is so."""
        rings = list(self._rings)
        if not (self._has_written or self._events or rings):
            await self.roll_back()
            return []
        last = self._last_statements(rings)
        if self._transaction_id is None:
            # Without a name for the transaction nobody could ask what became of it: COMMIT goes alone.
            answers = await self._run(_TRANSACTION_ID, *last)
            self._transaction_id = answers[0].rows[0][0]
            last = []
        await self._commit(last)
        return rings

    async def _commit(self, last: list[Statement]) -> None:
        assert self._transaction_id is not None
        waiting, self._deferred = self._deferred, []
        try:
            await self._wire.run([*waiting, *last, _COMMIT], keep_cancellation=True)
        except Lost as error:
            self._has_begun = False
            raise CommitUnknown(self._transaction_id) from error
        self._has_begun = False

    async def roll_back(self) -> None:
        if self._has_begun:
            self._has_begun = False
            await self._wire.run([_ROLLBACK])

    def _last_statements(self, rings: list[Ring]) -> list[Statement]:
        last = []
        if self._events:
            last += [_SAVEPOINT, Statement(_RECORD, self._record_parameters())]
        notices = [notice for ring in rings if (notice := self._notice(ring)) is not None]
        if notices:
            last.append(Statement(_NOTIFY, {"notices": json.dumps(notices)}))
        return last

    def _record_parameters(self) -> Mapping[str, Any]:
        rows = [
            {"team_id": event.team_id, "kind": event.kind, "actor": event.actor, "data": DIALECT.json(event.data)}
            for event in self._events
        ]
        return {
            "events": json.dumps(rows, ensure_ascii=False, separators=(",", ":")),
            "now": self.now,
            "teams": sorted({event.team_id for event in self._events}),
            "prefix": channel.TEAM_PREFIX,
            "process": self._process,
        }

    def _notice(self, ring: Ring) -> Mapping[str, str] | None:
        match ring:
            case MemberRing():
                if ring.worker_id in self._own_workers:
                    return None
                return {"channel": channel.of_worker(ring.worker_id), "payload": channel.member_payload(ring)}
            case WantedRing():
                return {"channel": channel.WANTED, "payload": self._process}
            case EventRing():
                return None

    # -- where one statement does what takes SQLite several -----------------------------------------

    async def _fence_rows(self, lock: Lock, **parameters: Any) -> list[Row]:
        """Hold the member, then read: who had to wait must not see the team as it was before."""
        hold = f"{DIALECT.named(statements.HOLD_MEMBER)} {DIALECT.locks[lock]}"
        fence = DIALECT.named(statements.FENCE)
        _, found = await self._run(Statement(hold, parameters), Statement(fence, parameters))
        return found.rows

    async def find_operation(self, operation_id: str) -> Mapping[str, Any] | None:
        self.operation_id = operation_id
        return await super().find_operation(operation_id)

    async def claim_next(self, member: Member) -> Task | None:
        claim = Statement(
            DIALECT.named(statements.CLAIM_NEXT_POSTGRES),
            {
                "team_id": member.team_id,
                "name": member.name,
                "name_key": member.key,
                "role_key": member.role_key,
                "now": self.now,
            },
        )
        # Whoever claims then asks who else is idle: ask along with it.
        idle = Statement(
            DIALECT.named(claimers_statement((MemberStatus.IDLE,))),
            {"team_id": member.team_id, "role_key": "", "limit": 2},
        )
        claimed, others = await self._run(claim, idle)
        if claimed.rows:
            self._foreseen[_question(idle.sql, idle.parameters)] = others.rows
            return cast("Task", DIALECT.record(TASK, claimed.rows[0]))
        if self._may_look_again:
            raise _look_again_for_tasks(member)
        return None

    async def has_open_task_for(self, member: Member) -> bool:
        found = await super().has_open_task_for(member)
        if not found and self._may_look_again:
            raise LookAgain(holders=[Statement(_WAIT_FOR_OFFERS, {"team_id": member.team_id})])
        return found

    async def find_wanted(self, team_id: int | None) -> Member | None:
        found = await super().find_wanted(team_id)
        if found is None and self._may_look_again:
            place = statements.WAIT_FOR_WANTED if team_id is None else statements.WAIT_FOR_WANTED_OF_TEAM
            raise LookAgain(holders=[], places=[Statement(DIALECT.named(place), {"team_id": team_id})])
        return found

    async def list_claimers(
        self, team_id: int, role_key: str, statuses: Sequence[MemberStatus], limit: int, lock: Lock = Lock.NONE
    ) -> list[Member]:
        if lock is not Lock.NONE:
            self._deferred.append(Statement(_OFFER, {"team_id": team_id}))
        return await super().list_claimers(team_id, role_key, statuses, limit, lock)

    async def find_tasks(self, team_id: int, ids: Sequence[int], lock: Lock) -> list[Task]:
        return await self._all(TASK, statements.FIND_TASKS, lock, team_id=team_id, ids=sorted(set(ids)))

    async def lock_graph(self, team_id: int) -> None:
        await self.execute(_LOCK_GRAPH, {"team_id": team_id})

    async def settle_blocker(self, team_id: int, blocker_id: int, *, is_open: bool) -> list[Task]:
        held = await self._rows(statements.HOLD_DEPENDENTS, team_id=team_id, blocker_id=blocker_id)
        if not held:
            return []
        counted = await self._all(
            TASK,
            statements.COUNT_BLOCKER_OF_ALL,
            team_id=team_id,
            ids=[number for (number,) in held],
            change=1 if is_open else -1,
        )
        freed = [task for task in counted if task.status is TaskStatus.PENDING and task.open_blockers == 0]
        return sorted(freed, key=lambda task: cast(int, task.id))

    async def mark_delivered(self, team_id: int, key: str, ids: Sequence[int], turn_seq: int | None) -> None:
        await self._change(
            statements.MARK_ALL_DELIVERED, team_id=team_id, ids=list(ids), now=self.now, turn_seq=turn_seq
        )

    # -- events -------------------------------------------------------------------------------------

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        return (await self.look_at_events(team_id, after, limit)).events

    async def look_at_events(self, team_id: int, after: str, limit: int) -> Look:
        number, n = parse_position(after)
        future, found = await self._run(
            Statement(_IS_FUTURE, {"number": number}),
            Statement(_LIST_EVENTS, {"team_id": team_id, "number": number, "n": n, "limit": limit}),
        )
        if future.rows:
            raise _no_position(after)
        rows = found.rows
        # Up to the last settled one everything is in place.
        while rows and not rows[-1][6]:
            rows = rows[:-1]
        return Look([_event(team_id, row) for row in rows], is_behind=len(rows) < len(found.rows))

    async def last_position(self, team_id: int) -> str:
        return (await self.look_at_end(team_id))[0]

    async def look_at_end(self, team_id: int) -> tuple[str, bool]:
        """The position of the last event that may be seen; is there a later one?"""
        newest = await self.execute(_LAST_EVENT, {"team_id": team_id})
        if not newest or newest[0][2]:
            return _position_of(newest), False
        return _position_of(await self.execute(_LAST_SETTLED_EVENT, {"team_id": team_id})), True


def _look_again_for_tasks(member: Member) -> LookAgain:
    key = {"team_id": member.team_id, "name_key": member.key}
    claimable = DIALECT.named(statements.WAIT_FOR_CLAIMABLE)
    return LookAgain(
        holders=[Statement(_WAIT_FOR_OFFERS, key)],
        places=[
            Statement(DIALECT.named(statements.WAIT_FOR_ASSIGNED), key),
            *(Statement(claimable, {**key, "role_key": role_key}) for role_key in {"", member.role_key}),
        ],
    )


def _question(sql: str, parameters: Parameters) -> tuple[str, tuple[Any, ...]]:
    return sql, tuple(sorted(parameters.items()))


def _event(team_id: int, row: Row) -> Event:
    number, n, kind, at, actor, data, _ = row
    return Event(team_id=team_id, position=f"{number}-{n}", kind=kind, at=at, actor=actor, data=DIALECT.read_json(data))


def _position_of(rows: list[Row]) -> str:
    return f"{rows[0][0]}-{rows[0][1]}" if rows else START


def parse_position(after: str) -> tuple[int, int]:
    if not after:
        return 0, 0
    found = _POSITION.fullmatch(after)
    if found is None:
        raise _no_position(after)
    return int(found[1]), int(found[2])


def _no_position(after: str) -> UsageError:
    return UsageError(f"{after[:40]!r} is not a position of this store's log")
