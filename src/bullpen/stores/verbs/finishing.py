"""How a task ends, in one place for every way to end it: its result is kept, whoever waited for it is released."""

from __future__ import annotations

from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member
from bullpen.domain.record import replace
from bullpen.domain.task import RELEASES_DEPENDENTS, Task, TaskStatus
from bullpen.domain.text import clean
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.post import notify
from bullpen.stores.verbs.wake import offer

_FINISHED_WITH = {TaskStatus.COMPLETED: EventKind.TASK_COMPLETED, TaskStatus.FAILED: EventKind.TASK_FAILED}


async def finish(
    tx: Transaction, task: Task, status: TaskStatus, *, actor: str, result: str, unverified: bool = False
) -> Task:
    """`task` is locked. Its owner stays who it was; what was nobody's becomes the actor's."""
    finished = replace(
        task,
        status=status,
        owner=task.owner or actor,
        result=clean(result, what="result") or task.result,
        verifying=False,
        submission=None,
        reserved_until=None,
        finished_at=tx.now,
        updated_at=tx.now,
    )
    await tx.update(finished)
    facts: dict[str, Any] = {"task": task.id, "owner": finished.owner, "result": (finished.result or "")[:500]}
    if unverified:
        facts["unverified"] = True
    tx.record(task.team_id, _FINISHED_WITH[status], actor, **facts)
    if status in RELEASES_DEPENDENTS:
        await release_dependents(tx, finished, actor=actor)
    return finished


async def release_dependents(tx: Transaction, blocker: Task, *, actor: str) -> None:
    if not blocker.blocks:
        return
    freed = await tx.settle_blocker(blocker.team_id, blocker.id, is_open=False)
    for task in freed:
        tx.record(task.team_id, EventKind.TASK_UNBLOCKED, actor, task=task.id, by=blocker.id)
    await offer(tx, freed)


async def tell_owner(tx: Transaction, task: Task, me: Member, text: str) -> None:
    """What another did to the task that it works on."""
    if task.status is TaskStatus.IN_PROGRESS and task.owner is not None and not task.is_owned_by(me.name):
        await notify(tx, task.team_id, task.owner, text)
