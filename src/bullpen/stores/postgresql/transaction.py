"""A transaction on one connection: READ COMMITTED with row locks for verbs, one snapshot for reads.

Round trips are what it saves. BEGIN goes along with the first statement, and so does
what the verb has foreseen that it will ask; a write whose answer nobody needs goes
along with the next one; events, notices and COMMIT go together at the end. So most
verbs are two round trips. A transaction that has written nothing is rolled back, which
spares the flush of the disk.

**What was foreseen** is asked right behind the fence, before anybody has looked at what
that said: if it forbids the verb, all is rolled back, what was asked included.

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
from collections.abc import Callable, Container, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, cast

from bullpen.domain.event import Event
from bullpen.domain.member import Member, MemberRef, MemberStatus, Team
from bullpen.domain.message import Message
from bullpen.domain.record import replace
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.text import name_key
from bullpen.errors import UsageError
from bullpen.stores.postgresql import channel
from bullpen.stores.postgresql.wire import Answer, Lost, Statement, Wire, statement
from bullpen.stores.sql import statements
from bullpen.stores.sql.dialect import PostgresDialect
from bullpen.stores.sql.tables import MEMBER, MESSAGE, TASK, TEAM
from bullpen.stores.sql.transaction import Parameters, Row, SqlTransaction, claimers_statement
from bullpen.stores.transaction import EventRing, Lock, MemberRing, R, Ring, SubmissionRing, WantedRing, drive

DIALECT = PostgresDialect()

_BEGIN = Statement("BEGIN", {})
_BEGIN_LOOKING = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {})
_COMMIT = Statement("COMMIT", {})
_ROLLBACK = Statement("ROLLBACK", {})

_LOCK_CLAIMS = "SELECT pg_advisory_xact_lock(hashtext('bullpen claims'), hashint8(:team_id))"
_LOCK_GRAPH = "SELECT pg_advisory_xact_lock(hashtext('bullpen graph'), hashint8(:team_id))"
_OFFER = "SELECT pg_advisory_xact_lock_shared(hashtext('bullpen offer'), hashint8(:team_id))"
_WAIT_FOR_OFFERS = "SELECT pg_advisory_xact_lock(hashtext('bullpen offer'), hashint8(:team_id))"

_SAVEPOINT = Statement("SAVEPOINT events", {})

_NOTIFY_ONE = "SELECT pg_notify(:channel, :payload)"
_NOTIFY_ALL = """
    SELECT count(pg_notify(channel, payload)) FROM json_to_recordset(:notices) AS new (channel text, payload text)
"""

# Events, and a notice to those processes that follow one of the teams; ours is told directly. The number is taken once,
# before the first row is written, and writing that one is what gives the subtransaction its id. Other notices go along:
# each statement costs the server as much as to write a row.
_RECORD_ONE = """
    WITH recorded AS (
        INSERT INTO event (team_id, number, n, kind, at, actor, data)
        VALUES (:team_id, nextval('event_number'), 1, :kind, :now, :actor, :data))
"""
_RECORD_ALL = """
    WITH recorded AS (
        INSERT INTO event (team_id, number, n, kind, at, actor, data)
        SELECT team_id, (SELECT nextval('event_number')), n, kind, :now::timestamptz, actor, data
        FROM ROWS FROM (json_to_recordset(:events) AS (team_id bigint, kind text, actor text, data text))
          WITH ORDINALITY AS new (team_id, kind, actor, data, n))
"""
_TELL_FOLLOWERS = """
    SELECT (SELECT count(pg_notify(:prefix::text || team_id, :process)) FROM follower
            WHERE team_id = ANY(:teams) AND until > clock_timestamp() AND process <> :process)
"""
_RECORD = {
    (record, notify): f"{record} {_TELL_FOLLOWERS} {f', ({notify})' if notify else ''}"
    for record in (_RECORD_ONE, _RECORD_ALL)
    for notify in ("", _NOTIFY_ONE, _NOTIFY_ALL)
}

_FIND_EVENT = """
    SELECT 1 FROM event
    WHERE team_id = :team_id AND at = :now AND kind = :kind AND actor = :actor AND data = :data LIMIT 1
