"""What a store implementation provides: one open transaction, at the level of records.

The verbs (`stores/verbs/`) are written once, over this. An implementation makes
these primitives atomic together, isolated and durable; it contains no rule of
the domain. All methods are coroutines so that a network database can await;
an embedded one simply never suspends (see `drive`). What `store.py` says
of a list (its order, what it leaves out) holds for the list of the same name here;
`name_key` is `domain.text.name_key` of a name, `role_key` is empty without a role.

Isolation that the verbs rely on:

- `Lock.UPDATE` keeps every other transaction from changing or locking the record
  until this one ends; `Lock.SHARE` keeps others from changing it, `Lock.SHARE_IF_FREE`
  too, and passes over what another transaction is just changing. A store that runs
  one transaction at a time may ignore all of them.
- Locks are taken in the order team, worker, member, task, submission or request, ids ascending; then the accounts, the
  team's first. Who holds that one locks nothing more.
- `claim_next` and `list_wanted` lock what they return and pass over what another
  transaction has locked; who takes something rings for what is left.
- `list_claimers` with `Lock.SHARE` waits for a member who is just leaving and then
  does not return it: so a task that becomes claimable and a member's last look
  before its exit cannot pass each other.
- `lock_graph` and `lock_claims` are locks of a whole team; what they stand for is said there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, TypeVar

from bullpen.domain.background import Background
from bullpen.domain.budget import Account, ProviderGate, Reservation
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Member, MemberRef, MemberStatus, Team, Worker
from bullpen.domain.message import Message, MessageType
from bullpen.domain.request import Request, RequestKind, RequestStatus
from bullpen.domain.submission import Submission
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.transcript import ToolCall, TranscriptEnd, Turn

Record = (
    Team
    | Worker
    | Member
    | Task
    | Message
    | Request
    | Turn
    | ToolCall
    | Background
    | Submission
    | Reservation
    | Account
    | ProviderGate
)
R = TypeVar("R", bound=Record)


class Lock(Enum):
    NONE = "none"
    SHARE = "share"
    SHARE_IF_FREE = "share if free"
    UPDATE = "update"

    # Looked up with every statement; an enum's own hash is a function in Python.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class MemberRing:
    """Wake this member, in the process of the worker that hosts it."""

    team_id: int
    name: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class WantedRing:
    """Wake the workers: a member is wanted."""


@dataclass(frozen=True, slots=True)
class SubmissionRing:
    """Wake the workers: a submission may be there to take."""


@dataclass(frozen=True, slots=True)
class EventRing:
    """Wake who follows this team's log."""

    team_id: int


Ring = MemberRing | WantedRing | SubmissionRing | EventRing


