"""The verb that changes a task: its fields, its owner, what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.files import parse_files
from bullpen.domain.graph import find_path
from bullpen.domain.member import Member, MemberRef, Team
from bullpen.domain.record import replace
from bullpen.domain.task import RELEASES_DEPENDENTS, UNSET, Task, TaskChanges, TaskStatus, check_edge
from bullpen.domain.text import clean, name_key
from bullpen.errors import Conflict, NotAllowed, NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.board import (
    checked_check,
    checked_role,
    checked_subject,
    get_owner,
    get_task_record,
    hold_owners,
    report_missing_role,
)
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.finishing import tell_owner
from bullpen.stores.verbs.hosting import give_back
from bullpen.stores.verbs.overlap import remember_files
from bullpen.stores.verbs.queueing import withdraw_work_on
from bullpen.stores.verbs.verb import write
from bullpen.stores.verbs.wake import offer


class ChangeVerbs:
    @write
    async def update_task(
        tx: Transaction, by: MemberRef, task_id: int, changes: TaskChanges, *, operation_id: str | None = None
    ) -> Task:
        if changes.files is not UNSET and changes.files:
            # Before the member, in the order of locks.
            team = await tx.find(Team, by.team_id, lock=Lock.UPDATE)
            if team is not None:
                await remember_files(tx, team)
        tx.foresee(lambda: tx.find(Task, by.team_id, task_id))
        _, me = await fenced(tx, by)
        await hold_owners(tx, by, task_id, *([changes.owner] if isinstance(changes.owner, str) else []))
        if ends := {*changes.add_blocked_by, *changes.remove_blocked_by, *changes.add_blocks}:
            await tx.lock_graph(by.team_id)
            # Ascending, as locks are taken: who finishes the blocker just now holds it and then wants its dependents.
            await tx.find_tasks(by.team_id, sorted({*ends, task_id}), Lock.UPDATE)
        task = await get_task_record(tx, by.team_id, task_id, Lock.UPDATE)
        _check_may_update(task, me, changes)
        task = await _change_fields(tx, task, me, changes)
        if changes.owner is not UNSET:
            task = await _change_owner(tx, task, me, changes.owner)
        await _change_edges(tx, task, me, changes)
        task = await get_task_record(tx, by.team_id, task_id, Lock.NONE)
        # Only this one: what it was made to block did not become claimable by that.
        await offer(tx, [task])
        return task


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
    checked = {"subject": checked_subject, "role": checked_role, "check": checked_check, "files": parse_files}
    for name, value in fields.items():
        if value is None and name not in ("role", "check"):
            raise UsageError(f"the {name} of a task cannot be nothing")
        fields[name] = checked.get(name, clean)(value)
    if "check" in fields and fields["check"] != task.check:
        fields["verifying"] = False
    changed: Task = replace(task, **fields, updated_at=tx.now)
    await tx.update(changed)
    shown = {name: fields[name] for name in ("subject", "role") if name in fields}
    tx.record(task.team_id, EventKind.TASK_CHANGED, me.name, task=task.id, fields=sorted(changes.fields), **shown)
    if "role" in fields:
        await report_missing_role(tx, changed)
    return changed


async def _change_owner(tx: Transaction, task: Task, me: Member, owner: Any) -> Task:
    if task.status is TaskStatus.IN_PROGRESS and (owner is None or not task.is_owned_by(owner)):
        task = await withdraw_work_on(tx, task, actor=me.name, why=f"{me.name} took #{task.id} from {task.owner}")
    if owner is None and task.status is TaskStatus.IN_PROGRESS:
        await tell_owner(tx, task, me, f"#{task.id} was taken from you by {me.name}: stop working on it")
        return await give_back(tx, task, by=task.owner or me.name, note=f"taken back by {me.name}", actor=me.name)
    new = None if owner is None else await get_owner(tx, task.team_id, owner)
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


async def _change_edges(tx: Transaction, task: Task, me: Member, changes: TaskChanges) -> None:
    """The graph is locked, so no other half of a cycle is under way."""
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
    waits_for = await tx.blockers_of(task.team_id, sorted(touched)) if touched else {}
    for number, blockers in sorted(waits_for.items()):
        facts = {"task": number, "fields": ["blocked_by"], "blocked_by": sorted(blockers)}
        tx.record(task.team_id, EventKind.TASK_CHANGED, me.name, **facts)


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
