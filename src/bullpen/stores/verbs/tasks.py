"""Verbs about the board: how a task comes, whose it becomes, and how it goes. What changes one is in `changes.py`,
what completes one in `completion.py`."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.event import EventKind
from bullpen.domain.files import HAS_FILES, parse_files
from bullpen.domain.member import Autonomy, MemberKind, MemberRef
from bullpen.domain.record import replace
from bullpen.domain.task import (
    RELEASES_DEPENDENTS,
    Handover,
    Task,
    TaskStatus,
    check_claimable,
    check_transition,
    format_ids,
)
from bullpen.domain.text import clean, name_key, normalise_role
from bullpen.errors import Conflict
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.board import (
    checked_check,
    checked_role,
    checked_subject,
    foresee_task,
    get_blockers,
    get_owner,
    get_task_record,
    hold_task,
    report_missing_role,
)
from bullpen.stores.verbs.claiming import begin_work, check_hands_free, check_may_claim, claim_assigned, take
from bullpen.stores.verbs.completion import end_task
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.finishing import release_dependents, tell_owner
from bullpen.stores.verbs.hosting import give_back
from bullpen.stores.verbs.overlap import claim_apart, overlaps_of, remember_files
from bullpen.stores.verbs.post import tell_lead
from bullpen.stores.verbs.queueing import withdraw_work_on
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import foresee_offer, offer


class TaskVerbs:
    @write
    async def create_task(
        tx: Transaction,
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
        globs = parse_files(files)
        tx.foresee(lambda: tx.fence(by, Lock.SHARE))
        if owner is None and not blocked_by:
            foresee_offer(tx, by.team_id, normalise_role(checked_role(role)))
        # The number first: it locks the team, the first in the order of locks, and shows a deletion.
        number = await tx.take_task_id(by.team_id)
        team, creator = await fenced(tx, by)
        if globs:
            await remember_files(tx, team)
        assigned = None if owner is None else await get_owner(tx, by.team_id, owner)
        # Blockers are held: one that completes just now is seen as completed, or counts its dependents after us.
        blockers = await get_blockers(tx, by.team_id, blocked_by)
        task = await tx.insert(
            Task(
                team_id=by.team_id,
                id=number,
                subject=checked_subject(subject),
                description=clean(description, what="description"),
                active_form=clean(active_form),
                owner=None if assigned is None else assigned.name,
                role=checked_role(role),
                check=checked_check(check),
                files=globs,
                blocked_by=tuple(blocker.id for blocker in blockers),
                open_blockers=sum(blocker.status not in RELEASES_DEPENDENTS for blocker in blockers),
                created_by=creator.name,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
        tx.record(
            task.team_id,
            EventKind.TASK_CREATED,
            creator.name,
            task=task.id,
            subject=task.subject,
            role=task.role,
            owner=task.owner,
            blocked_by=list(task.blocked_by),
        )
        await report_missing_role(tx, task)
        await offer(tx, [task])
        return task

    @read
    async def get_task(tx: Transaction, team_id: int, task_id: int) -> Task:
        return await get_task_record(tx, team_id, task_id, Lock.NONE)

    @read
    async def list_tasks(
        tx: Transaction,
        team_id: int,
        *,
        status: TaskStatus | None = None,
        owner: str | None = None,
        after_id: int = 0,
        limit: int | None = None,
    ) -> list[Task]:
        return await tx.list_tasks(team_id, status, None if owner is None else name_key(owner), after_id, limit)

    @write
    async def claim_next_task(tx: Transaction, by: MemberRef, *, operation_id: str | None = None) -> Task | None:
        tx.foresee_claim(by)
        team, me = await fenced(tx, by, lock=Lock.UPDATE)
        check_may_claim(me)
        overlaps: list[Task] = []
        if me.autonomy is not Autonomy.AUTO:
            task = await claim_assigned(tx, me)
        elif HAS_FILES in team.settings:
            task, overlaps = await claim_apart(tx, me)
        else:
            task = await tx.claim_next(me)
        if task is None:
            await check_hands_free(tx, me)
            return None
        if task.verifying:
            # A check that the lead began while nobody had the task: it is another attempt from here on.
            task = replace(task, verifying=False)
            await tx.update(task)
        await begin_work(tx, task, me, overlaps)
        return task

    @write
    async def claim_task(tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by, lock=Lock.UPDATE)
        check_may_claim(me)
        task = await get_task_record(tx, by.team_id, task_id, Lock.UPDATE)
        if task.status is TaskStatus.IN_PROGRESS and task.is_owned_by(me.name):
            return task
        check_claimable(task, name=me.name, role=me.role)
        await check_hands_free(tx, me)
        claimed = await take(tx, task, me)
        await begin_work(tx, claimed, me, await overlaps_of(tx, claimed))
        return claimed

    @write
    async def fail_task(
        tx: Transaction, by: MemberRef, task_id: int, *, reason: str = "", operation_id: str | None = None
    ) -> Task:
        foresee_task(tx, by, task_id)
        _, me = await fenced(tx, by)
        task = await hold_task(tx, by, task_id)
        if task.status is TaskStatus.FAILED and task.is_owned_by(me.name):
            return task
        check_transition(task, TaskStatus.FAILED, name=me.name, leads=me.leads)
        failed = await end_task(tx, task, me, TaskStatus.FAILED, result=reason)
        waiting = f"; {format_ids(failed.blocks)} wait for it" if failed.blocks else ""
        why = f": {failed.result}" if failed.result else ""
        await tell_lead(
            tx, task.team_id, f"#{task.id} failed, said {me.name}{why}{waiting}", wakes=me.kind is not MemberKind.LEAD
        )
        return failed

    @write
    async def release_task(
        tx: Transaction, by: MemberRef, task_id: int, *, note: str = "", operation_id: str | None = None
    ) -> Task:
        foresee_task(tx, by, task_id)
        _, me = await fenced(tx, by, team_must_live=False)
        task = await hold_task(tx, by, task_id)
        if task.status is TaskStatus.PENDING:
            raise Conflict(f"#{task.id} is not in progress: there is nothing to release")
        check_transition(task, TaskStatus.PENDING, name=me.name, leads=me.leads)
        if task.status is TaskStatus.FAILED:
            raise Conflict(f"#{task.id} has failed: retry it instead")
        task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} released #{task.id}")
        await tell_owner(tx, task, me, f"#{task.id} was taken from you by {me.name}: stop working on it")
        return await give_back(tx, task, by=task.owner or me.name, note=clean(note) or "released", actor=me.name)

    @write
    async def retry_task(
        tx: Transaction, by: MemberRef, task_id: int, *, note: str = "", operation_id: str | None = None
    ) -> Task:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by)
        task = await get_task_record(tx, by.team_id, task_id, Lock.UPDATE)
        if task.status is not TaskStatus.FAILED:
            raise Conflict(f"#{task.id} is {task.status}: only a failed task is tried again")
        check_transition(task, TaskStatus.PENDING, name=me.name, leads=me.leads)
        handover = Handover(
            by=task.owner or me.name, at=tx.now, note=clean(note) or f"failed: {task.result or 'no reason given'}"
        )
        again = replace(
            task,
            status=TaskStatus.PENDING,
            owner=None,
            claimed_at=None,
            finished_at=None,
            # Why it failed is in the hand-over: it is not the result of the next attempt.
            result=None,
            updated_at=tx.now,
            handovers=(*task.handovers, handover),
        )
        await tx.update(again)
        tx.record(task.team_id, EventKind.TASK_RETRIED, me.name, task=task.id)
        await offer(tx, [again])
        return again

    @write
    async def delete_task(tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task:
        foresee_task(tx, by, task_id)
        _, me = await fenced(tx, by)
        task = await hold_task(tx, by, task_id)
        check_transition(task, TaskStatus.DELETED, name=me.name, leads=me.leads)
        task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} deleted #{task.id}")
        await tell_owner(tx, task, me, f"#{task.id} was deleted by {me.name}: stop working on it")
        was_holding = task.status not in RELEASES_DEPENDENTS
        deleted = replace(
            task, status=TaskStatus.DELETED, verifying=False, reserved_until=None, finished_at=tx.now, updated_at=tx.now
        )
        await tx.update(deleted)
        tx.record(task.team_id, EventKind.TASK_DELETED, me.name, task=task.id)
        if was_holding:
            await release_dependents(tx, deleted, actor=me.name)
        return deleted
