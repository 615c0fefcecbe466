"""Where a team's work is, as far as the store knows: its trunk, whether it is finished, what is missing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from bullpen.domain.member import Team
from bullpen.domain.task import FINISHED, Task, TaskStatus
from bullpen.domain.trunk import Trunk
from bullpen.errors import NotFound, UsageError
from bullpen.store import Store
from bullpen.team.beginning import WORKSPACE
from bullpen.workspaces.git import Git
from bullpen.workspaces.locating import locate


async def get_trunk(store: Store, team: Team) -> Trunk:
    """Where it is now. UsageError if the team has none; NotFound if its branch has been removed and is another
    team's now."""
    trunk = Trunk.of(team.settings)
    if trunk is None:
        raise UsageError(f"team {team.name} worked {await _shared_place(team)}")
    heir = await find_heir(store, team, trunk)
    if heir is not None:
        raise NotFound(
            f"the branch of team {team.name} (#{team.id}) is gone; {trunk.branch} belongs to a later team, #{heir.id}"
        )
    return await locate(trunk, Path.cwd())


async def _shared_place(team: Team) -> str:
    where = team.settings.get(WORKSPACE)
    if not where:
        return "in no worktree of its own"
    has_commit = shutil.which("git") is not None and await Git(where).find("HEAD") is not None
    return f"in {where} itself: what it made is there already" + (
        ", and `git diff` shows what is not committed" if has_commit else ""
    )


async def get_trunk_here(store: Store, team: Team) -> Trunk:
    """The same, in a repository of this machine; UsageError if it lies elsewhere."""
    trunk = await get_trunk(store, team)
    if trunk.is_remote:
        raise UsageError(
            f"team {team.name} works in {trunk.repository}: `{trunk.taking(team.name)}` takes what it made into a "
            "clone of yours"
        )
    return trunk


async def find_heir(store: Store, team: Team, trunk: Trunk) -> Team | None:
    """A later team that has the branch now: a name is free again once a finished team was cleaned up."""
    for other in await store.list_teams(include_deleted=True):
        theirs = Trunk.of(other.settings)
        if other.id > team.id and theirs and (theirs.repository, theirs.branch) == (trunk.repository, trunk.branch):
            return other
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Tasks whose work is not on the trunk, as far as the board says."""

    unfinished: tuple[Task, ...]
    failed: tuple[Task, ...]


async def find_missing(store: Store, team: Team) -> Missing:
    tasks = await store.list_tasks(team.id)
    return Missing(
        unfinished=tuple(task for task in tasks if task.status not in FINISHED),
        failed=tuple(task for task in tasks if task.status is TaskStatus.FAILED),
    )
