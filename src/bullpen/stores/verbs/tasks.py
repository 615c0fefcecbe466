"""Verbs about the board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.files import HAS_FILES, parse_files
from bullpen.domain.graph import find_path
from bullpen.domain.member import Autonomy, Member, MemberKind, MemberRef, MemberStatus, Team
from bullpen.domain.record import replace
from bullpen.domain.submission import Work
from bullpen.domain.task import (
    RELEASES_DEPENDENTS,
    UNSET,
    CheckRun,
    Evidence,
    Handover,
    Task,
    TaskChanges,
    TaskStatus,
    check_claimable,
    check_edge,
    check_transition,
    format_ids,
    is_claimable,
)
from bullpen.domain.text import check_role, clean, name_key, normalise_role
from bullpen.errors import AlreadyClaimed, CheckRequired, Conflict, NotAllowed, NotFound, ShuttingDown, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.finishing import finish, release_dependents, tell_owner
from bullpen.stores.verbs.hosting import give_back
from bullpen.stores.verbs.members import change_status
from bullpen.stores.verbs.overlap import claim_apart, overlaps_of, remember_files
from bullpen.stores.verbs.post import PREVIEW_LENGTH, notify, tell_lead
from bullpen.stores.verbs.queueing import find_open, submit, withdraw_work_on
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import foresee_offer, offer, pass_baton

MAX_SUBJECT_LENGTH = 1000


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
            foresee_offer(tx, by.team_id, normalise_role(_checked_role(role)))
        # The number first: it locks the team, the first in the order of locks, and shows a deletion.
        number = await tx.take_task_id(by.team_id)
        team, creator = await fenced(tx, by)
        if globs:
            await remember_files(tx, team)
        assigned = None if owner is None else await _get_owner(tx, by.team_id, owner)
        # Blockers are held: one that completes just now is seen as completed, or counts its dependents after us.
        blockers = await _get_blockers(tx, by.team_id, blocked_by)
        open_ones = [blocker.id for blocker in blockers if blocker.status not in RELEASES_DEPENDENTS]
        task = await tx.insert(
            Task(
                team_id=by.team_id,
                id=number,
                subject=_checked_subject(subject),
                description=clean(description, what="description"),
                active_form=clean(active_form),
                owner=None if assigned is None else assigned.name,
                role=_checked_role(role),
                check=_checked_check(check),
                files=globs,
                blocked_by=tuple(sorted({blocker.id for blocker in blockers})),
                open_blockers=len(set(open_ones)),
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
        await _report_missing_role(tx, task)
        await offer(tx, [task])
        return task

    @read
    async def get_task(tx: Transaction, team_id: int, task_id: int) -> Task:
        return await _get(tx, team_id, task_id, Lock.NONE)

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
    async def update_task(
        tx: Transaction, by: MemberRef, task_id: int, changes: TaskChanges, *, operation_id: str | None = None
    ) -> Task:
        if changes.files is not UNSET and changes.files:
            # Before the member, in the order of locks.
            team = await tx.find(Team, by.team_id, lock=Lock.UPDATE)
            if team is not None:
                await remember_files(tx, team)
        _, me = await fenced(tx, by)
        if ends := {*changes.add_blocked_by, *changes.remove_blocked_by, *changes.add_blocks}:
            await tx.lock_graph(by.team_id)
            # Ascending, as locks are taken: who finishes the blocker just now holds it and then wants its dependents.
            await tx.find_tasks(by.team_id, sorted({*ends, task_id}), Lock.UPDATE)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
        _check_may_update(task, me, changes)
        task = await _change_fields(tx, task, me, changes)
        if changes.owner is not UNSET:
            task = await _change_owner(tx, task, me, changes.owner)
        touched = await _change_edges(tx, task, me, changes)
        task = await _get(tx, by.team_id, task_id, Lock.NONE)
        others = [await _get(tx, by.team_id, number, Lock.NONE) for number in sorted(touched - {task_id})]
        await offer(tx, [task, *others])
        return task

    @write
    async def claim_next_task(tx: Transaction, by: MemberRef, *, operation_id: str | None = None) -> Task | None:
        tx.foresee_claim(by)
        team, me = await fenced(tx, by, lock=Lock.UPDATE)
        _check_may_claim(me)
        overlaps: list[Task] = []
        if me.autonomy is not Autonomy.AUTO:
            task = await _claim_assigned(tx, me)
        elif HAS_FILES in team.settings:
            task, overlaps = await claim_apart(tx, me)
        else:
            task = await tx.claim_next(me)
        if task is None:
            await _check_hands_free(tx, me)
            return None
        if task.verifying:
            # A check that the lead began while nobody had the task: it is another attempt from here on.
            task = replace(task, verifying=False)
            await tx.update(task)
        await _claimed(tx, task, me, overlaps)
        return task

    @write
    async def claim_task(tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None) -> Task:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by, lock=Lock.UPDATE)
        _check_may_claim(me)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
        if task.status is TaskStatus.IN_PROGRESS and task.is_owned_by(me.name):
            return task
        check_claimable(task, name=me.name, role=me.role)
        await _check_hands_free(tx, me)
        claimed = await _take(tx, task, me)
        await _claimed(tx, claimed, me, await overlaps_of(tx, claimed))
        return claimed

    @write
    async def start_check(
        tx: Transaction, by: MemberRef, task_id: int, *, operation_id: str | None = None
    ) -> CheckRun | None:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
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
        return await _finish(tx, checked, me, TaskStatus.COMPLETED, result=result)

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
        return await _finish(tx, checked, me, TaskStatus.COMPLETED, result=result)

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
        return await _finish(tx, task, me, TaskStatus.COMPLETED, result=result, unverified=task.check is not None)

    @write
    async def fail_task(
        tx: Transaction, by: MemberRef, task_id: int, *, reason: str = "", operation_id: str | None = None
    ) -> Task:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
        if task.status is TaskStatus.FAILED and task.is_owned_by(me.name):
            return task
        check_transition(task, TaskStatus.FAILED, name=me.name, leads=me.leads)
        failed = await _finish(tx, task, me, TaskStatus.FAILED, result=reason)
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
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by, team_must_live=False)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
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
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
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
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by)
        task = await _get(tx, by.team_id, task_id, Lock.UPDATE)
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


async def _get(tx: Transaction, team_id: int, task_id: int, lock: Lock) -> Task:
    task = await tx.find(Task, team_id, task_id, lock=lock)
    if task is None:
        raise NotFound(f"there is no task #{task_id} in this team")
    return task


async def _get_owner(tx: Transaction, team_id: int, name: str) -> Member:
    member = await tx.find(Member, team_id, name_key(name), lock=Lock.SHARE)
    if member is None:
        raise NotFound(f"there is no member {name!r} to give the task to")
    return member


async def _get_blockers(tx: Transaction, team_id: int, ids: Sequence[int]) -> list[Task]:
    wanted = sorted(set(ids))
    found = await tx.find_tasks(team_id, wanted, Lock.SHARE) if wanted else []
    usable = {task.id for task in found if task.status is not TaskStatus.DELETED}
    missing = tuple(number for number in wanted if number not in usable)
    if missing:
        raise NotFound(f"there is no task {format_ids(missing)} to wait for")
    return found


def _checked_subject(subject: str) -> str:
    text = " ".join(clean(subject, what="subject").split())
    if not text:
        raise UsageError("a task needs a subject: say in one line what is to be done")
    if len(text) > MAX_SUBJECT_LENGTH:
        raise UsageError(
            f"the subject has {len(text):,} characters, at most {MAX_SUBJECT_LENGTH:,}: use the description"
        )
    return text


def _checked_role(role: str | None) -> str | None:
    return check_role((role or "").strip()) or None


def _checked_check(check: str | None) -> str | None:
    return clean(check, what="check").strip() or None if check is not None else None


async def _report_missing_role(tx: Transaction, task: Task) -> None:
    if task.role_key and not await tx.has_role(task.team_id, task.role_key):
        await notify(
            tx,
            task.team_id,
            task.created_by,
            f"#{task.id} is for role {task.role!r}, which nobody in the team has: spawn one, or change the role",
            wakes=False,
        )


# -- claiming ------------------------------------------------------------------------


def _check_may_claim(me: Member) -> None:
    if me.shutdown_request_id is not None or me.status is MemberStatus.STOPPING:
        raise ShuttingDown(f"{me.name} is asked to shut down and claims nothing more")


async def _claim_assigned(tx: Transaction, me: Member) -> Task | None:
    """Without autonomy a member takes only what was given to it."""
    if await tx.find_in_progress(me.team_id, me.key) is not None:
        return None
    for task in await tx.list_tasks(me.team_id, TaskStatus.PENDING, me.key, 0, None):
        held = await _get(tx, me.team_id, task.id, Lock.UPDATE)
        if is_claimable(held, name=me.name, role=me.role) and held.is_owned_by(me.name):
            return await _take(tx, held, me)
    return None


async def _take(tx: Transaction, task: Task, me: Member) -> Task:
    claimed = replace(
        task,
        status=TaskStatus.IN_PROGRESS,
        owner=me.name,
        claimed_at=tx.now,
        updated_at=tx.now,
        reserved_until=None,
        verifying=False,
    )
    await tx.update(claimed)
    return claimed


async def _check_hands_free(tx: Transaction, me: Member) -> None:
    held = await tx.find_in_progress(me.team_id, me.key)
    if held is None:
        return
    if held.submission is not None:
        raise AlreadyClaimed(f"the work of {me.name} on #{held.id} waits to be integrated: claim when it is")
    raise AlreadyClaimed(f"{me.name} has #{held.id} in progress: complete, fail or release it first")


async def _claimed(tx: Transaction, task: Task, me: Member, overlaps: Sequence[Task] = ()) -> None:
    if me.status is MemberStatus.IDLE and me.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
        await change_status(tx, me, MemberStatus.WORKING, reason="")
    facts: dict[str, Any] = {"task": task.id, "owner": me.name, "incarnation": me.incarnation}
    if overlaps:
        facts["overlaps"] = [other.id for other in overlaps]
    tx.record(task.team_id, EventKind.TASK_CLAIMED, me.name, **facts)
    await pass_baton(tx, me)


# -- changing ------------------------------------------------------------------------


def _check_may_update(task: Task, me: Member, changes: TaskChanges) -> None:
    if task.status is TaskStatus.DELETED:
        raise Conflict(f"#{task.id} has been deleted")
    _check_may_touch(task, me)
    is_creator = name_key(task.created_by) == me.key
    wants_rights = [name for name in ("role", "check", "owner") if getattr(changes, name) is not UNSET]
    if wants_rights and not me.leads and not (is_creator and task.status is TaskStatus.PENDING):
        raise NotAllowed(f"only the lead changes the {wants_rights[0]} of #{task.id}")
    if changes.owner is not UNSET and task.status not in (TaskStatus.PENDING, TaskStatus.IN_PROGRESS):
        raise Conflict(f"#{task.id} is {task.status}: it cannot be given to anybody")


def _check_may_touch(task: Task, me: Member) -> None:
    if not (me.leads or name_key(task.created_by) == me.key or task.is_owned_by(me.name)):
        raise NotAllowed(f"#{task.id} is neither yours nor created by you: only the lead changes it")


async def _change_fields(tx: Transaction, task: Task, me: Member, changes: TaskChanges) -> Task:
    fields: dict[str, Any] = dict(changes.fields)
    if not fields:
        return task
    checked = {"subject": _checked_subject, "role": _checked_role, "check": _checked_check, "files": parse_files}
    for name, value in fields.items():
        if value is None and name not in ("role", "check"):
            raise UsageError(f"the {name} of a task cannot be nothing")
        fields[name] = checked.get(name, clean)(value)
    if "check" in fields and fields["check"] != task.check:
        fields["verifying"] = False
    changed: Task = replace(task, **fields, updated_at=tx.now)
    await tx.update(changed)
    tx.record(task.team_id, EventKind.TASK_CHANGED, me.name, task=task.id, fields=sorted(changes.fields))
    if "role" in fields:
        await _report_missing_role(tx, changed)
    return changed


async def _change_owner(tx: Transaction, task: Task, me: Member, owner: Any) -> Task:
    if task.status is TaskStatus.IN_PROGRESS and (owner is None or not task.is_owned_by(owner)):
        task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} took #{task.id} from {task.owner}")
    if owner is None and task.status is TaskStatus.IN_PROGRESS:
        await tell_owner(tx, task, me, f"#{task.id} was taken from you by {me.name}: stop working on it")
        return await give_back(tx, task, by=task.owner or me.name, note=f"taken back by {me.name}", actor=me.name)
    new = None if owner is None else await _get_owner(tx, task.team_id, owner)
    if task.status is TaskStatus.IN_PROGRESS:
        assert new is not None
        if task.is_owned_by(new.name):
            return task
        await tell_owner(tx, task, me, f"#{task.id} was given to {new.name} by {me.name}: stop working on it")
    assigned = replace(
        task,
        owner=None if new is None else new.name,
        status=TaskStatus.PENDING,
        claimed_at=None,
        reserved_until=None,
        verifying=False,
        updated_at=tx.now,
    )
    await tx.update(assigned)
    tx.record(task.team_id, EventKind.TASK_ASSIGNED, me.name, task=task.id, owner=assigned.owner, old=task.owner)
    return assigned


async def _change_edges(tx: Transaction, task: Task, me: Member, changes: TaskChanges) -> set[int]:
    """Returns the tasks whose blockers changed. The graph is locked, so no other half of a cycle is under way."""
    pairs = [(blocker, task.id) for blocker in changes.add_blocked_by]
    pairs += [(task.id, dependent) for dependent in changes.add_blocks]
    touched: set[int] = set()
    for blocker, dependent in sorted(set(pairs)):
        if await _add_edge(tx, task.team_id, blocker, dependent, me):
            touched.add(dependent)
    for blocker in sorted(set(changes.remove_blocked_by)):
        found = await tx.find_tasks(task.team_id, [blocker], Lock.SHARE)
        is_open = bool(found) and found[0].status not in RELEASES_DEPENDENTS
        if await tx.remove_edge(task.team_id, task.id, blocker, is_open=is_open):
            touched.add(task.id)
    for number in sorted(touched):
        tx.record(task.team_id, EventKind.TASK_CHANGED, me.name, task=number, fields=["blocked_by"])
    return touched


async def _add_edge(tx: Transaction, team_id: int, blocker_id: int, dependent_id: int, me: Member) -> bool:
    check_edge(blocker_id, dependent_id, None)
    held = {found.id: found for found in await tx.find_tasks(team_id, sorted({blocker_id, dependent_id}), Lock.UPDATE)}
    blocker, dependent = held.get(blocker_id), held.get(dependent_id)
    if blocker is None or blocker.status is TaskStatus.DELETED:
        raise NotFound(f"there is no task #{blocker_id} to wait for")
    if dependent is None or dependent.status is TaskStatus.DELETED:
        raise NotFound(f"there is no task #{dependent_id} to be held back")
    _check_may_touch(dependent, me)
    if dependent.status is not TaskStatus.PENDING:
        raise Conflict(f"#{dependent_id} is {dependent.status}: only a pending task can be made to wait")
    check_edge(blocker_id, dependent_id, await _path(tx, team_id, blocker_id, dependent_id))
    return await tx.add_edge(team_id, dependent_id, blocker_id, is_open=blocker.status not in RELEASES_DEPENDENTS)


async def _path(tx: Transaction, team_id: int, start: int, goal: int) -> list[int] | None:
    """From `start` along its blockers to `goal`: the edges are read level by level, only as far as they reach."""
    edges: dict[int, Sequence[int]] = {}
    frontier = [start]
    while frontier:
        found = await tx.blockers_of(team_id, frontier)
        edges.update({number: found.get(number, ()) for number in frontier})
        if any(goal in edges[number] for number in frontier):
            break
        frontier = sorted({blocker for number in frontier for blocker in edges[number]} - edges.keys())
    return find_path(edges, start, goal)


# -- finishing -----------------------------------------------------------------------


async def _hold_to_complete(
    tx: Transaction, by: MemberRef, task_id: int, work: Work | None
) -> tuple[int, Member, Task]:
    """Who completes, and the task. With work, the number of its submission first: it locks the team."""
    number = 0
    if work is not None:
        tx.foresee(lambda: tx.fence(by, Lock.SHARE), lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
        number = await tx.take_submission_id(by.team_id)
    else:
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id, lock=Lock.UPDATE))
    _, me = await fenced(tx, by)
    return number, me, await _get(tx, by.team_id, task_id, Lock.UPDATE)


async def _submit(
    tx: Transaction, number: int, task: Task, me: Member, work: Work, *, result: str, has_passed: bool = False
) -> Task:
    """It would be completed now: instead it waits for its work to be integrated, in progress and its owner's."""
    await tell_owner(tx, task, me, f"#{task.id} was completed by {me.name}: stop working on it")
    if task.status is not TaskStatus.IN_PROGRESS:
        await _check_hands_free(tx, me)
        task = await _take(tx, task, me)
        await _claimed(tx, task, me)
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


async def _finish(
    tx: Transaction, task: Task, me: Member, status: TaskStatus, *, result: str, unverified: bool = False
) -> Task:
    task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} set #{task.id} to {status}")
    await tell_owner(tx, task, me, f"#{task.id} was set to {status} by {me.name}: stop working on it")
    return await finish(tx, task, status, actor=me.name, result=result, unverified=unverified)
