"""Verbs about members: spawned, joined, hosted, at rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.member import (
    MEMBER_TRANSITIONS,
    Attendance,
    Autonomy,
    Member,
    MemberKind,
    MemberRef,
    MemberStatus,
    Spawned,
    Team,
    Worker,
    check_labels,
)
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.task import Task, TaskStatus
from bullpen.domain.text import RESERVED_NAMES, check_name, check_role, clean, name_key
from bullpen.errors import Conflict, NotAllowed, NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction, WantedRing
from bullpen.stores.verbs.fence import fenced, fenced_lead, get_live_team
from bullpen.stores.verbs.hosting import LEFT_IN_ORDER, answer_shutdown, put_to_rest, unhost
from bullpen.stores.verbs.post import post, tell_lead
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import hand_on, offer, want
from bullpen.stores.verbs.workers import living_worker

MAX_TEAMMATES = 8


class MemberVerbs:
    @write
    async def spawn_member(
        tx: Transaction,
        by: MemberRef,
        name: str,
        *,
        role: str | None = None,
        prompt: str = "",
        model: str | None = None,
        autonomy: Autonomy = Autonomy.AUTO,
        labels: Sequence[str] = (),
        plan_required: bool = False,
        workspace: str | None = None,
        task_id: int | None = None,
        operation_id: str | None = None,
    ) -> Spawned:
        _, lead = await fenced_lead(tx, by, what="spawn teammates")
        check_member_name(name)
        role, model = check_role(role), model or None
        needed = check_labels(labels)
        team = await get_live_team(tx, by.team_id, lock=Lock.UPDATE)
        member = await tx.find(Member, by.team_id, name_key(name), lock=Lock.UPDATE)
        if member is None:
            await _check_room(tx, team)
            member = await tx.insert(
                Member(
                    team_id=team.id,
                    name=name,
                    kind=MemberKind.TEAMMATE,
                    role=role,
                    status=MemberStatus.WANTED,
                    model=model,
                    prompt=clean(prompt, what="prompt"),
                    autonomy=autonomy,
                    labels=needed,
                    plan_required=plan_required,
                    workspace=workspace,
                    created_at=tx.now,
                    status_at=tx.now,
                )
            )
            tx.ring(WantedRing())
            spawned = Spawned(member=member, outcome="created")
        else:
            wishes = {
                "role": role,
                "prompt": clean(prompt, what="prompt"),
                "model": model,
                "labels": needed,
                "workspace": workspace,
            }
            given = {field: value for field, value in wishes.items() if value}
            if autonomy is not Autonomy.AUTO:
                given["autonomy"] = autonomy
            spawned = await _spawn_again(tx, team, member, lead, given, plan_required=plan_required)
        if task_id is not None:
            await _assign(tx, spawned.member, task_id, actor=lead.name)
        tx.record(
            team.id, EventKind.MEMBER_SPAWNED, lead.name, member=spawned.member.name, role=role, outcome=spawned.outcome
        )
        return spawned

    @write
    async def join_member(
        tx: Transaction,
        worker_id: int,
        team_id: int,
        name: str,
        *,
        role: str | None = None,
        operation_id: str | None = None,
    ) -> Member:
        check_member_name(name)
        role = check_role(role)
        # The team is locked so that two who join under a new name meet.
        await get_live_team(tx, team_id, lock=Lock.UPDATE)
        await living_worker(tx, worker_id, lock=Lock.SHARE)
        member = await tx.find(Member, team_id, name_key(name), lock=Lock.UPDATE)
        if member is None:
            joined = await tx.insert(
                Member(
                    team_id=team_id,
                    name=name,
                    kind=MemberKind.EXTERNAL,
                    role=role,
                    status=MemberStatus.WORKING,
                    incarnation=1,
                    worker_id=worker_id,
                    created_at=tx.now,
                    status_at=tx.now,
                )
            )
        else:
            joined = await _join_again(tx, member, worker_id, role)
        tx.record(team_id, EventKind.MEMBER_JOINED, joined.name, member=joined.name, role=joined.role)
        return joined

    @write
    async def host_member(tx: Transaction, worker_id: int, *, team_id: int | None = None) -> Member | None:
        hosted = await _host(tx, worker_id, team_id, (), 1)
        return hosted[0] if hosted else None

    @write
    async def host_members(
        tx: Transaction,
        worker_id: int,
        *,
        team_id: int | None = None,
        except_teams: Sequence[int] = (),
        limit: int = 1,
    ) -> list[Member]:
        return await _host(tx, worker_id, team_id, except_teams, limit)

    @write
    async def want_member(tx: Transaction, by: MemberRef, name: str, *, operation_id: str | None = None) -> Member:
        _, lead = await fenced_lead(tx, by, what="bring members back")
        member = await tx.find(Member, by.team_id, name_key(name), lock=Lock.UPDATE)
        if member is None:
            raise NotFound(f"there is no member {name!r} in this team")
        if member.kind in (MemberKind.EXTERNAL, MemberKind.USER):
            raise UsageError(f"{member.name} is not hosted by workers: it joins by itself")
        if member.worker_id is not None or member.status is MemberStatus.WANTED:
            return member
        return await want(tx, member, actor=lead.name, reason="asked for")

    @write
    async def set_member_status(tx: Transaction, by: MemberRef, status: MemberStatus, *, reason: str = "") -> Member:
        _, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        return await change_status(tx, member, status, reason=reason)

    @write
    async def set_member_counters(tx: Transaction, by: MemberRef, counters: Mapping[str, Any]) -> Member:
        _, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        changed = replace(member, counters=merged_counters(member, counters))
        await tx.update(changed)
        return changed

    @write
    async def shut_down_member(tx: Transaction, by: MemberRef, *, reason: str = "finished") -> Member:
        _, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        return await _shut_down(tx, member, reason)

    @write
    async def release_member(tx: Transaction, by: MemberRef, *, note: str) -> Member:
        team, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        if member.kind is MemberKind.USER:
            raise NotAllowed("the human cannot be released: nobody hosts one")
        # The slot that it leaves is free for it.
        [over] = await unhost(tx, [member], why=note, reserve=lambda one: one.worker_id is not None)
        if member.kind is not MemberKind.LEAD and team.deleted_at is None:
            await tell_lead(tx, member.team_id, f"{member.name} crashed: {note}")
        return over

    @write
    async def rest_member(tx: Transaction, by: MemberRef) -> Member:
        _, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        if member.worker_id is None:
            return member
        [over] = await unhost(tx, [member], why=LEFT_IN_ORDER, reserve=lambda one: True)
        return over

    @write
    async def leave_if_nothing(tx: Transaction, by: MemberRef, *, reason: str = "timeout") -> str | None:
        # Locked for change: whoever sends to it or picks it for a task holds it shared and is waited for.
        _, member = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        if (waiting := await _find_waiting(tx, member)) is not None:
            return waiting
        if await tx.find_in_progress(member.team_id, member.key) is not None:
            return "task"
        if await tx.has_open_task_for(member):
            return "task"
        await _shut_down(tx, member, reason)
        return None

    @read
    async def find_work(tx: Transaction, by: MemberRef) -> str | None:
        _, member = await fenced(tx, by, lock=Lock.NONE, team_must_live=False)
        if (waiting := await _find_waiting(tx, member)) is not None:
            return waiting
        return "task" if await _may_claim_something(tx, member) else None

    @read
    async def attend(tx: Transaction, by: MemberRef) -> Attendance:
        team, member = await fenced(tx, by, lock=Lock.NONE, team_must_live=False)
        mail = await tx.list_mail(team.id, member.key, True, 1)
        return Attendance(member=member, team=team, has_mail=bool(mail))

    @read
    async def has_prospects(tx: Transaction, by: MemberRef) -> bool:
        _, member = await fenced(tx, by, lock=Lock.NONE, team_must_live=False)
        return await tx.has_open_task_for(member)

    @read
    async def get_member(tx: Transaction, team_id: int, name: str) -> Member:
        member = await tx.find(Member, team_id, name_key(name))
        if member is None:
            raise NotFound(f"there is no member {name!r} in this team")
        return member

    @read
    async def list_members(tx: Transaction, team_id: int) -> list[Member]:
        return await tx.list_members(team_id)

    @read
    async def list_due_members(tx: Transaction, worker_id: int) -> list[MemberRef]:
        return [member.ref for member in await tx.list_due_members(worker_id)]

    @read
    async def _has_wanted(tx: Transaction) -> bool:
        return await tx.has_wanted()


async def _host(
    tx: Transaction, worker_id: int, team_id: int | None, except_teams: Sequence[int], limit: int
) -> list[Member]:
    # Locked: two who host for the same worker do not both count its free slots.
    worker = await living_worker(tx, worker_id)
    if not worker.slots or team_id in except_teams:
        return []
    free = worker.slots - await tx.count_hosted(worker_id)
    wanted = await tx.list_wanted(
        team_id,
        except_teams=except_teams,
        leads_only=free <= 0,
        labels=worker.labels,
        limit=limit if free <= 0 else min(limit, free),
    )
    return [await _take_in(tx, worker, member) for member in wanted]


async def _take_in(tx: Transaction, worker: Worker, member: Member) -> Member:
    """`member` is locked."""
    hosted = replace(
        member,
        incarnation=member.incarnation + 1,
        worker_id=worker.id,
        status=MemberStatus.WORKING,
        status_reason="",
        status_at=tx.now,
    )
    await tx.update(hosted)
    # Nothing is asked here: while a crowd is taken in, the worker's row is held, and its renewal waits for that.
    await tx.clear_reservation(member.team_id, member.key)
    tx.record(
        member.team_id,
        EventKind.MEMBER_HOSTED,
        member.name,
        member=member.name,
        worker=worker.id,
        host=worker.host,
        incarnation=hosted.incarnation,
    )
    return hosted


async def _find_waiting(tx: Transaction, member: Member) -> str | None:
    """What waits for this member alone, its tasks aside."""
    if member.shutdown_request_id is not None or member.status is MemberStatus.STOPPING:
        return "shutdown"
    return "mail" if await tx.has_undelivered(member.team_id, member.key) else None


async def _may_claim_something(tx: Transaction, member: Member) -> bool:
    if await tx.find_in_progress(member.team_id, member.key) is not None:
        return False
    assigned = await tx.list_tasks(member.team_id, TaskStatus.PENDING, member.key, 0, None)
    if any(task.open_blockers == 0 for task in assigned):
        return True
    if member.autonomy is not Autonomy.AUTO:
        return False
    return await tx.has_claimable(member.team_id, "") or await tx.has_claimable(member.team_id, member.role_key)


def check_member_name(name: str) -> None:
    check_name(name, what="member name")
    if name_key(name) in RESERVED_NAMES:
        raise UsageError(f"{name!r} is reserved: choose another name")


def merged_counters(member: Member, counters: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**member.counters, **encode(counters)}
    return {key: value for key, value in merged.items() if value is not None}


async def change_status(tx: Transaction, member: Member, status: MemberStatus, *, reason: str) -> Member:
    if status in (MemberStatus.WANTED, MemberStatus.SHUTDOWN):
        raise UsageError(f"{status} is not a status that a member gives itself: shut it down, or want it")
    if status is member.status and reason == member.status_reason:
        return member
    if status not in MEMBER_TRANSITIONS[member.status]:
        raise Conflict(f"{member.name} is {member.status} and cannot become {status}")
    changed = replace(member, status=status, status_reason=reason, status_at=tx.now)
    await tx.update(changed)
    tx.record(
        member.team_id,
        EventKind.MEMBER_STATUS_CHANGED,
        member.name,
        member=member.name,
        status=status,
        old=member.status,
        reason=reason,
    )
    if status is MemberStatus.IDLE and await tx.find_in_progress(member.team_id, member.key) is not None:
        # It waits for mail, holding its task: what is claimable meanwhile must not wait for it.
        await hand_on(tx, changed)
    return changed


async def _check_room(tx: Transaction, team: Team) -> None:
    limit = int(team.number_setting("max_teammates", MAX_TEAMMATES))
    count = await tx.count_teammates(team.id)
    if count >= limit:
        raise Conflict(f"the team has {count} teammates, team.max_teammates = {limit}: shut one down or raise it")


async def _spawn_again(
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
        await _check_room(tx, team)
    if member.status in (MemberStatus.SHUTDOWN, MemberStatus.WANTED):
        renewed: Member = replace(member, **given)
        return Spawned(member=await want(tx, renewed, actor=lead.name, reason="spawned again"), outcome="revived")
    origin = Origin.HUMAN if lead.kind is MemberKind.USER else Origin.AGENT
    if "prompt" in given:
        await post(tx, member, given["prompt"], sender=lead.name, type=MessageType.MESSAGE, origin=origin)
    return Spawned(member=member, outcome="delivered" if member.status is MemberStatus.IDLE else "queued")


async def _assign(tx: Transaction, member: Member, task_id: int, *, actor: str) -> None:
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


async def _join_again(tx: Transaction, member: Member, worker_id: int, role: str | None) -> Member:
    if member.kind is not MemberKind.EXTERNAL:
        raise Conflict(f"{member.name} is a {member.kind} of this team: join under another name")
    if member.worker_id is not None:
        host = await tx.find(Worker, member.worker_id)
        if host is not None and host.stopped_at is None and not host.is_lost:
            where = f"by worker {host.id} on {host.host} (pid {host.pid})"
            raise Conflict(
                f"{member.name} is in the team already, {where}: leave there first, or wait until its lease is over"
            )
        [member] = await unhost(tx, [member], why="it joined again", reserve=lambda one: False)
    joined = replace(
        member,
        role=role if role is not None else member.role,
        incarnation=member.incarnation + 1,
        worker_id=worker_id,
        status=MemberStatus.WORKING,
        status_reason="",
        status_at=tx.now,
        shutdown_request_id=None,
    )
    await tx.update(joined)
    return joined


async def _shut_down(tx: Transaction, member: Member, reason: str) -> Member:
    if member.kind is MemberKind.USER:
        raise NotAllowed("the human cannot be shut down")
    if member.shutdown_request_id is not None:
        await answer_shutdown(tx, member, why=reason)
        reason = "asked"
    return await put_to_rest(
        tx,
        member,
        reason=reason,
        actor=member.name,
        note=f"{member.name} shut down ({reason})",
        ends_incarnation=False,
    )
