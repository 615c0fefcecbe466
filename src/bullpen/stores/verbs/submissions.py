"""Verbs about the queue: what members made is taken, one at a time in each team, and integrated or refused."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM, Member, MemberRef, MemberStatus, Team
from bullpen.domain.record import replace
from bullpen.domain.submission import Submission, SubmissionState, Work, check_commit
from bullpen.domain.task import Evidence, Task, TaskStatus
from bullpen.domain.text import clean, name_key
from bullpen.errors import Conflict, LeaseLost, NotFound
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.finishing import finish
from bullpen.stores.verbs.hosting import give_back, reserve
from bullpen.stores.verbs.post import PREVIEW_LENGTH, notify
from bullpen.stores.verbs.queueing import end, facts_of, put_back, submit
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import wake
from bullpen.stores.verbs.workers import living_worker


class SubmissionVerbs:
    @write
    async def submit_work(
        tx: Transaction, by: MemberRef, work: Work, *, result: str = "", operation_id: str | None = None
    ) -> Submission:
        tx.foresee(lambda: tx.fence(by, Lock.SHARE))
        # The number first: it locks the team, the first in the order of locks.
        number = await tx.take_submission_id(by.team_id)
        _, me = await fenced(tx, by)
        return await submit(tx, number, me, work, result=result)

    @write
    async def take_submission(
        tx: Transaction, worker_id: int, *, team_id: int | None = None, except_teams: Sequence[int] = ()
    ) -> Submission | None:
        worker = await living_worker(tx, worker_id, lock=Lock.NONE)
        if not worker.slots or team_id in except_teams:
            return None
        # Again if somebody was faster: another team may have one too.
        while (seen := await tx.find_queued(team_id, except_teams)) is not None:
            # Held, so that of two who look at the same queue one waits and then finds it taken.
            await tx.find(Team, seen.team_id, lock=Lock.UPDATE)
            # Held, so that its end finds what is taken here.
            await living_worker(tx, worker_id, lock=Lock.SHARE)
            if (first := await tx.find_queued(seen.team_id)) is None:
                continue
            submission = await _get(tx, first.team_id, first.id, Lock.UPDATE)
            if submission.state is not SubmissionState.QUEUED:
                continue
            taken = replace(submission, state=SubmissionState.TAKEN, worker_id=worker_id)
            await tx.update(taken)
            tx.record(taken.team_id, EventKind.WORK_TAKEN, SYSTEM, **facts_of(taken), worker=worker_id)
            return taken
        return None

    @write
    async def accept_submission(
        tx: Transaction,
        worker_id: int,
        team_id: int,
        submission_id: int,
        commit: str,
        *,
        evidence: Evidence | None = None,
        operation_id: str | None = None,
    ) -> Submission:
        check_commit(commit)
        task, submission = await _hold_taken(tx, worker_id, team_id, submission_id, SubmissionState.INTEGRATED)
        if submission.state is SubmissionState.INTEGRATED:
            return submission
        integrated = await end(tx, submission, SubmissionState.INTEGRATED, integrated=commit)
        tx.record(team_id, EventKind.WORK_INTEGRATED, SYSTEM, **facts_of(submission), commit=commit)
        if task is not None:
            shown = _kept(tx, evidence) or task.evidence
            shown = None if shown is None else replace(shown, commit=commit)
            held = replace(task, evidence=shown, commit=commit)
            await finish(tx, held, TaskStatus.COMPLETED, actor=submission.member, result=submission.result)
        # Its hands are free: it may claim again.
        for name in _concerned(submission, task):
            if (member := await tx.find(Member, team_id, name_key(name))) is not None:
                wake(tx, member)
        return integrated

    @write
    async def refuse_submission(
        tx: Transaction,
        worker_id: int,
        team_id: int,
        submission_id: int,
        why: str,
        *,
        evidence: Evidence | None = None,
        operation_id: str | None = None,
    ) -> Submission:
        await living_worker(tx, worker_id, lock=Lock.SHARE)
        await _hold_concerned(tx, await _get(tx, team_id, submission_id, Lock.NONE))
        task, submission = await _hold_taken(tx, worker_id, team_id, submission_id, SubmissionState.REFUSED)
        if submission.state is SubmissionState.REFUSED:
            return submission
        why = clean(why, what="reason")
        refused = await end(tx, submission, SubmissionState.REFUSED, note=why)
        tx.record(team_id, EventKind.WORK_REFUSED, SYSTEM, **facts_of(submission), why=why[:PREVIEW_LENGTH])
        if task is not None:
            shown = _kept(tx, evidence) or task.evidence
            task = replace(task, submission=None, evidence=shown, updated_at=tx.now)
            await tx.update(task)
        for name in _concerned(submission, task):
            await notify(tx, team_id, name, f"the {submission.label} was not integrated: {why}")
        if task is not None:
            await _leave_to_somebody(tx, task, why)
        return refused

    @write
    async def release_submission(
        tx: Transaction, worker_id: int, team_id: int, submission_id: int, why: str
    ) -> Submission:
        _, submission = await _hold_taken(tx, worker_id, team_id, submission_id, SubmissionState.QUEUED)
        if submission.state is SubmissionState.QUEUED:
            return submission
        await put_back(tx, submission, why=clean(why, what="reason")[:PREVIEW_LENGTH])
        return await _get(tx, team_id, submission_id, Lock.NONE)

    @read
    async def get_submission(tx: Transaction, team_id: int, submission_id: int) -> Submission:
        return await _get(tx, team_id, submission_id, Lock.NONE)

    @read
    async def list_submissions(
        tx: Transaction, team_id: int, *, open_only: bool = False, member: str | None = None
    ) -> list[Submission]:
        if member is None:
            return await tx.list_submissions(team_id, open_only)
        found = await tx.list_submissions_of(team_id, name_key(member))
        return [one for one in found if one.is_open or not open_only]

    @read
    async def _has_queued(tx: Transaction) -> bool:
        return await tx.find_queued(None) is not None


async def _get(tx: Transaction, team_id: int, submission_id: int, lock: Lock) -> Submission:
    submission = await tx.find(Submission, team_id, submission_id, lock=lock)
    if submission is None:
        raise NotFound(f"there is no submission {submission_id} in this team")
    return submission


async def _hold_taken(
    tx: Transaction, worker_id: int, team_id: int, submission_id: int, to: SubmissionState
) -> tuple[Task | None, Submission]:
    """What this worker has taken, or what already is as it shall be; with the task that still waits for it."""
    await living_worker(tx, worker_id, lock=Lock.SHARE)
    seen = await _get(tx, team_id, submission_id, Lock.NONE)
    task = None if seen.task_id is None else await tx.find(Task, team_id, seen.task_id, lock=Lock.UPDATE)
    submission = await _get(tx, team_id, submission_id, Lock.UPDATE)
    if submission.state is not to:
        if not submission.is_open:
            raise Conflict(f"submission {submission_id} was {submission.state}: it cannot become {to}")
        if submission.worker_id != worker_id:
            raise LeaseLost(f"submission {submission_id} is not worker {worker_id}'s to integrate: take it again")
    waits = task is not None and task.submission == submission_id and task.status is TaskStatus.IN_PROGRESS
    return task if waits else None, submission


def _concerned(submission: Submission, task: Task | None) -> list[str]:
    """Who made it, and whose task it is, if that is another one."""
    if task is None or task.owner is None or task.is_owned_by(submission.member):
        return [submission.member]
    return sorted([submission.member, task.owner], key=name_key)


async def _hold_concerned(tx: Transaction, submission: Submission) -> None:
    """Who is told of its end, before the task, in the order of locks: one who is leaving wants that next."""
    task = None if submission.task_id is None else await tx.find(Task, submission.team_id, submission.task_id)
    for name in _concerned(submission, task):
        await tx.find(Member, submission.team_id, name_key(name), lock=Lock.SHARE)


def _kept(tx: Transaction, evidence: Evidence | None) -> Evidence | None:
    if evidence is None:
        return None
    return replace(evidence, tail=clean(evidence.tail), checked_at=evidence.checked_at or tx.now)


async def _leave_to_somebody(tx: Transaction, task: Task, why: str) -> None:
    """Its owner goes on with it. One whom nobody hosts has it for a while, one at rest for good gives it back."""
    owner = None if task.owner_key is None else await tx.find(Member, task.team_id, task.owner_key)
    if owner is None or owner.status is MemberStatus.SHUTDOWN:
        await give_back(tx, task, by=task.owner or SYSTEM, note=f"not integrated: {why}", actor=SYSTEM)
    elif owner.status is MemberStatus.WANTED:
        await reserve(tx, task)
