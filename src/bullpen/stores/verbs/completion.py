"""Verbs that complete a task: as it is, by its check, or with work that has to be integrated first."""

from __future__ import annotations

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberKind, MemberRef
from bullpen.domain.record import replace
from bullpen.domain.submission import Work
from bullpen.domain.task import CheckRun, Evidence, Task, TaskStatus, check_transition
from bullpen.domain.text import clean
from bullpen.errors import CheckRequired, Conflict, NotAllowed, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.board import foresee_task, get_task_record, hold_task
from bullpen.stores.verbs.claiming import begin_work, check_hands_free, take
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.finishing import finish, tell_owner
from bullpen.stores.verbs.post import PREVIEW_LENGTH
from bullpen.stores.verbs.queueing import find_open, submit, withdraw_work_on
from bullpen.stores.verbs.verb import write


class CompletionVerbs:
    @write
    async def start_check(
        tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None
    ) -> CheckRun | None:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by)
        task = await get_task_record(tx, by.team_id, task_id, Lock.UPDATE)
        check_transition(task, TaskStatus.COMPLETED, name=me.name, leads=me.leads)
        if task.check is None or await find_open(tx, task) is not None:
            return None
        verifying = await _begin_check(tx, task, me)
        return CheckRun(task_id=task.id, attempt=verifying.attempt, check=task.check)

    @write
    async def finish_check(
        tx: Transaction,
        by: MemberRef,
        run: CheckRun,
        evidence: Evidence,
        *,
        result: str = "",
        work: Work | None = None,
        operation_id: str | None = None,
    ) -> Task:
        number, me, task = await _hold_to_complete(tx, by, run.task_id, work)
        if not task.verifying or task.attempt != run.attempt or task.check != run.check:
            raise Conflict(
                f"#{task.id} has moved on since check attempt {run.attempt} began: its verdict counts no more"
            )
        checked = await _judge(tx, task, me, evidence)
        if not evidence.passed:
            await tx.update(checked)
            return checked
        if work is not None:
            has_passed = evidence.commit == work.commit
            return await _submit(tx, number, checked, me, work, result=result, has_passed=has_passed)
        return await end_task(tx, checked, me, TaskStatus.COMPLETED, result=result)

    @write
    async def complete_checked_task(
        tx: Transaction,
        by: MemberRef,
        task_id: int,
        evidence: Evidence,
        *,
        result: str = "",
        operation_id: str | None = None,
    ) -> Task:
        _, me, task = await _hold_to_complete(tx, by, task_id, None)
        if task.status is TaskStatus.COMPLETED and task.is_owned_by(me.name):
            return task
        check_transition(task, TaskStatus.COMPLETED, name=me.name, leads=me.leads)
        if await find_open(tx, task) is not None:
            return task
        if task.check is None:
            raise UsageError(f"#{task.id} has no check that evidence could be of")
        checked = await _judge(tx, await _begin_check(tx, task, me), me, evidence)
        if not evidence.passed:
            await tx.update(checked)
            return checked
        return await end_task(tx, checked, me, TaskStatus.COMPLETED, result=result)

    @write
    async def complete_task(
        tx: Transaction,
        by: MemberRef,
        task_id: int,
        *,
        result: str = "",
        unverified: bool = False,
        work: Work | None = None,
        operation_id: str | None = None,
    ) -> Task:
        number, me, task = await _hold_to_complete(tx, by, task_id, work)
        if task.status is TaskStatus.COMPLETED and task.is_owned_by(me.name):
            return task
        check_transition(task, TaskStatus.COMPLETED, name=me.name, leads=me.leads)
        completes_at_once = me.kind is MemberKind.USER and work is None
        if not completes_at_once and await find_open(tx, task) is not None:
            return task
        if task.check is not None:
            if not unverified:
                raise CheckRequired(f"#{task.id} has the check {task.check!r}: it is completed when that has passed")
            if me.kind is not MemberKind.USER:
                raise NotAllowed(f"only the human may complete #{task.id} without its check")
        if work is not None:
            return await _submit(tx, number, replace(task, attempt=task.attempt + 1), me, work, result=result)
        return await end_task(tx, task, me, TaskStatus.COMPLETED, result=result, unverified=task.check is not None)


async def _hold_to_complete(
    tx: Transaction, by: MemberRef, task_id: int, work: Work | None
) -> tuple[int, Member, Task]:
    """Who completes, and the task. With work, the number of its submission first: it locks the team."""
    number = 0
    if work is not None:
        tx.foresee(lambda: tx.fence(by, Lock.SHARE))
    foresee_task(tx, by, task_id)
    if work is not None:
        number = await tx.take_submission_id(by.team_id)
    _, me = await fenced(tx, by)
    return number, me, await hold_task(tx, by, task_id)


async def _submit(
    tx: Transaction, number: int, task: Task, me: Member, work: Work, *, result: str, has_passed: bool = False
) -> Task:
    """It would be completed now: instead it waits for its work to be integrated, in progress and its owner's."""
    await tell_owner(tx, task, me, f"#{task.id} was completed by {me.name}: stop working on it")
    if task.status is not TaskStatus.IN_PROGRESS:
        await check_hands_free(tx, me)
        task = await take(tx, task, me)
        await begin_work(tx, task, me)
    submission = await submit(tx, number, me, work, result=result, task=task, has_passed=has_passed)
    waiting = replace(task, submission=submission.id, verifying=False, reserved_until=None, updated_at=tx.now)
    await tx.update(waiting)
    return waiting


async def _begin_check(tx: Transaction, task: Task, me: Member) -> Task:
    verifying = replace(task, verifying=True, attempt=task.attempt + 1, updated_at=tx.now)
    await tx.update(verifying)
    tx.record(
        task.team_id,
        EventKind.TASK_CHECK_STARTED,
        me.name,
        task=task.id,
        attempt=verifying.attempt,
        check=task.check,
    )
    return verifying


async def _judge(tx: Transaction, task: Task, me: Member, evidence: Evidence) -> Task:
    """The task with the verdict of the check that it is under, not stored yet."""
    assert task.check is not None
    if evidence.command != task.check:
        raise UsageError(f"the evidence is of {evidence.command[:80]!r}, not of the check {task.check[:80]!r}")
    check_transition(task, TaskStatus.COMPLETED, name=me.name, leads=me.leads)
    kept = replace(evidence, tail=clean(evidence.tail), checked_at=evidence.checked_at or tx.now)
    tx.record(
        task.team_id,
        EventKind.TASK_CHECK_FINISHED,
        me.name,
        task=task.id,
        attempt=task.attempt,
        exit_code=evidence.exit_code,
        seconds=evidence.seconds,
        text=_last_line(kept.tail),
    )
    return replace(task, verifying=False, evidence=kept, updated_at=tx.now)


def _last_line(tail: str) -> str:
    """In which most commands say how it ended."""
    return next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")[:PREVIEW_LENGTH]


async def end_task(
    tx: Transaction, task: Task, me: Member, status: TaskStatus, *, result: str, unverified: bool = False
) -> Task:
    """By whoever decides it: what was handed in for it goes with it, and an owner who was at work is told."""
    task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} set #{task.id} to {status}")
    await tell_owner(tx, task, me, f"#{task.id} was set to {status} by {me.name}: stop working on it")
    return await finish(tx, task, status, actor=me.name, result=result, unverified=unverified)
