"""Into the queue of a team and out of it again, for every verb that touches a submission.

A submission is locked after its task. Whoever makes one holds the team, so that numbers are the order of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM, Member, Team
from bullpen.domain.record import replace
from bullpen.domain.submission import Submission, SubmissionState, Work, check_work
from bullpen.domain.task import Task
from bullpen.domain.text import clean
from bullpen.errors import Conflict
from bullpen.stores.transaction import Lock, SubmissionRing, Transaction


async def submit(
    tx: Transaction,
    number: int,
    me: Member,
    work: Work,
    *,
    result: str,
    task: Task | None = None,
    has_passed: bool = False,
) -> Submission:
    """`number` was taken before anything else, which holds the team."""
    check_work(work)
    submission = await tx.insert(
        Submission(
            team_id=me.team_id,
            id=number,
            member=me.name,
            task_id=None if task is None else task.id,
            attempt=0 if task is None else task.attempt,
            base=work.base,
            commit=work.commit,
            result=clean(result, what="result"),
            check=None if task is None else task.check,
            has_passed=has_passed,
            submitted_at=tx.now,
        )
    )
    tx.record(me.team_id, EventKind.WORK_SUBMITTED, me.name, **facts_of(submission), commit=work.commit)
    tx.ring(SubmissionRing())
    return submission


async def find_open(tx: Transaction, task: Task, *, lock: Lock = Lock.NONE) -> Submission | None:
    """The submission that its task waits for; None if it waits for none."""
    if task.submission is None:
        return None
    found = await tx.find(Submission, task.team_id, task.submission, lock=lock)
    return found if found is not None and found.is_open else None


async def withdraw_work_on(tx: Transaction, task: Task, *, actor: str, why: str) -> Task:
    """`task` is locked and about to become something else. Conflict if its work is just being integrated."""
    if task.submission is None:
        return task
    submission = await find_open(tx, task, lock=Lock.UPDATE)
    if submission is None:
        return replace(task, submission=None)
    if submission.state is SubmissionState.TAKEN:
        raise Conflict(f"the work on #{task.id} is just being integrated: try again in a moment")
    await _withdraw(tx, submission, actor=actor, why=why)
    return replace(task, submission=None)


async def _withdraw_with_mark(tx: Transaction, submission: Submission, *, actor: str, why: str) -> None:
    """Its task waits for it no longer either."""
    await _withdraw(tx, submission, actor=actor, why=why)
    task = None if submission.task_id is None else await tx.find(Task, submission.team_id, submission.task_id)
    if task is not None and task.submission == submission.id:
        await tx.update(replace(task, submission=None, updated_at=tx.now))


async def _withdraw(tx: Transaction, submission: Submission, *, actor: str, why: str) -> None:
    """`submission` is locked. Nobody integrates it any more."""
    await end(tx, submission, SubmissionState.WITHDRAWN, note=why)
    tx.record(submission.team_id, EventKind.WORK_WITHDRAWN, actor, **facts_of(submission), why=why)


async def withdraw_queue(tx: Transaction, team_id: int, *, actor: str, why: str) -> None:
    """What is queued. The team is held, so nobody takes or adds anything meanwhile."""
    for seen in await tx.list_submissions(team_id, True):
        if seen.task_id is not None:
            await tx.find(Task, team_id, seen.task_id, lock=Lock.UPDATE)
        submission = await tx.find(Submission, team_id, seen.id, lock=Lock.UPDATE)
        if submission is not None and submission.state is SubmissionState.QUEUED:
            await _withdraw_with_mark(tx, submission, actor=actor, why=why)


async def put_back(tx: Transaction, taken: Submission, *, why: str) -> None:
    """`taken` is locked. Its worker does not integrate it: the next one takes it."""
    team = await tx.find(Team, taken.team_id)
    if team is None or team.deleted_at is not None:
        await _withdraw_with_mark(tx, taken, actor=SYSTEM, why=why)
        return
    await tx.update(replace(taken, state=SubmissionState.QUEUED, worker_id=None))
    tx.record(taken.team_id, EventKind.WORK_RELEASED, SYSTEM, **facts_of(taken), worker=taken.worker_id, why=why)
    tx.ring(SubmissionRing())


async def end(tx: Transaction, submission: Submission, state: SubmissionState, **fields: Any) -> Submission:
    ended: Submission = replace(submission, state=state, ended_at=tx.now, **fields)
    await tx.update(ended)
    # Whether there is another one or not: one that is just being queued cannot be seen from here, and whoever looked
    # for it saw that this one was taken.
    tx.ring(SubmissionRing())
    return ended


def facts_of(submission: Submission) -> Mapping[str, Any]:
    return {"submission": submission.id, "task": submission.task_id, "member": submission.member}
