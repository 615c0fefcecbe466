"""Clones that were left on this machine by who went on elsewhere: what was not saved of them gets a name, then they go.

Those of a member that is taken up here again are its own affair (`workspaces.clones`).
"""

from __future__ import annotations

import logging

from bullpen.agent.house import House
from bullpen.agent.room import entrance, trees_of
from bullpen.config import Settings
from bullpen.domain.member import USER, Team
from bullpen.domain.text import name_key
from bullpen.domain.trunk import Trunk
from bullpen.errors import BullpenError, SandboxUnavailable
from bullpen.workspaces.clones import Clone, Clones
from bullpen.workspaces.git import GitFailed
from bullpen.workspaces.mirror import DIRECTORY
from bullpen.workspaces.worktrees import INTEGRATION

logger = logging.getLogger(__name__)

# Not the member's own sandbox: in that one it may be at work, here or elsewhere. No member has this name.
SWEEPER = ".sweep"


async def sweep(house: House, worker_id: int, *, team_id: int | None = None) -> None:
    """Once, when this worker begins; of one team, or of all. What cannot be swept now stays for the next time."""
    if not (house.state_directory / DIRECTORY).exists():
        return
    try:
        for team in await house.store.list_teams(include_deleted=True):
            if team_id in (None, team.id):
                await _sweep(house, worker_id, team)
    except BullpenError as error:
        logger.info("clones that were left behind stay for now: %s", error)


async def _sweep(house: House, worker_id: int, team: Team) -> None:
    trunk = Trunk.of(team.settings)
    if trunk is None or not trunk.is_remote:
        return
    settings = Settings.from_mapping(team.settings)
    clones = trees_of(house, team, settings, trunk)
    assert isinstance(clones, Clones)
    # First which there are: who takes a member up meanwhile makes another one.
    if not (found := clones.find_all()):
        return
    enter = entrance(house, team, settings, trunk, SWEEPER)
    for clone in await _left_behind(house, worker_id, team, found):
        try:
            kept = await clones.retire(clone, enter)
            if kept is not None and team.deleted_at is None:
                text = f"what {clone.name} had in work on this machine when it went on elsewhere is kept as {kept}"
                await house.store.notify(team.id, USER, text, wakes=False)
        except (GitFailed, SandboxUnavailable, OSError) as error:
            logger.warning("%s/%s stays where it is: %s", clones.directory, clone, error)


async def _left_behind(house: House, worker_id: int, team: Team, found: list[Clone]) -> list[Clone]:
    workers = {worker.id for worker in await house.store.list_workers()}
    members = {member.key: member for member in await house.store.list_members(team.id)}

    def is_left(clone: Clone) -> bool:
        if not clone.is_members:
            return team.deleted_at is not None or (clone.name == INTEGRATION and clone.incarnation not in workers)
        member = members.get(name_key(clone.name))
        if member is None or (team.deleted_at is not None and member.worker_id not in workers):
            return True
        # Who rests may go on here, with what it finds; so does who is taken up here just now.
        is_elsewhere = member.worker_id is not None and member.worker_id != worker_id
        return is_elsewhere and clone.incarnation < member.incarnation

    return [clone for clone in found if is_left(clone)]
