"""Claiming apart: who takes a task leaves those aside whose files somebody else is just changing.

Invariant: while a task is there that touches nobody's files, none is handed out that does, whatever others claim at the
same moment; and work never stops for it: where only such tasks are there, the next one is handed out all the same.

A team on whose board no task names files never comes here: a claim costs it nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.event import EventKind
from bullpen.domain.files import HAS_FILES, find_overlaps
from bullpen.domain.member import Member, Team
from bullpen.domain.record import replace
from bullpen.domain.task import Task
from bullpen.stores.transaction import Lock, Transaction

LOOKAHEAD = 200
"""So many claimable tasks are looked at: a claim does not grow with the board."""


async def remember_files(tx: Transaction, team: Team) -> None:
    """From now on claims in this team look at files. Its row is held already, or may be."""
    if HAS_FILES in team.settings:
        return
    held = await tx.find(Team, team.id, lock=Lock.UPDATE)
    if held is not None and HAS_FILES not in held.settings:
        await tx.update(replace(held, settings={**held.settings, HAS_FILES: True}))


async def claim_apart(tx: Transaction, me: Member) -> tuple[Task | None, list[Task]]:
    """The task that is the member's now, and those of others with whose files it overlaps all the same."""
    await tx.lock_claims(me.team_id)
    if await tx.find_in_progress(me.team_id, me.key) is not None:
        return None, []
    busy = await tx.list_in_progress(me.team_id)
    wanted = await tx.list_claimable(me, LOOKAHEAD)
    overlaps = {task.id: find_overlaps(replace(task, owner=me.name), busy) for task in wanted}
    for task in sorted(wanted, key=lambda task: bool(overlaps[task.id])):
        claimed = await tx.claim(me, task.id)
        if claimed is not None:
            _record_passed_over(tx, me, wanted, claimed, overlaps)
            return claimed, overlaps[claimed.id]
    # Nothing is there, or others hold all of it: this one knows how to look again.
    return await tx.claim_next(me), []


async def overlaps_of(tx: Transaction, task: Task) -> list[Task]:
    """Of a task that was just taken by its number."""
    if not task.files:
        return []
    await tx.lock_claims(task.team_id)
    return find_overlaps(task, await tx.list_in_progress(task.team_id))


def _record_passed_over(
    tx: Transaction, me: Member, wanted: Sequence[Task], claimed: Task, overlaps: dict[int, list[Task]]
) -> None:
    """One fact for all that came before it: the first of them, and whose files it would have touched."""
    before = wanted[: next(n for n, task in enumerate(wanted) if task.id == claimed.id)]
    passed = [task for task in before if overlaps[task.id]]
    if passed and not overlaps[claimed.id]:
        other = overlaps[passed[0].id][0]
        facts = {"task": passed[0].id, "overlaps": [other.id], "owner": other.owner, "instead": claimed.id}
        tx.record(me.team_id, EventKind.TASK_PASSED_OVER, me.name, **facts, also=[task.id for task in passed[1:]])
