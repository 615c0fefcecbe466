"""How a task becomes somebody's: what every way to claim one goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberKind, MemberStatus
from bullpen.domain.record import replace
from bullpen.domain.task import Task, TaskStatus, is_claimable
from bullpen.errors import AlreadyClaimed, ShuttingDown
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.board import get_task_record
from bullpen.stores.verbs.status import change_status
from bullpen.stores.verbs.wake import pass_baton


def check_may_claim(me: Member) -> None:
    if me.shutdown_request_id is not None or me.status is MemberStatus.STOPPING:
        raise ShuttingDown(f"{me.name} is asked to shut down and claims nothing more")


async def check_hands_free(tx: Transaction, me: Member) -> None:
    held = await tx.find_in_progress(me.team_id, me.key)
    if held is None:
        return
    if held.submission is not None:
        raise AlreadyClaimed(f"the work of {me.name} on #{held.id} waits to be integrated: claim when it is")
    raise AlreadyClaimed(f"{me.name} has #{held.id} in progress: complete, fail or release it first")


async def claim_assigned(tx: Transaction, me: Member) -> Task | None:
    """Without autonomy a member takes only what was given to it."""
    if await tx.find_in_progress(me.team_id, me.key) is not None:
        return None
    for task in await tx.list_tasks(me.team_id, TaskStatus.PENDING, me.key, 0, None):
        held = await get_task_record(tx, me.team_id, task.id, Lock.UPDATE)
        if is_claimable(held, name=me.name, role=me.role) and held.is_owned_by(me.name):
            return await take(tx, held, me)
    return None


async def take(tx: Transaction, task: Task, me: Member) -> Task:
    """A locked task that may be claimed is claimed; `begin_work` has to follow."""
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


async def begin_work(tx: Transaction, task: Task, me: Member, overlaps: Sequence[Task] = ()) -> None:
    """What goes with every claim: its owner is at work, it is recorded, and what is left is offered to others."""
    if me.status is MemberStatus.IDLE and me.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
        await change_status(tx, me, MemberStatus.WORKING, reason="")
    facts: dict[str, Any] = {"task": task.id, "owner": me.name, "incarnation": me.incarnation}
    if overlaps:
        facts["overlaps"] = [other.id for other in overlaps]
    tx.record(task.team_id, EventKind.TASK_CLAIMED, me.name, **facts)
    await pass_baton(tx, me)
