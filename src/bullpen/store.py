"""The contract of the store: the only truth, one transaction for each verb.

Its words (member, worker, incarnation, claim, …) are those of `docs/concepts.md`. A member is *hosted* while a worker
runs its loop, *wanted* while one should; a worker *lapses* when it is declared dead.

What holds for every verb, in every implementation behind `open_store(url)`:

- **Atomic and durable.** A verb happens entirely or not at all. When it has
  returned, it survives `kill -9` of every process and loss of power.
- **Fenced.** `by` is a `MemberRef`. The transaction compares its incarnation with
  the stored one and raises `LeaseLost` if they differ, or if no worker hosts the
  teammate or external member; nothing is written then.
  The human (`user`) has the constant incarnation 0.
- **Idempotent by operation id.** A verb called again with the same `operation_id`
  returns its first outcome and does nothing. A verb that raised stored nothing,
  so calling it again tries again.
- **Found again.** What a store finds things by (roles, tool call ids, provider keys, operation ids) has at most
  `MAX_KEY_LENGTH` characters; longer ones are `UsageError`.
- **Cancelled as a whole.** Whoever is cancelled in a verb does not know whether it
  happened; it happened entirely or not at all, with its rings.
- **Recorded.** Each change writes its events in the same transaction.
- **Rings.** Whoever a change concerns is woken after the commit; see `listen_*`.
- **The team lives.** Verbs that change a deleted team raise `TeamDeleted`, except those that let its members
  come to rest (status, mail taken, turns, tool calls, answers, a task given back, what was spent, the end of what
  runs beside them), and those that end what was taken to be integrated.
- **Reads** never write, never lock out a writer, and see every verb that has returned.

Errors are those of `bullpen.errors`: `UsageError` for arguments that can never
work, `NotFound`, `Conflict` and its kinds when the stored state says no,
`StoreUnavailable` when nothing was changed and trying again may help.

To add a store, implement `stores.transaction.Transaction` and a subclass of
`stores.verbs.VerbStore`; the verbs themselves are written once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, Self

from bullpen.clock import Clock
from bullpen.domain.background import Background, BackgroundKind, BackgroundState
from bullpen.domain.budget import Account, ProviderGate, Reservation, Reserved, Settlement
from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Attendance, Autonomy, Liveness, Member, MemberRef, MemberStatus, Spawned, Team, Worker
from bullpen.domain.message import Message, MessageType, Receipt
from bullpen.domain.request import PermissionScope, Request, RequestKind, RequestStatus
from bullpen.domain.standing import Snapshot
from bullpen.domain.submission import Submission, Work
from bullpen.domain.task import CheckRun, Evidence, Task, TaskChanges, TaskStatus
from bullpen.domain.transcript import NewCall, TakenMail, ToolCall, Turn

BEGINNING = ""
"""The position before the first event."""


class Bell(Protocol):
    """What a waiter sleeps on. Clear, look, sleep, in this order: then no ring is lost between look and sleep."""

    def clear(self) -> None: ...

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """True once it has rung since the last `clear`, False after the timeout. Costs nothing meanwhile.

        It may ring for nothing; it never stays silent when there is something.
        """
        ...

    def call(self, listener: Callable[[], None]) -> AbstractContextManager[None]:
        """While inside, `listener` is called in this loop when it rings, and at once if it has rung since the last
        `clear`: for one who is busy, and would have to start a task only to wait. One listener at a time."""
        ...


class Store(Protocol):
    url: str
    clock: Clock

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    # -- teams -----------------------------------------------------------------

    async def create_team(
        self, name: str, *, goal: str = "", settings: Mapping[str, Any] | None = None, operation_id: str | None = None
    ) -> Team:
        """A new team with its `lead` and `user`. Conflict while a live team has the name, regardless of case."""
        ...

    async def get_team(self, team_id: int) -> Team:
        """Deleted teams too. NotFound."""
        ...

    async def find_team(self, name: str) -> Team | None:
        """The live team of that name."""
        ...

    async def list_teams(self, *, include_deleted: bool = False) -> list[Team]:
        """Oldest first."""
        ...

    async def change_team(
        self,
        by: MemberRef,
        *,
        name: str | None = None,
        goal: str | None = None,
        settings: Mapping[str, Any] | None = None,
        operation_id: str | None = None,
    ) -> Team:
        """Lead only. A new name is Conflict once the team has tasks or teammates. Settings are merged by key."""
        ...

    async def delete_team(
        self, by: MemberRef, *, deadline_seconds: float = 30.0, operation_id: str | None = None
    ) -> Team:
        """Lead only. Mark it deleted, cancel open requests, ask every living teammate to shut down by the deadline.

        Unhosted teammates are shut down at once. Board, mail and transcripts stay
        readable under the team's id; the name is free for another team.
        """
        ...

    # -- workers ---------------------------------------------------------------

    async def register_worker(
        self, *, slots: int = 0, labels: Sequence[str] = (), lease_seconds: float = 15.0
    ) -> Worker:
        """Enter this process as a worker, holding what proves its life. `slots` is how many wanted teammates it takes;
        with none it takes no lead either."""
        ...

    async def renew_worker(self, worker_id: int) -> Worker:
        """Prove life: `renewals` grows, and whoever watches needs no clock but its own. LeaseLost once it was lapsed or
        stopped: it must stop its members."""
        ...

    async def stop_worker(self, worker_id: int) -> list[Member]:
        """Leave in good order: its members become wanted (external ones shut down), their tasks reserved."""
        ...

    async def list_workers(self, *, include_stopped: bool = False) -> list[Worker]:
        """Oldest first."""
        ...

    async def probe_worker(self, worker: Worker) -> Liveness:
        """What can be known at once: DEAD only with proof (its lock is free), else ALIVE or UNKNOWN. Never writes."""
        ...

    async def probe_workers(self, workers: Sequence[Worker]) -> list[Liveness]:
        """The same of each, at the price of one."""
        ...

    def proves_life(self, worker_id: int) -> bool:
        """Can others see that this worker of this store object lives, as far as is known here without asking? While
        they cannot, they may take it for dead at any moment, and it should begin nothing."""
        ...

    async def lapse_worker(self, worker_id: int, *, renewals_seen: int | None) -> list[Member]:
        """Declare a worker dead, in one transaction, and return its members as they now are.

        Re-checks: if it stopped, or renewed since `renewals_seen` was read, nothing
        happens and the list is empty (None: death is proved, do not compare).
        Each member gets incarnation + 1. A teammate or lead becomes wanted and keeps
        its task reserved for `takeover_seconds` if a live worker that may host it has a
        free slot, else its task returns to the board with a hand-over note. An external member
        shuts down and its task returns. A task whose work waits to be integrated does
        neither: it stays its owner's. Checks being run are void, submissions that the
        worker had taken are queued again. The lead is told.
        """
        ...

    async def hand_back_tasks(self) -> list[Task]:
        """Return the tasks whose reservation has run out to the board, with a hand-over note.

        A worker that could host the owner has `takeover_seconds` from when it registered; while no worker serves the
        team and none of its members is hosted, no reservation runs out.
        """
        ...

    # -- members ---------------------------------------------------------------

    async def spawn_member(
        self,
        by: MemberRef,
        name: str,
        *,
        role: str | None = None,
        prompt: str = "",
        model: str | None = None,
        autonomy: Autonomy = Autonomy.AUTO,
        labels: Sequence[str] = (),
        plan_required: bool = False,
        workspace: str | None = None,
        task_id: int | None = None,
        operation_id: str | None = None,
    ) -> Spawned:
        """Lead only. A row that says `wanted`; the first worker with a free slot and all its labels hosts it.

        A shut-down name comes back with its memory (`revived`); to an idle one the
        prompt is delivered, for a working one it is queued as mail. Never two loops
        under one name. `task_id` is assigned to it. UsageError for a reserved name
        or one that belongs to an external member; Conflict beyond `max_teammates`.
        """
        ...

    async def join_member(
        self, worker_id: int, team_id: int, name: str, *, role: str | None = None, operation_id: str | None = None
    ) -> Member:
        """An external member, hosted by the caller's worker from now on: incarnation + 1, `working`.

        Conflict while another living worker has it, or if the name is a teammate's.
        """
        ...

    async def host_member(self, worker_id: int, *, team_id: int | None = None) -> Member | None:
        """Claim the longest-wanted member (of that team) whose labels this worker has: incarnation + 1, `working`.

        One winner however many workers try; None if there is none or no slot is free.
        A lead takes no slot: its teammates may hold them all, waiting for it.
        LeaseLost if this worker was lapsed.
        """
        ...

    async def host_members(
        self, worker_id: int, *, team_id: int | None = None, except_teams: Sequence[int] = (), limit: int = 1
    ) -> list[Member]:
        """As many at once, in one transaction: a crowd is hosted at the price of a few. Nobody of `except_teams`, which
        this worker leaves to others: they stay wanted."""
        ...

    async def want_member(self, by: MemberRef, name: str, *, operation_id: str | None = None) -> Member:
        """Lead only. Bring a shut-down lead or teammate back; nothing happens to one that is up or wanted."""
        ...

    async def set_member_status(self, by: MemberRef, status: MemberStatus, *, reason: str = "") -> Member:
        """Its own status, along MEMBER_TRANSITIONS: a write that raced with a shutdown is Conflict, never undoes it.

        UsageError for `wanted` and `shutdown`, which have verbs of their own.
        """
        ...

    async def set_member_counters(self, by: MemberRef, counters: Mapping[str, Any]) -> Member:
        """Merge into the counters of its phase (turns, reminded, …); None removes one."""
        ...

    async def shut_down_member(self, by: MemberRef, *, reason: str = "finished") -> Member:
        """Leave: answer its open shutdown request (approved), give its task back, status `shutdown`."""
        ...

    async def release_member(self, by: MemberRef, *, note: str) -> Member:
        """Its loop crashed inside a living worker: like a lapse, for this one."""
        ...

    async def rest_member(self, by: MemberRef) -> Member:
        """Its worker is about to leave: like `stop_worker`, for this one. Another worker goes on with it."""
        ...

    async def leave_if_nothing(self, by: MemberRef, *, reason: str = "timeout") -> str | None:
        """The last look before an idle exit, in one transaction with it.

        Returns what is there (`mail`, `task`, `shutdown`) and changes nothing, or None
        having shut the member down. It waits for concurrent senders and completers
        rather than skip them: what arrives just then is found, or revives it.
        """
        ...

    async def find_work(self, by: MemberRef) -> str | None:
        """What there is for it, without taking it: `shutdown`, `mail`, `task` (claimable, while its hands are free)."""
        ...

    async def attend(self, by: MemberRef) -> Attendance:
        """What a member looks at between two steps, in one read; LeaseLost if it is over."""
        ...

    async def has_prospects(self, by: MemberRef) -> bool:
        """Is there an unfinished task, blocked or not, that could become this member's? While there is, its idle
        clock stands still."""
        ...

    async def get_member(self, team_id: int, name: str) -> Member: ...

    async def list_members(self, team_id: int) -> list[Member]:
        """In the order in which they came."""
        ...

    async def list_due_members(self, worker_id: int) -> list[MemberRef]:
        """The safety net: members of this worker for whom waking mail waits, and idle ones for whom a claimable task
        does. Asked once for each process, not for each member."""
        ...

    # -- tasks -----------------------------------------------------------------

    async def create_task(
        self,
        by: MemberRef,
        subject: str,
        *,
        description: str = "",
        active_form: str = "",
        blocked_by: Sequence[int] = (),
        role: str | None = None,
        check: str | None = None,
        owner: str | None = None,
        files: Sequence[str] = (),
        operation_id: str | None = None,
    ) -> Task:
        """Numbers from 1 in each team, never reused.

        An unknown or deleted blocker is NotFound, a completed one blocks nothing. `owner`
        assigns it. Its creator is told if nobody in the team has the role.
        """
        ...

    async def get_task(self, team_id: int, task_id: int) -> Task:
        """NotFound; a deleted task is returned as its tombstone."""
        ...

    async def list_tasks(
        self,
        team_id: int,
        *,
        status: TaskStatus | None = None,
        owner: str | None = None,
        after_id: int = 0,
        limit: int | None = None,
    ) -> list[Task]:
        """By number. Deleted ones only if asked for by status."""
        ...

    async def update_task(
        self, by: MemberRef, task_id: int, changes: TaskChanges, *, operation_id: str | None = None
    ) -> Task:
        """Change fields (its owner, its creator, the lead), role, check and owner (the lead; its creator while it is
        pending) and edges.

        An owner given to a pending task assigns it. Given to one in progress, it goes
        back to pending for the new owner, and the old one is told. `add_blocks` takes the
        right to change the tasks that are held back. CycleRefused shows the cycle, also
        when two transactions add half of one each.
        """
        ...

    async def claim_next_task(self, by: MemberRef, *, operation_id: str | None = None) -> Task | None:
        """Take the next claimable task: assigned to the claimer first, then by number. One winner, whoever tries.

        A task whose files overlap with those of another's task in progress is passed over while there is one whose do
        not; `TaskPassedOver` says so. If only such are there, the next of them is taken all the same.

        None if there is nothing for it. AlreadyClaimed if it has a task in progress,
        ShuttingDown while it is asked to shut down.
        """
        ...

    async def claim_task(self, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task:
        """Take this one; AlreadyClaimed says why it is not claimable. Claiming what one holds returns it."""
        ...

    async def start_check(self, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> CheckRun | None:
        """Owner or lead. Mark it `verifying` and return what to run, outside any transaction; None without a check, or
        while work on it waits to be integrated."""
        ...

    async def finish_check(
        self,
        by: MemberRef,
        run: CheckRun,
        evidence: Evidence,
        *,
        result: str = "",
        work: Work | None = None,
        operation_id: str | None = None,
    ) -> Task:
        """Store the evidence; complete the task if it passed, else it stays its owner's.

        With `work` it is not completed but queued, as by `complete_task`; `evidence.commit` says what was checked.
        Conflict if the verdict is not for the current attempt and check text.
        """
        ...

    async def complete_task(
        self,
        by: MemberRef,
        task_id: int,
        *,
        result: str = "",
        unverified: bool = False,
        work: Work | None = None,
        operation_id: str | None = None,
    ) -> Task:
        """Owner or lead. Its dependents become claimable at once. Completing what one has completed returns it.

        With `work` it is not completed yet: the work is queued (`task.submission`), and the task stays in progress and
        its owner's until that is integrated. Completing it again meanwhile returns it unchanged; only the human,
        without work, completes it at once, which withdraws what is queued.
        CheckRequired for a task with a check; only the human may pass it over (`unverified`), which the event says.
        """
        ...

    async def complete_checked_task(
        self,
        by: MemberRef,
        task_id: int,
        evidence: Evidence,
        *,
        result: str = "",
        operation_id: str | None = None,
    ) -> Task:
        """For whoever has run the check by itself: `start_check` and `finish_check` in one step, so that nothing is
        left `verifying` in between. Owner or lead. If it did not pass, the task stays its owner's, with the evidence.
        Completing what one has completed, or what waits to be integrated, returns it. UsageError for a task without a
        check, and for the evidence of another command."""
        ...

    async def fail_task(
        self, by: MemberRef, task_id: int, *, reason: str = "", operation_id: str | None = None
    ) -> Task:
        """Owner or lead. Dependents stay blocked, the lead is told. Failing what one has failed returns it.

        This, `release_task`, `delete_task` and another owner withdraw work on it that is queued; Conflict while that is
        just being integrated: try again in a moment.
        """
        ...

    async def release_task(
        self, by: MemberRef, task_id: int, *, note: str = "", operation_id: str | None = None
    ) -> Task:
        """Owner or lead. Back to the board with a hand-over note."""
        ...

    async def retry_task(self, by: MemberRef, task_id: int, *, note: str = "", operation_id: str | None = None) -> Task:
        """Lead only: a failed task is pending again, for anyone."""
        ...

    async def delete_task(self, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task:
        """Creator or lead. A tombstone stays; dependents wait for it no longer; an owner at work is told."""
        ...

    # -- the queue -------------------------------------------------------------

    async def submit_work(
        self, by: MemberRef, work: Work, *, result: str = "", operation_id: str | None = None
    ) -> Submission:
        """Queue what belongs to no task: the lead's own work, or a prompt that was the work.

        Numbered from 1 in each team, first come first served. UsageError unless `work` names whole commits.
        """
        ...

    async def take_submission(
        self, worker_id: int, *, team_id: int | None = None, except_teams: Sequence[int] = ()
    ) -> Submission | None:
        """Take the oldest queued submission (of that team) to integrate it, of a team that has none taken. Nothing of
        `except_teams`, which this worker leaves to others.

        One winner however many workers try, and of each team one at a time. None if there is none, or this worker
        hosts nobody. LeaseLost if it was lapsed. When a worker ends, what it had taken is queued again.
        """
        ...

    async def accept_submission(
        self,
        worker_id: int,
        team_id: int,
        submission_id: int,
        commit: str,
        *,
        evidence: Evidence | None = None,
        operation_id: str | None = None,
    ) -> Submission:
        """It is in the trunk, as `commit`: its task is completed, as by `complete_task`, and its owner rung.

        Accepting what is integrated returns it. LeaseLost unless this worker has it taken; Conflict if it was refused
        or withdrawn. Also in a deleted team: what is in the trunk is there.
        """
        ...

    async def refuse_submission(
        self,
        worker_id: int,
        team_id: int,
        submission_id: int,
        why: str,
        *,
        evidence: Evidence | None = None,
        operation_id: str | None = None,
    ) -> Submission:
        """It does not go in: `why` is sent to who made it, and wakes it. Its task stays its owner's; if that one is at
        rest for good, it returns to the board with `why` as the hand-over note. LeaseLost and Conflict as by
        `accept_submission`; refusing what is refused returns it."""
        ...

    async def release_submission(self, worker_id: int, team_id: int, submission_id: int, why: str) -> Submission:
        """This worker cannot integrate it: it is queued again, in its old place, and rings for others; in a deleted
        team it is withdrawn. LeaseLost and Conflict as by `accept_submission`; releasing what is queued returns it."""
        ...

    async def get_submission(self, team_id: int, submission_id: int) -> Submission: ...

    async def list_submissions(
        self, team_id: int, *, open_only: bool = False, member: str | None = None
    ) -> list[Submission]:
        """In the order of the queue; of one member alone, if it is named."""
        ...

    # -- mail ------------------------------------------------------------------

    async def send(
        self,
        by: MemberRef,
        to: str | None,
        content: str,
        *,
        type: MessageType = MessageType.MESSAGE,
        reply_to: int | None = None,
        operation_id: str | None = None,
    ) -> list[Receipt]:
        """Store mail for `to`, or a broadcast for everyone but the sender and ring.

        NotFound for an unknown recipient. A timed-out teammate is revived, mail to
        another shut-down member is kept; the receipt says which. Order per sender is
        kept. Control types are made by requests, not here: UsageError.
        """
        ...

    async def notify(
        self,
        team_id: int,
        to: str,
        content: str,
        *,
        type: MessageType = MessageType.NOTICE,
        wakes: bool = True,
        operation_id: str | None = None,
    ) -> Message:
        """The runtime's own word to a member: `result`, `notice`, `error`, from `system`."""
        ...

    async def list_mail(
        self, team_id: int, name: str, *, undelivered_only: bool = False, limit: int = 100
    ) -> list[Message]:
        """The newest `limit`, oldest first. Looking never drains."""
        ...

    async def get_message(self, team_id: int, message_id: int) -> Message: ...

    async def take_mail(self, by: MemberRef, *, limit: int = 100) -> TakenMail | None:
        """Mail into the transcript, exactly once: one transaction marks it delivered and appends the turn.

        None if there is none. ToolCallsOpen while the member has queued or started calls.
        """
        ...

    async def list_offered_mail(self, by: MemberRef, *, limit: int = 100) -> list[Message]:
        """What an external member or the human has not acknowledged: the oldest `limit`, in order, so that whoever
        acknowledges what it was offered gets everything in the order in which it was sent. Looking never drains."""
        ...

    async def acknowledge_mail(self, by: MemberRef, message_ids: Sequence[int]) -> None:
        """An external member or the human has dealt with these; until then they are offered again under the same ids.

        NotAllowed for others, whose mail is taken into their transcript.
        """
        ...

    # -- requests --------------------------------------------------------------

    async def open_request(
        self,
        by: MemberRef,
        kind: RequestKind,
        asked: str,
        *,
        content: str = "",
        payload: Mapping[str, Any] | None = None,
        digest: str = "",
        timeout_seconds: float | None = None,
        operation_id: str | None = None,
    ) -> Request:
        """Ask, with mail that carries the request's id. Shutdown: lead only, bound to the asked one's incarnation;
        one who is gone answers at once. A plan or a shutdown supersedes the same asker's or asked one's open one."""
        ...

    async def answer_request(
        self,
        by: MemberRef,
        request_id: int,
        *,
        approve: bool,
        reason: str = "",
        scope: PermissionScope | None = None,
        operation_id: str | None = None,
    ) -> Request:
        """Only the one asked, once: NotAllowed, Conflict. A yes to a shutdown makes the member `stopping`;
        a yes to a plan opens the gate for exactly that digest. The asker gets the answer as mail."""
        ...

    async def cancel_request(self, by: MemberRef, request_id: int, *, operation_id: str | None = None) -> Request:
        """The asker or the lead takes it back."""
        ...

    async def expire_requests(self) -> list[Request]:
        """Close what is past its deadline. A shutdown is then forced: incarnation + 1, `shutdown`, task given back;
        also one that was answered with yes, if the member has not left by then."""
        ...

    async def get_request(self, team_id: int, request_id: int) -> Request: ...

    async def list_requests(
        self, team_id: int, *, status: RequestStatus | None = None, asked: str | None = None
    ) -> list[Request]:
        """By number."""
        ...

    # -- transcript ------------------------------------------------------------

    async def record_turn(
        self,
        by: MemberRef,
        kind: str,
        content: Any,
        *,
        calls: Sequence[NewCall] = (),
        counters: Mapping[str, Any] | None = None,
        settlement: Settlement | None = None,
        operation_id: str | None = None,
    ) -> Turn:
        """Append to its memory; the calls of a reply are queued with it, or started where they say so, counters are
        merged as in `set_member_counters`, and the reservation of the request is settled. Conflict for a call id it
        already used."""
        ...

    async def start_call(self, by: MemberRef, call_id: str) -> ToolCall:
        """Written before the effect. Conflict unless it is queued."""
        ...

    async def finish_call(self, by: MemberRef, call_id: str, result: str, *, is_error: bool = False) -> ToolCall:
        """Store the result and append it to the transcript. Finishing a finished call returns it unchanged."""
        ...

    async def interrupt_calls(self, by: MemberRef) -> list[ToolCall]:
        """After a kill: calls that an older incarnation had started are finished as interrupted, outcome unknown."""
        ...

    async def end_phase(
        self,
        by: MemberRef,
        *,
        why: str,
        result: str = "",
        status: MemberStatus = MemberStatus.IDLE,
        counters: Mapping[str, Any] | None = None,
        operation_id: str | None = None,
    ) -> Member:
        """A work phase ends: status, counters and the result mail to the lead, once. The result of a phase that
        had a task (`counters["task"]`) does not wake it, one that belongs to no task does."""
        ...

    async def list_turns(self, team_id: int, name: str, *, after_seq: int = 0, limit: int | None = None) -> list[Turn]:
        """In order, the oldest `limit` of them."""
        ...

    async def list_calls(self, team_id: int, name: str, *, open_only: bool = False) -> list[ToolCall]:
        """In the order of the replies, and in each as the model asked for them."""
        ...

    # -- what goes on beside a member ------------------------------------------

    async def start_background(
        self,
        by: MemberRef,
        kind: BackgroundKind,
        title: str,
        *,
        pid: int | None = None,
        start_ticks: int | None = None,
        output_path: str | None = None,
        operation_id: str | None = None,
    ) -> Background:
        """Numbered from 1 in each team. Host and boot id are those of this process."""
        ...

    async def finish_background(
        self,
        by: MemberRef,
        background_id: int,
        *,
        state: BackgroundState = BackgroundState.FINISHED,
        exit_code: int | None = None,
        output: str = "",
    ) -> Background:
        """Its end, with one waking notice to its member (none if it was `stopped`). Ending an ended one changes
        nothing. NotFound for another member's."""
        ...

    async def lose_backgrounds(self, by: MemberRef) -> list[Background]:
        """After a restart: what older incarnations of this member left running is `lost`, with one notice each."""
        ...

    async def list_backgrounds(
        self, team_id: int, *, name: str | None = None, running_only: bool = False
    ) -> list[Background]:
        """By number."""
        ...

    # -- budgets ---------------------------------------------------------------

    async def reserve(
        self,
        by: MemberRef,
        *,
        purpose: str,
        provider_key: str,
        model: str,
        tokens: int,
        cost_usd: float,
        operation_id: str | None = None,
    ) -> Reserved:
        """Leave to ask a model: tokens and cost at their most are set aside, for the member and the team.

        Refused, with why, while the team is paused (`settings["paused"]`), while the
        provider is blocked (`until`), and where a limit of `settings["budget"]` would be
        passed (`max_cost_usd`, `max_tokens`, `max_calls` of the team; the same under
        `member` for each member). What an incarnation that is over had reserved counts as
        spent. The first final refusal in a state is told to the lead and the human once.
        """
        ...

    async def settle(self, by: MemberRef, settlement: Settlement) -> Reservation:
        """For a call that leaves no turn (a failed one, a compaction, a subagent). Settling twice changes nothing.
        At 80 % of a limit the human is told, once."""
        ...

    async def block_provider(self, provider_key: str, *, seconds: float) -> ProviderGate:
        """It asked to be left alone: nobody who shares this key asks before that. Never shortens."""
        ...

    async def list_accounts(self, team_id: int) -> list[Account]:
        """The team's (`member_key` empty) first, then each member's who has spent something, by key."""
        ...

    # -- the whole -------------------------------------------------------------

    async def interrupt_member(
        self, by: MemberRef, name: str, content: str = "", *, operation_id: str | None = None
    ) -> Member:
        """Lead only. What it runs just now is to be cut off: `counters["interrupt"]` grows, it is rung, and a text is
        sent along as mail."""
        ...

    async def want_compaction(
        self, by: MemberRef, name: str, focus: str = "", *, operation_id: str | None = None
    ) -> Member:
        """Lead only. Before its next request it is to compress its memory: `counters["compact"]` says what it must
        keep above all. UsageError for one who has no transcript here."""
        ...

    async def succeed_team(
        self,
        by: MemberRef,
        name: str,
        *,
        goal: str = "",
        call_id: str | None = None,
        result: str = "",
        operation_id: str | None = None,
    ) -> Member:
        """The lead of a deleted team opens its next one and goes on in it with its memory, hosted as before.

        One transaction: the team (settings of the old one), the transcript copied, the
        open call finished with `result` in both, the old lead at rest (`finished`).
        Conflict while the old team lives or the name is taken. Returns the new lead.
        """
        ...

    async def get_snapshot(self, team_id: int) -> Snapshot:
        """Everything that tells whether a team moves, in one moment; see `domain.standing`."""
        ...

    # -- events and bells ------------------------------------------------------

    async def record_event(
        self, by: MemberRef, kind: EventKind, data: Mapping[str, Any], *, operation_id: str | None = None
    ) -> None:
        """A fact of a member's that no other verb tells (`domain.event.OBSERVED`). UsageError for any other kind."""
        ...

    async def list_events(self, team_id: int, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        """In order, without gaps: what is returned once is complete up to its last position. UsageError for a
        position that this store never gave out, or whose events were pruned."""
        ...

    async def last_position(self, team_id: int) -> str:
        """Where the log ends now: follow from here to see only what is new."""
        ...

    def follow_events(self, team_id: int, *, after: str = BEGINNING) -> AsyncIterator[Event]:
        """All events after a position, then each new one as it is committed, until it is cancelled. StoreUnavailable if
        the store is away for longer than a verb waits: follow on from the last position then. StoreRemoved if the log
        was replaced by another."""
        ...

    def listen_member(self, by: MemberRef) -> AbstractAsyncContextManager[Bell]:
        """Rings for mail to it, a request to it, an answer to it, a claimable task that it is chosen for, and the end
        of its life or incarnation, after which a look raises LeaseLost; also when the store is closed.

        The member must be hosted by a worker of this store object. A task wakes at
        most as many idle members as there are claimable tasks; who claims one wakes the next
        member if more are left.
        """
        ...

    def listen_wanted(self) -> AbstractAsyncContextManager[Bell]:
        """Rings when a member becomes wanted."""
        ...

    def listen_submissions(self) -> AbstractAsyncContextManager[Bell]:
        """Rings in every process with a worker when there may be a submission to take: one was queued, or its team has
        none taken any more."""
        ...

    def listen_events(self, team_id: int) -> AbstractAsyncContextManager[Bell]:
        """Rings when the team's log has grown."""
        ...
