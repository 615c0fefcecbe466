"""How a team for a goal begins: its name, its settings, its predefined teammates, and what stands in the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen.domain.member import LEAD, USER, Member, MemberRef, MemberStatus
from bullpen.domain.member import WORKSPACE as WORKSPACE
from bullpen.domain.member import Team as TeamRecord
from bullpen.domain.task import FINISHED
from bullpen.domain.trunk import Trunk
from bullpen.errors import Conflict
from bullpen.store import Store
from bullpen.stores.place import place_of
from bullpen.team.hosts import check_at_rest

if TYPE_CHECKING:
    from bullpen.config import Settings

MAX_WORDS = 4
MAX_LENGTH = 40
# What a team remembers beside its settings, among them.
STOPPED = "stopped"
"""Who was up when the human stopped it, and comes back with the next run."""
CHECK = "check"
"""What decides whether its goal is reached."""
OUTSET = "outset"
"""How a run was to begin (`include_dirty`). It may be cut off before its team has a branch, or its lead the goal:
whoever goes on before the lead has begun does first what is missing."""
CLEANED = "cleaned"
"""Its branch was removed when it was finished: should it go on, it begins with another one."""


def name_for(goal: str) -> str:
    """A team's name after its goal: its first telling words."""
    words = re.findall(r"[A-Za-z0-9]+", goal)
    telling = [word for word in words if len(word) > 2 or word.isdigit()] or words
    return "-".join(telling[:MAX_WORDS]).lower()[:MAX_LENGTH].strip("-") or "team"


async def begin_team(
    store: Store,
    goal: str,
    settings: Settings,
    *,
    name: str | None = None,
    memory: Mapping[str, Any] | None = None,
) -> TeamRecord:
    """A fresh team for this goal. Conflict if the name was given and a live team has it; says what to do instead."""
    memory = memory or {}
    if name is not None:
        await _check_free(store, name)
        return await _create(store, name, goal, settings, memory)
    base, number = name_for(goal), 1
    while True:
        wanted = base if number == 1 else f"{base}-{number}"
        if await store.find_team(wanted) is None:
            try:
                return await _create(store, wanted, goal, settings, memory)
            except Conflict:
                # Somebody else took it a moment ago.
                pass
        number += 1


async def _check_free(store: Store, name: str) -> None:
    record = await store.find_team(name)
    if record is None:
        return
    await check_at_rest(store, record)
    unfinished = [task for task in await store.list_tasks(record.id) if task.status not in FINISHED]
    what = f"has {len(unfinished)} unfinished task{'s' * (len(unfinished) != 1)}" if unfinished else "exists"
    raise Conflict(
        f"team {record.name!r} {what}: `bullpen resume {record.name}` goes on with it, "
        f"`bullpen team delete {record.name}` ends it"
    )


async def _create(store: Store, name: str, goal: str, settings: Settings, memory: Mapping[str, Any]) -> TeamRecord:
    record = await store.create_team(name, goal=goal, settings={**settings.to_mapping(), **memory})
    user = MemberRef(record.id, USER, 0)
    for teammate in settings.teammates:
        await store.spawn_member(
            user,
            teammate.name,
            role=teammate.role,
            prompt=teammate.prompt,
            model=teammate.model,
            autonomy=teammate.autonomy,
            labels=teammate.labels,
            plan_required=teammate.require_plan,
        )
    return record


async def begin_trunk_in(store: Store, place: Path | str, name: str, *, include_unsaved: bool) -> Trunk | None:
    """The branch of a new team, in the repository of a directory or in one that lies elsewhere; None if the directory
    has none."""
    from bullpen.workspaces.address import is_address, parse_address
    from bullpen.workspaces.beginning import Repository, begin_trunk, survey
    from bullpen.workspaces.elsewhere import begin_trunk_elsewhere, survey_elsewhere

    if is_address(str(place)):
        start = await survey_elsewhere(parse_address(str(place)), place_of(store.url).state_directory)
        return await begin_trunk_elsewhere(start, name)
    found = await survey(Path(place))
    return await begin_trunk(found, name, include_unsaved=include_unsaved) if isinstance(found, Repository) else None


def is_at_outset(team: TeamRecord, lead: Member) -> bool:
    """Is it a run whose lead has never begun?"""
    return bool(team.settings.get(OUTSET)) and lead.incarnation == 0


async def wake_lead(store: Store, team_id: int, goal: str) -> None:
    """The goal as the human's word to the lead, and the lead wanted; with it whoever was stopped together, and those
    whose model could not be asked."""
    user = MemberRef(team_id, USER, 0)
    team = await store.get_team(team_id)
    if stopped := team.settings.get(STOPPED):
        for name in stopped:
            await store.want_member(user, name)
        await store.change_team(user, settings={STOPPED: []})
    lead = await store.get_member(team_id, LEAD)
    if team.goal and goal in ("", team.goal) and is_at_outset(team, lead):
        # Whoever was cut off may have said it already, or not.
        await store.send(user, LEAD, team.goal, operation_id=f"goal of team {team_id}")
    elif goal:
        await store.send(user, LEAD, goal)
    lead = await store.get_member(team_id, LEAD)
    if lead.status is not MemberStatus.WANTED:
        await store.want_member(user, LEAD)
    for member in await store.list_members(team_id):
        if member.status is MemberStatus.SHUTDOWN and member.status_reason.startswith("error"):
            await store.want_member(user, member.name)
