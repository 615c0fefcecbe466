"""Verbs about members: spawned, joined, hosted, at rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.domain.member import (
    Attendance,
    Autonomy,
    Member,
    MemberKind,
    MemberRef,
    MemberStatus,
    Spawned,
    check_labels,
)
from bullpen.domain.record import replace
from bullpen.domain.task import TaskStatus
from bullpen.domain.text import check_role, clean, name_key
from bullpen.errors import NotAllowed, NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction, WantedRing
from bullpen.stores.verbs.fence import fenced, fenced_lead, get_live_team, hold_team
from bullpen.stores.verbs.hosting import LEFT_IN_ORDER, unhost
from bullpen.stores.verbs.joining import join_again, take_in_wanted
from bullpen.stores.verbs.post import tell_lead
from bullpen.stores.verbs.spawning import assign, check_member_name, check_room, spawn_again
from bullpen.stores.verbs.status import change_status, merged_counters, shut_down
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import want
from bullpen.stores.verbs.workers import living_worker


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
        await hold_team(tx, by)
        team, lead = await fenced_lead(tx, by, what="spawn teammates")
        check_member_name(name)
        role, model = check_role(role), model or None
        needed = check_labels(labels)
        member = await tx.find(Member, by.team_id, name_key(name), lock=Lock.UPDATE)
        if member is None:
            await check_room(tx, team)
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
            spawned = await spawn_again(tx, team, member, lead, given, plan_required=plan_required)
        if task_id is not None:
            await assign(tx, spawned.member, task_id, actor=lead.name)
        # The role that it has: one who lives keeps its own, whatever is asked for.
        facts = {"member": spawned.member.name, "role": spawned.member.role, "outcome": spawned.outcome}
        tx.record(team.id, EventKind.MEMBER_SPAWNED, lead.name, **facts)
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
            joined = await join_again(tx, member, worker_id, role)
        tx.record(team_id, EventKind.MEMBER_JOINED, joined.name, member=joined.name, role=joined.role)
        return joined

    @write
    async def host_member(tx: Transaction, worker_id: int, *, team_id: int | None = None) -> Member | None:
        hosted = await take_in_wanted(tx, worker_id, team_id, (), 1)
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
        return await take_in_wanted(tx, worker_id, team_id, except_teams, limit)

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
        return await shut_down(tx, member, reason)

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
        await shut_down(tx, member, reason)
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
    async def _list_hosted(tx: Transaction, worker_id: int) -> list[MemberRef]:
        return [member.ref for member in await tx.list_members_of(worker_id, Lock.NONE)]

    @read
    async def _has_wanted(tx: Transaction) -> bool:
        return await tx.has_wanted()


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
