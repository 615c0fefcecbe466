"""Whom a change wakes: never more than it concerns, never nobody.

A claimable task wakes one idle member that may take it. If none is idle but some
are up, one of them will find it when it looks. If there is nobody, a member that
timed out is revived for it. Whoever claims passes the baton: if more is claimable
and somebody is idle, that one is woken. Whoever leaves passes it too, since it may
be the one that was woken, or the one that others were not revived for.
"""

from __future__ import annotations

from collections.abc import Iterable

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM, Member, MemberStatus, Team
from bullpen.domain.record import replace
from bullpen.domain.task import Task, TaskStatus
from bullpen.stores.transaction import Lock, MemberRing, Transaction, WantedRing

_UP = (MemberStatus.WORKING, MemberStatus.WAITING, MemberStatus.WANTED)


def wake(tx: Transaction, member: Member) -> None:
    if member.worker_id is not None:
        tx.ring(MemberRing(member.team_id, member.name, member.worker_id))


async def want(tx: Transaction, member: Member, *, actor: str, reason: str) -> Member:
    """Shut down until now; from here on some worker hosts it, with its memory.

    Its incarnation ends here and not only when it is hosted: a loop that is long over must not write in between.
    """
    wanted = replace(
        member,
        incarnation=member.incarnation + 1,
        status=MemberStatus.WANTED,
        status_reason=reason,
        status_at=tx.now,
        worker_id=None,
        shutdown_request_id=None,
    )
    await tx.update(wanted)
    tx.record(member.team_id, EventKind.MEMBER_WANTED, actor, member=member.name, reason=reason)
    tx.ring(WantedRing())
    return wanted


async def revive(tx: Transaction, member: Member, *, reason: str) -> bool:
    """Bring a timed-out member back; False if it cannot be, or somebody just did, or its team is gone."""
    team = await tx.find(Team, member.team_id)
    current = await tx.find(Member, member.team_id, member.key, lock=Lock.UPDATE)
    if current is None or not current.can_be_revived or team is None or team.deleted_at is not None:
        return False
    await want(tx, current, actor=SYSTEM, reason=reason)
    return True


async def offer(tx: Transaction, tasks: Iterable[Task]) -> None:
    """These tasks may just have become claimable: wake whom they concern."""
    free: dict[tuple[int, str], int] = {}
    for task in tasks:
        if task.status is not TaskStatus.PENDING or task.open_blockers:
            continue
        if task.owner is not None:
            await _wake_owner(tx, task)
        else:
            key = (task.team_id, task.role_key)
            free[key] = free.get(key, 0) + 1
    for (team_id, role_key), count in free.items():
        await _wake_claimers(tx, team_id, role_key, count)


def foresee_offer(tx: Transaction, team_id: int, role_key: str) -> None:
    """A new task of this role is about to be offered to whoever is idle."""
    tx.foresee(lambda: tx.list_claimers(team_id, role_key, (MemberStatus.IDLE,), 1, Lock.SHARE))


async def _wake_owner(tx: Transaction, task: Task) -> None:
    assert task.owner_key is not None
    owner = await tx.find(Member, task.team_id, task.owner_key, lock=Lock.SHARE)
    if owner is None:
        return
    if owner.can_be_revived:
        await revive(tx, owner, reason=f"task #{task.id} is its")
    else:
        wake(tx, owner)


async def _wake_claimers(tx: Transaction, team_id: int, role_key: str, count: int) -> None:
    idle = await tx.list_claimers(team_id, role_key, (MemberStatus.IDLE,), count, Lock.SHARE)
    for member in idle:
        wake(tx, member)
    if idle or await _is_anybody_up(tx, team_id, role_key):
        return
    for member in await tx.list_claimers(team_id, role_key, (MemberStatus.SHUTDOWN,), count):
        await revive(tx, member, reason="there is a task that it may take")


async def _is_anybody_up(tx: Transaction, team_id: int, role_key: str) -> bool:
    """Each status by itself: an index knows the first of one, not of several.

    Held, so that it does not leave before it can see what was left to it: whoever leaves hands that on. One who is just
    leaving cannot see it any more and does not count; not waited for, it may wait for us.
    """
    for status in _UP:
        if await tx.list_claimers(team_id, role_key, (status,), 1, Lock.SHARE_IF_FREE):
            return True
    return False


async def hand_on(tx: Transaction, leaver: Member) -> None:
    """`leaver` takes nothing more: what it could have taken is offered to the others."""
    for role_key in sorted({"", leaver.role_key}):
        if await tx.has_claimable(leaver.team_id, role_key):
            await _wake_claimers(tx, leaver.team_id, role_key, 1)


async def pass_baton(tx: Transaction, claimer: Member) -> None:
    """The claimer took one task: if more is claimable and somebody is idle, wake that one."""
    for role_key in sorted({"", claimer.role_key}):
        idle = await tx.list_claimers(claimer.team_id, role_key, (MemberStatus.IDLE,), 2)
        others = [member for member in idle if member.key != claimer.key]
        if not others:
            if not role_key:
                return
            continue
        if await tx.has_claimable(claimer.team_id, role_key):
            wake(tx, others[0])
