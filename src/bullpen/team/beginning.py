"""How a team for a goal begins: its name, its settings, its predefined teammates, and what stands in the way."""

from __future__ import annotations

import re

from bullpen.config import Settings
from bullpen.domain.member import LEAD, USER, Liveness, Member, MemberKind, MemberRef, MemberStatus, Worker
from bullpen.domain.member import Team as TeamRecord
from bullpen.domain.task import FINISHED
from bullpen.errors import Conflict
from bullpen.store import Store

MAX_WORDS = 4
MAX_LENGTH = 40


def name_for(goal: str) -> str:
    """A team's name after its goal: its first telling words."""
    words = re.findall(r"[A-Za-z0-9]+", goal)
    telling = [word for word in words if len(word) > 2 or word.isdigit()] or words
    return "-".join(telling[:MAX_WORDS]).lower()[:MAX_LENGTH].strip("-") or "team"


async def begin_team(store: Store, goal: str, settings: Settings, *, name: str | None = None) -> TeamRecord:
    """A fresh team for this goal. Conflict if the name was given and a live team has it; says what to do instead."""
    if name is not None:
        await _check_free(store, name)
        return await _create(store, name, goal, settings)
    base, number = name_for(goal), 1
    while True:
        wanted = base if number == 1 else f"{base}-{number}"
        if await store.find_team(wanted) is None:
            try:
                return await _create(store, wanted, goal, settings)
            except Conflict:
                # Somebody else took it a moment ago.
                pass
        number += 1


async def _check_free(store: Store, name: str) -> None:
    record = await store.find_team(name)
    if record is None:
        return
    hosts = await living_hosts(store, record.id)
    if hosts:
        where = f"worker {hosts[0].id} on {hosts[0].host}, pid {hosts[0].pid}"
        raise Conflict(
            f"team {record.name!r} is at work ({where}): `bullpen chat --team {record.name}` talks with it, "
            f"`bullpen watch {record.name}` looks on"
        )
    unfinished = [task for task in await store.list_tasks(record.id) if task.status not in FINISHED]
    what = f"has {len(unfinished)} unfinished tasks" if unfinished else "exists"
    raise Conflict(
        f"team {record.name!r} {what}: `bullpen resume {record.name}` goes on with it, "
        f"`bullpen team delete {record.name}` ends it"
    )


async def _create(store: Store, name: str, goal: str, settings: Settings) -> TeamRecord:
    record = await store.create_team(name, goal=goal, settings=settings.to_mapping())
    user = MemberRef(record.id, USER, 0)
    for teammate in settings.teammates:
        await store.spawn_member(
            user,
            teammate.name,
            role=teammate.role,
            prompt=teammate.prompt,
            model=teammate.model,
            autonomy=teammate.autonomy,
            plan_required=teammate.require_plan,
        )
    return record


async def living_hosts(store: Store, team_id: int) -> list[Worker]:
    """The living workers that host its lead or teammates."""
    members = await store.list_members(team_id)
    ids = {member.worker_id for member in members if _is_hosted(member)}
    workers = [worker for worker in await store.list_workers() if worker.id in ids]
    return [worker for worker in workers if await store.probe_worker(worker) is not Liveness.DEAD]


def _is_hosted(member: Member) -> bool:
    return member.worker_id is not None and member.kind in (MemberKind.LEAD, MemberKind.TEAMMATE)


async def wake_lead(store: Store, team_id: int, goal: str) -> None:
    """The goal as the human's word to the lead, and the lead wanted."""
    user = MemberRef(team_id, USER, 0)
    if goal:
        await store.send(user, LEAD, goal)
    lead = await store.get_member(team_id, LEAD)
    if lead.status is not MemberStatus.WANTED:
        await store.want_member(user, LEAD)
