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
from bullpen.tools import toolbox_for
from bullpen.tools.project import find_instructions, find_roles
from bullpen.tools.skill import find_skills


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
