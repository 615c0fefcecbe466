"""A teammate is wanted: one of a new name, or one that was there before."""

from __future__ import annotations

from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberKind, MemberStatus, Spawned, Team
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.text import RESERVED_NAMES, check_name, name_key
from bullpen.errors import Conflict, NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.post import post
from bullpen.stores.verbs.wake import offer, want

MAX_TEAMMATES = 8


def check_member_name(name: str) -> None:
    check_name(name, what="member name")
    if name_key(name) in RESERVED_NAMES:
        raise UsageError(f"{name!r} is reserved: choose another name")


async def check_room(tx: Transaction, team: Team) -> None:
    limit = int(team.number_setting("max_teammates", MAX_TEAMMATES))
    count = await tx.count_teammates(team.id)
    if count >= limit:
        raise Conflict(f"the team has {count} teammates, team.max_teammates = {limit}: shut one down or raise it")


async def spawn_again(
    tx: Transaction, team: Team, member: Member, lead: Member, given: dict[str, Any], *, plan_required: bool
) -> Spawned:
    if member.kind is not MemberKind.TEAMMATE:
        raise UsageError(f"{member.name} joins by itself and cannot be spawned: choose another name")
    if member.status is MemberStatus.STOPPING or member.shutdown_request_id is not None:
        raise Conflict(f"{member.name} is shutting down: spawn it again when it has")
    if plan_required:
        # A gate that was asked for stands, whatever was approved before.
        member = replace(member, plan_required=True, plan_digest=None)
        await tx.update(member)
    if member.status is MemberStatus.SHUTDOWN:
        await check_room(tx, team)
    if member.status in (MemberStatus.SHUTDOWN, MemberStatus.WANTED):
        renewed: Member = replace(member, **given)
        return Spawned(member=await want(tx, renewed, actor=lead.name, reason="spawned again"), outcome="revived")
    origin = Origin.HUMAN if lead.kind is MemberKind.USER else Origin.AGENT
    if "prompt" in given:
        await post(tx, member, given["prompt"], sender=lead.name, type=MessageType.MESSAGE, origin=origin)
    return Spawned(member=member, outcome="delivered" if member.status is MemberStatus.IDLE else "queued")


async def assign(tx: Transaction, member: Member, task_id: int, *, actor: str) -> None:
    task = await tx.find(Task, member.team_id, task_id, lock=Lock.UPDATE)
    if task is None:
        raise NotFound(f"there is no task #{task_id}")
    if task.status is not TaskStatus.PENDING or (task.owner is not None and not task.is_owned_by(member.name)):
        raise Conflict(
            f"#{task_id} is {task.status}, owned by {task.owner or 'nobody'}: it cannot be given to {member.name}"
        )
    assigned = replace(task, owner=member.name, updated_at=tx.now)
    await tx.update(assigned)
    tx.record(task.team_id, EventKind.TASK_ASSIGNED, actor, task=task.id, owner=member.name)
    await offer(tx, [assigned])
