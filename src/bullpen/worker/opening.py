"""From a hosted member to an agent that can run: its model, tools, sandbox, prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bullpen.agent.agent import Agent
from bullpen.agent.house import House
from bullpen.agent.identity import system_prompt
from bullpen.agent.room import open_room
from bullpen.domain.member import Member, MemberKind, Team
from bullpen.domain.text import normalise_role
from bullpen.domain.trunk import Trunk
from bullpen.tools import toolbox_for
from bullpen.tools.project import find_instructions, find_roles
from bullpen.tools.skill import find_skills
from bullpen.workspaces.mirror import RemoteAway


async def find_barrier(house: House, team: Team) -> str | None:
    """Why the team's repository, where it lies elsewhere, has not let this machine in so far. Once it has, who needs it
    waits for it."""
    trunk = Trunk.of(team.settings)
    if trunk is None or not trunk.is_remote:
        return None
    mirror = house.mirror_of(trunk.repository)
    if mirror.was_reached:
        return None
    try:
        await mirror.list_refs(trunk.ref)
    except RemoteAway as error:
        return str(error)
    return None


@asynccontextmanager
async def open_agent(house: House, team: Team, member: Member) -> AsyncIterator[Agent]:
    """UsageError if this machine lacks what it needs."""
    settings = house.settings_of(team)
    own = Path(member.workspace) if member.workspace else None
    async with open_room(house, team, settings, member.name, incarnation=member.incarnation, workspace=own) as room:
        workspace = room.workspace
        roles = {normalise_role(role.name): role for role in find_roles(workspace)}
        kind = "lead" if member.kind is MemberKind.LEAD else "teammate"
        allowed = settings.tools.allow.get(normalise_role(member.role)) if member.role else None
        agent = Agent(
            house,
            team,
            member,
            settings=settings,
            provider=house.open_model(member, settings),
            toolbox=toolbox_for(kind, allow=allowed, deny=settings.tools.deny),
            room=room,
            system=system_prompt(
                member,
                team,
                workspace,
                instructions=find_instructions(workspace),
                skills=find_skills(workspace),
                role=roles.get(normalise_role(member.role)) if member.role else None,
                is_apart=room.worktree is not None,
            ),
        )
        try:
            yield agent
        finally:
            await agent.aclose()