"""

_FENCE = {lock: f"{DIALECT.named(statements.FIND_MEMBER)} {clause}" for lock, clause in DIALECT.locks.items()}
_TEAM_OF_FENCE = DIALECT.named(statements.TEAM_OF_FENCE)
# Who only looks needs no id, and on a standby there is none to be had.
_TEAM_TO_LOOK_AT = DIALECT.named(statements.TEAM_OF_FENCE.replace("{transaction_id}", "NULL::text"))

_HOLD_TASK = {lock: f"{statements.HOLD_TASK} {clause}" for lock, clause in DIALECT.locks.items()}
_FIND_TASK = DIALECT.named(statements.FIND_TASK)

_CLAIM_NEXT = DIALECT.named(statements.CLAIM_NEXT_POSTGRES)
_CLAIM_NEXT_WITHOUT_ROLE = DIALECT.named(statements.CLAIM_NEXT_WITHOUT_ROLE)
_IDLE_CLAIMERS = DIALECT.named(claimers_statement((MemberStatus.IDLE,)))

_RECIPIENT = {
    lock: f"""
    SELECT {DIALECT.select_list(MEMBER)}, nextval('message_id_seq') FROM member
    WHERE team_id = :team_id AND name_key = :name_key {clause}
"""
    for lock, clause in DIALECT.locks.items()
}
_HOLD_WHO_CAN_BE_REVIVED = f"{statements.HOLD_WHO_CAN_BE_REVIVED} {DIALECT.locks[Lock.UPDATE]}"
_INSERT_MESSAGE = (
    f"INSERT INTO message ({', '.join(MESSAGE.written)}) OVERRIDING SYSTEM VALUE "
    f"VALUES ({', '.join(f':{name}' for name in MESSAGE.written)})"
)

_TRANSACTION_ID = Statement("SELECT pg_current_xact_id()::text", {})

# The oldest open transaction that may yet write here: those of other databases of the server, with a session or
# prepared, do not count. One that ended since the snapshot was taken cannot be told from ours, and counts. A standby
# does not list them one by one.
_HORIZON = """
    (SELECT CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE coalesce(
        (SELECT open_one FROM pg_snapshot_xip(pg_current_snapshot()) AS open_one
         WHERE NOT EXISTS (
            SELECT 1 FROM pg_stat_activity AS other
            WHERE other.backend_xid = open_one::xid AND other.datname <> current_database())
          AND NOT EXISTS (
            SELECT 1 FROM pg_prepared_xacts AS other
            WHERE other.transaction = open_one::xid AND other.database <> current_database())
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

_MAX_CLAIMERS = 10_000


class CommitUnknown(Exception):
    """The connection was lost while COMMIT was under way. `trace` finds the first event of the transaction."""

    def __init__(self, transaction_id: str, trace: Statement | None) -> None:
        super().__init__(transaction_id)
        self.transaction_id = transaction_id
        self.trace = trace


class _Noted(Exception):
    """A question was noted, and has no answer yet."""


class Unforeseen(Exception):
    """What was foreseen must not be: all is undone and done again without it."""


class LookAgain(Exception):
    """Nothing is there, as far as can be seen. `holders` waits for those who may be about to put something there."""

    def __init__(self, *, holders: Sequence[Statement], places: Sequence[Statement] = ()) -> None:
        super().__init__()
        self.holders = holders
        self.places = places
        """Where it would be: if one of them has a row now, it is worth looking once more after that."""


class Claimer(NamedTuple):
    """What a claim depends on."""

    team_id: int
    name: str
    role_key: str


Claimers = MutableMapping[tuple[int, str], Claimer]


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
        claimers: Claimers | None = None,
        looks_only: bool = False,
        may_look_again: bool = False,
        has_clashed: bool = False,
    ) -> None:
        super().__init__(DIALECT, now)
        self._share = Lock.UPDATE if has_clashed else Lock.SHARE
        """How recipients are held. Who share one and then all revive it wait for each other: the second time alone."""
        self._wire = wire
        self._process = process
        self._own_workers = own_workers
        self._claimers: Claimers = {} if claimers is None else claimers
        self._may_look_again = may_look_again
        self._begin = _BEGIN_LOOKING if looks_only else _BEGIN
        self._deferred: list[Statement] = []
        self._is_noting = False
        self._expected: list[Statement] = []
        self._foreseen: list[tuple[Statement, Answer]] = []
        self._offered: set[int] = set()
        self._message_ids: list[int] = []
        self._has_begun = False
        self._has_written = False
        self._foresaw_claim = False
        self._claims_apart = False
        self.operation_id: str | None = None

    # -- statements ---------------------------------------------------------------------------

    async def execute(self, sql: str, parameters: Parameters) -> list[Row]:
        return (await self._run(Statement(sql, parameters)))[-1].rows

    async def _change(self, statement: str, /, **parameters: Any) -> None:
        self._deferred.append(Statement(self._dialect.named(statement), parameters))
        self._has_written = True

    async def _run(self, *batch: Statement) -> list[Answer]:
        """Together with what was deferred, and what is expected to be asked next. Returns the answers to `batch`."""
        if self._is_noting:
            self._expected += [*self._deferred, *batch]
            self._deferred = []
            raise _Noted
        if self._foreseen and (known := self._known(batch)):
            return known
        waiting, self._deferred = self._deferred, []
        expected, self._expected = self._expected, []
        if not self._has_begun:
            self._has_begun = True
            waiting = [self._begin, *waiting]
        answers = (await self._wire.run([*waiting, *batch, *expected]))[len(waiting) :]
        self._has_written |= any(answer.changed for answer in answers)
        self._foreseen += zip(expected, answers[len(batch) :], strict=True)
        return answers[: len(batch)]

    def foresee(self, *calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Each runs up to its first question, which is noted; the real call finds the answer to it."""
        self._is_noting = True
        try:
            for call in calls:
                with suppress(_Noted):
                    drive(call())
        finally:
            self._is_noting = False

    def _known(self, batch: Sequence[Statement]) -> list[Answer]:
        """The answers, if all of it has been asked already. Each serves once."""
        found = [pair for each in batch for pair in self._foreseen if pair[0] == each]
        if len(found) != len(batch):
            return []
        self._foreseen = [pair for pair in self._foreseen if pair not in found]
        return [answer for _, answer in found]

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
            raise CommitUnknown(self._transaction_id, self._trace()) from error
        self._has_begun = False

    def _trace(self) -> Statement | None:
        """No other transaction writes the same at the same microsecond: it says which task, message or turn."""
        if not self._events:
            return None
        first = self._events[0]
        wrote = {"team_id": first.team_id, "kind": first.kind, "actor": first.actor, "data": DIALECT.json(first.data)}
        return Statement(_FIND_EVENT, {**wrote, "now": self.now})

    async def roll_back(self) -> None:
        if self._has_begun:
            self._has_begun = False
            await self._wire.run([_ROLLBACK])

    def _last_statements(self, rings: list[Ring]) -> list[Statement]:
        notices = [notice for ring in rings if (notice := self._notice(ring)) is not None]
        notify = Statement("", {})
        if notices:
            is_one = len(notices) == 1
            notify = (
                Statement(_NOTIFY_ONE, notices[0]) if is_one else statement(_NOTIFY_ALL, notices=json.dumps(notices))
            )
        if self._events:
            return [_SAVEPOINT, self._record_statement(notify)]
        return [notify] if notices else []

    def _record_statement(self, notify: Statement) -> Statement:
        """All events, and along with them what else there is to tell."""
        events = [
            {"team_id": event.team_id, "kind": event.kind, "actor": event.actor, "data": DIALECT.json(event.data)}
            for event in self._events
        ]
        common = {
            "now": self.now,
            "teams": sorted({event.team_id for event in self._events}),
            "prefix": channel.TEAM_PREFIX,
            "process": self._process,
            **notify.parameters,
        }
        if len(events) == 1:
            return Statement(_RECORD[_RECORD_ONE, notify.sql], common | events[0])
        facts = {"events": json.dumps(events, ensure_ascii=False)}
        return Statement(_RECORD[_RECORD_ALL, notify.sql], common | facts)

    def _notice(self, ring: Ring) -> Mapping[str, str] | None:
        match ring:
            case MemberRing():
                if ring.worker_id in self._own_workers:
                    return None
                return {"channel": channel.of_worker(ring.worker_id), "payload": channel.member_payload(ring)}
            case WantedRing():
                return {"channel": channel.WANTED, "payload": self._process}
            case SubmissionRing():
                return {"channel": channel.SUBMISSIONS, "payload": self._process}
            case EventRing():
                return None

    # -- where one statement does what takes SQLite several -----------------------------------------

    async def fence(self, ref: MemberRef, lock: Lock) -> tuple[Team, Member] | None:
        """Hold the member, then read its team: who had to wait must not see that as it was before."""
        key = {"team_id": ref.team_id, "name_key": name_key(ref.name)}
        of_team = _TEAM_TO_LOOK_AT if self._begin is _BEGIN_LOOKING else _TEAM_OF_FENCE
        members, teams = await self._run(Statement(_FENCE[lock], key), Statement(of_team, key))
        if not members.rows:
            return None
        self._transaction_id = teams.rows[0][-1]
        member = self._stored[MEMBER] = _member(members.rows[0])
        return _team(teams.rows[0][:-1]), member

    async def find(self, kind: type[R], *key: Any, lock: Lock = Lock.NONE) -> R | None:
        """A task is held, then read: who had to wait must not see its edges as they were before."""
        if kind is not Task or lock is Lock.NONE:
            return await super().find(kind, *key, lock=lock)
        named = dict(zip(TASK.key, key, strict=True))
        _, found = await self._run(Statement(_HOLD_TASK[lock], named), Statement(_FIND_TASK, named))
        return cast("R | None", self._stored_record(TASK, found.rows[0]) if found.rows else None)

    async def find_members(self, team_id: int, keys: Sequence[str], lock: Lock) -> list[Member]:
        """Who holds a recipient sends it something next: the message's number is asked for along with it."""
        if len(keys) != 1 or lock is not Lock.SHARE:
            return await super().find_members(team_id, keys, lock)
        rows = await self.execute(_RECIPIENT[self._share], {"team_id": team_id, "name_key": keys[0]})
        self._message_ids += [row[-1] for row in rows]
        return [_member(row[:-1]) for row in rows]

    async def list_members(self, team_id: int, lock: Lock = Lock.NONE) -> list[Member]:
        """Who holds all of them sends them something next. Whom that brings back is wanted alone: held so from the
        beginning, before the others, and without those whom everybody needs, the lead and the human."""
        if lock is Lock.SHARE:
            self._deferred.append(Statement(_HOLD_WHO_CAN_BE_REVIVED, {"team_id": team_id}))
        return await super().list_members(team_id, lock)

    async def insert(self, record: R) -> R:
        if self._message_ids and isinstance(record, Message):
            record = replace(record, id=self._message_ids.pop())
            await self._change(_INSERT_MESSAGE, **DIALECT.row(MESSAGE, record))
            return record
        return await super().insert(record)

    async def find_operation(self, operation_id: str) -> Mapping[str, Any] | None:
        self.operation_id = operation_id
        return await super().find_operation(operation_id)

    def foresee_claim(self, ref: MemberRef) -> None:
        """It claims as it did last time; if it has changed since then, the claim looks at that and takes nothing."""
        if claimer := self._claimers.pop((ref.team_id, ref.name), None):
            self._foresaw_claim = True
            self.foresee(lambda: self._claim(claimer))

    async def claim_next(self, member: Member) -> Task | None:
        claimer = Claimer(member.team_id, member.name, member.role_key)
        claimed, idle = await self._claim(claimer)
        if len(self._claimers) >= _MAX_CLAIMERS:
            self._claimers.clear()
        if not self._claims_apart:
            self._claimers[member.team_id, member.name] = claimer
        if claimed.rows:
            self._foreseen.append((_idle_claimers(member.team_id), idle))
            return cast("Task", self._stored_record(TASK, claimed.rows[0]))
        if self._may_look_again:
            raise _look_again_for_tasks(member)
        return None

    async def _claim(self, claimer: Claimer) -> list[Answer]:
        statement = _CLAIM_NEXT if claimer.role_key else _CLAIM_NEXT_WITHOUT_ROLE
        parameters = {
            "team_id": claimer.team_id,
            "name": claimer.name,
            "name_key": name_key(claimer.name),
            "role_key": claimer.role_key,
            "now": self.now,
        }
        # Whoever claims then asks who else is idle: ask along with it.
        return await self._run(Statement(statement, parameters), _idle_claimers(claimer.team_id))

    async def has_open_task_for(self, member: Member) -> bool:
        found = await super().has_open_task_for(member)
        if not found and self._may_look_again:
            raise look_again_for_offers(member.team_id)
        return found

    async def list_wanted(
        self,
        team_id: int | None,
        *,
        except_teams: Sequence[int],
        leads_only: bool,
        labels: Sequence[str],
        limit: int,
    ) -> list[Member]:
        found = await super().list_wanted(
            team_id, except_teams=except_teams, leads_only=leads_only, labels=labels, limit=limit
        )
        if not found and self._may_look_again:
            place = statements.WAIT_FOR_WANTED if team_id is None else statements.WAIT_FOR_WANTED_OF_TEAM
            parameters = {
                "team_id": team_id,
                "except_teams": DIALECT.json(tuple(except_teams)),
                "leads_only": int(leads_only),
                "labels": DIALECT.json(tuple(labels)),
                "limit": 1,
            }
            raise LookAgain(holders=[], places=[Statement(DIALECT.named(place), parameters)])
        return found

    async def list_claimers(
        self, team_id: int, role_key: str, statuses: Sequence[MemberStatus], limit: int, lock: Lock = Lock.NONE
    ) -> list[Member]:
        if lock is not Lock.NONE and team_id not in self._offered:
            self._offered.add(team_id)
            self._deferred.append(Statement(_OFFER, {"team_id": team_id}))
        return await super().list_claimers(team_id, role_key, statuses, limit, lock)

    async def find_tasks(self, team_id: int, ids: Sequence[int], lock: Lock) -> list[Task]:
        return await self._all(TASK, statements.FIND_TASKS, lock, team_id=team_id, ids=sorted(set(ids)))

    async def lock_claims(self, team_id: int) -> None:
        self._claims_apart = True
        if self._foresaw_claim:
            raise Unforeseen
        await self.execute(_LOCK_CLAIMS, {"team_id": team_id})

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


@lru_cache(maxsize=256)
def _team(row: Row) -> Team:
    return cast("Team", DIALECT.record(TEAM, row))


@lru_cache(maxsize=256)
def _member(row: Row) -> Member:
    return cast("Member", DIALECT.record(MEMBER, row))


def look_again_for_offers(team_id: int) -> LookAgain:
    return LookAgain(holders=[Statement(_WAIT_FOR_OFFERS, {"team_id": team_id})])


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


def _idle_claimers(team_id: int) -> Statement:
    return Statement(_IDLE_CLAIMERS, {"team_id": team_id, "role_key": "", "limit": 2})


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