class Transaction(Protocol):
    now: datetime
    """The moment of this transaction, the same for all that it writes."""

    # -- hints: an embedded store has no use for them ----------------------------------

    def foresee(self, *calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Calls of this transaction that the verb makes right after its next one, before it changes anything: a
        database across a network asks for them along with that one. They are made again when they are due."""
        ...

    def foresee_claim(self, ref: MemberRef) -> None:
        """The same for `claim_next`, after the fence of this member."""
        ...

    # -- any record --------------------------------------------------------------

    async def find(self, kind: type[R], *key: Any, lock: Lock = Lock.NONE) -> R | None:
        """By key: Team (id), Worker (id), Member (team_id, name_key), Task (team_id, id), Message (team_id, id),
        Request (team_id, id), ToolCall (team_id, member_key, call_id), Background (team_id, id), Submission
        (team_id, id), Reservation (team_id, id), Account (team_id, member_key), ProviderGate (provider_key). What is
        locked is as it is while it is locked, the edges of a task too."""
        ...

    async def insert(self, record: R) -> R:
        """A new one. Team and Worker get a growing id, never given out before, in place of 0; so does Message, in its
        team at least. The edges of a task (`blocked_by`) are stored too, and show in `blocks` of the others."""
        ...

    async def update(self, record: R) -> None:
        """Every field but the key of one that is there; of a task, `blocked_by`, `blocks` and `open_blockers` are left
        alone. Turns are never updated."""
        ...

    # -- teams, workers, members -------------------------------------------------

    async def fence(self, ref: MemberRef, lock: Lock) -> tuple[Team, Member] | None:
        """The member by (team_id, name_key), locked, with its team; None if there is none. Not compared here."""
        ...

    async def find_live_team(self, key: str) -> Team | None: ...

    async def list_teams(self, include_deleted: bool) -> list[Team]: ...

    async def count_generations(self, key: str) -> int:
        """The teams of this name, deleted ones too."""
        ...

    async def list_workers(self, include_stopped: bool) -> list[Worker]: ...

    async def list_members(self, team_id: int, lock: Lock = Lock.NONE) -> list[Member]:
        """By creation; locked ones in ascending key order."""
        ...

    async def list_members_of(self, worker_id: int, lock: Lock) -> list[Member]:
        """Whom it hosts, of all kinds; locked in ascending order of team and key."""
        ...

    async def find_members(self, team_id: int, keys: Sequence[str], lock: Lock) -> list[Member]:
        """Those that exist, locked in ascending key order."""
        ...

    async def list_wanted(
        self,
        team_id: int | None,
        *,
        except_teams: Sequence[int],
        leads_only: bool,
        labels: Sequence[str],
        limit: int,
    ) -> list[Member]:
        """The longest wanted of that team, or of all live ones but some, who ask for none but these labels; locked,
        passing over locked ones."""
        ...

    async def has_wanted(self) -> bool: ...

    async def count_hosted(self, worker_id: int) -> int:
        """Its teammates; leads and external members take no slot."""
        ...

    async def count_teammates(self, team_id: int) -> int:
        """Those of a team that have not been shut down."""
        ...

    async def list_claimers(
        self,
        team_id: int,
        role_key: str,
        statuses: Sequence[MemberStatus],
        limit: int,
        lock: Lock = Lock.NONE,
    ) -> list[Member]:
        """Autonomous teammates and external members in one of these states, without an open shutdown, who may
        take a task of this role (any, if it is empty), longest in their state first. With `shutdown`: only those
        that `can_be_revived`. With `idle`: only those without a task in progress, who could take another."""
        ...

    async def list_due_members(self, worker_id: int) -> list[Member]:
        """Members of this worker with undelivered waking mail or, if idle without a task in progress, with a
        claimable task: of one team and role, not more than there are tasks for them."""
        ...

    async def has_role(self, team_id: int, role_key: str) -> bool:
        """Has a teammate or an external member, in whatever state, this role?"""
        ...

    # -- tasks -------------------------------------------------------------------

    async def take_task_id(self, team_id: int) -> int:
        """The next number of the team (`next_task_id`), which locks the team; never given out again. 0 if there is no
        such team."""
        ...

    async def list_tasks(
        self, team_id: int, status: TaskStatus | None, owner_key: str | None, after_id: int, limit: int | None
    ) -> list[Task]: ...

    async def find_tasks(self, team_id: int, ids: Sequence[int], lock: Lock) -> list[Task]:
        """Those that exist, each once, by number; locked in this order."""
        ...

    async def claim_next(self, member: Member) -> Task | None:
        """Make the next claimable task the member's, in progress: those assigned to it first, then the lowest number
        whose role is absent or its. None too if it has one in progress. No scan: the cost does not grow with the board.

        Owner, status, `claimed_at` and `updated_at` are set, `reserved_until` is emptied; the verb does the rest.
        """
        ...

    async def lock_claims(self, team_id: int) -> None:
        """Until the end of this transaction no other chooses what it claims by what is in progress in this team. It
        comes last: who holds it waits for no row, `claim` passes over those that are locked."""
        ...

    async def list_claimable(self, member: Member, limit: int) -> list[Task]:
        """What `claim_next` would take, and then, and so on, whatever the member has in progress; not locked."""
        ...

    async def claim(self, member: Member, number: int) -> Task | None:
        """Make this task the member's, as `claim_next` does, whatever else it has in progress. None if it cannot be
        claimed (any more), or is locked."""
        ...

    async def list_in_progress(self, team_id: int) -> list[Task]:
        """By number."""
        ...

    async def find_in_progress(self, team_id: int, owner_key: str) -> Task | None:
        """What this member holds: the verbs see to it that it is one at most."""
        ...

    async def clear_reservation(self, team_id: int, owner_key: str) -> None:
        """What its owner has in progress is reserved no longer: somebody hosts it again."""
        ...

    async def has_claimable(self, team_id: int, role_key: str) -> bool:
        """An unowned claimable task of exactly this role (empty: without one)?"""
        ...

    async def has_open_task_for(self, member: Member) -> bool:
        """A pending task, blocked or not, that is assigned to this member; or, for an autonomous teammate or external
        member, that is nobody's and has no role or its?"""
        ...

    async def has_tasks(self, team_id: int) -> bool: ...

    async def list_reserved_before(self, moment: datetime) -> list[Task]:
        """In progress, of any team, with `reserved_until` before that moment; locked, by team and number."""
        ...

    async def lock_graph(self, team_id: int) -> None:
        """Until the end of this transaction no other changes edges between existing tasks of this team."""
        ...

    async def blockers_of(self, team_id: int, ids: Sequence[int]) -> Mapping[int, Sequence[int]]:
        """`blocked_by` of each of these tasks that exists."""
        ...

    async def add_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        """False if it is there already. An open one counts in `open_blockers`."""
        ...

    async def remove_edge(self, team_id: int, task_id: int, blocker_id: int, *, is_open: bool) -> bool:
        """False if there is none. An open one counts no more."""
        ...

    async def settle_blocker(self, team_id: int, blocker_id: int, *, is_open: bool) -> list[Task]:
        """The blocker stopped (or, with `is_open`, began) holding its dependents back: `open_blockers` of each falls
        (or grows) by one, in ascending order. Returns the pending ones that have no open blocker now; none when it
        began. The edges stay."""
        ...

    # -- the queue -----------------------------------------------------------------

    async def take_submission_id(self, team_id: int) -> int:
        """The last number of the team + 1, which locks the team."""
        ...

    async def find_queued(self, team_id: int | None, except_teams: Sequence[int] = ()) -> Submission | None:
        """The first of that team, or the longest waiting of all live ones but some, among teams that have none taken;
        not locked. No scan: the cost does not grow with what is integrated."""
        ...

    async def list_submissions(self, team_id: int, open_only: bool) -> list[Submission]:
        """By number."""
        ...

    async def list_submissions_of(self, team_id: int, member_key: str) -> list[Submission]:
        """Of one member, by number."""
        ...

    async def list_taken(self, worker_id: int) -> list[Submission]:
        """By this worker, in any team; locked."""
        ...

    # -- mail, requests, transcript ------------------------------------------------

    async def list_undelivered(self, team_id: int, key: str, limit: int) -> list[Message]:
        """By id, the oldest; locked."""
        ...

    async def list_offered(self, team_id: int, key: str, limit: int) -> list[Message]:
        """The same, only to be looked at."""
        ...

    async def has_undelivered(self, team_id: int, key: str) -> bool:
        """Waking mail only."""
        ...

    async def mark_delivered(self, team_id: int, key: str, ids: Sequence[int], turn_seq: int | None) -> None:
        """Set `delivered_at` and `delivered_turn` of those that are not delivered yet."""
        ...

    async def list_mail(self, team_id: int, key: str, undelivered_only: bool, limit: int) -> list[Message]:
        """The newest, oldest first."""
        ...

    async def list_mail_keys(self, team_id: int) -> list[str]:
        """Members with undelivered waking mail."""
        ...

    async def find_last_mail(self, team_id: int, key: str, sender: str, type: MessageType | None) -> Message | None:
        """The newest to this member from exactly this sender, taken or not."""
        ...

    async def take_request_id(self, team_id: int) -> int:
        """As `take_task_id`, of `next_request_id`."""
        ...

    async def list_requests(
        self,
        team_id: int,
        status: RequestStatus | None,
        kind: RequestKind | None,
        asked_key: str | None,
        asker_key: str | None,
        lock: Lock = Lock.NONE,
    ) -> list[Request]:
        """None: any."""
        ...

    async def list_requests_due(self, moment: datetime) -> list[Request]:
        """Of any team, with `open_until` before that moment: open ones, and shutdowns to which a member that is still
        there has said yes; not locked."""
        ...

    async def find_end(self, team_id: int, key: str) -> TranscriptEnd:
        """Of the member's transcript, which may be empty."""
        ...

    async def list_turns(self, team_id: int, key: str, after_seq: int, limit: int | None) -> list[Turn]: ...

    async def list_calls(self, team_id: int, key: str, open_only: bool) -> list[ToolCall]: ...

    # -- background work, budgets ----------------------------------------------------

    async def take_background_id(self, team_id: int) -> int:
        """The last number of the team + 1, which locks the team."""
        ...

    async def list_backgrounds(self, team_id: int, key: str | None, running_only: bool) -> list[Background]:
        """By number."""
        ...

    async def hold_accounts(self, team_id: int, key: str) -> tuple[Account, Account]:
        """The team's and this member's, locked in this order; made if there are none."""
        ...

    async def list_accounts(self, team_id: int) -> list[Account]:
        """By key, so the team's first."""
        ...

    async def list_open_reservations(self, team_id: int) -> list[Reservation]:
        """Those that are not settled, by number."""
        ...

    # -- operations, events, rings -------------------------------------------------

    async def find_operation(self, operation_id: str) -> Mapping[str, Any] | None:
        """What was saved under this id, in whatever team; the mapping holds only what JSON can."""
        ...

    async def save_operation(self, operation_id: str, outcome: Mapping[str, Any]) -> None: ...

    def record(self, team_id: int, kind: EventKind, actor: str, **data: Any) -> None:
        """An event of this transaction, written at its end, which rings (`EventRing`). Facts that are None are left
        out, others stored as `domain.codec.encode` writes them."""
        ...

    def ring(self, ring: Ring) -> None:
        """Sent after the commit."""
        ...

    async def list_events(self, team_id: int, after: str, limit: int) -> list[Event]:
        """UsageError as in `store.py`; nothing of a team that does not exist."""
        ...

    async def last_position(self, team_id: int) -> str:
        """What `list_events` takes as `after`, also while the log is empty."""
        ...


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a verb over a transaction that never suspends, in the thread that calls."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return finished.value
    coroutine.close()
    raise RuntimeError("a store verb waited for something other than its transaction")
