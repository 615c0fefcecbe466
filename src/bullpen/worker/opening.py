"""From a hosted member to an agent that can run: its model, tools, sandbox, prompt."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bullpen.agent.agent import Agent
from bullpen.agent.house import House
from bullpen.agent.identity import system_prompt
from bullpen.config import Settings
from bullpen.domain.member import Member, MemberKind
from bullpen.domain.text import normalise_role
from bullpen.sandbox import SandboxSpec
from bullpen.sandboxes import open_sandbox
from bullpen.tools import toolbox_for
from bullpen.tools.project import find_instructions, find_roles
from bullpen.tools.skill import find_skills


@asynccontextmanager
async def open_agent(house: House, member: Member) -> AsyncIterator[Agent]:
    team = await house.store.get_team(member.team_id)
    settings = Settings.from_mapping(team.settings)
    workspace = Path(member.workspace) if member.workspace else house.workspace
    private = house.state_directory / "members" / str(team.id) / member.key
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    spec = SandboxSpec(
        member=member.name,
        workspace=workspace,
        private_directory=private,
        hidden=house.hidden,
        readable=_paths(settings.sandbox.readable),
        writable=_paths(settings.sandbox.writable),
        environment={name: os.environ[name] for name in settings.sandbox.env if name in os.environ},
        network=settings.sandbox.network == "on",
    )
    roles = {normalise_role(role.name): role for role in find_roles(workspace)}
    kind = "lead" if member.kind is MemberKind.LEAD else "teammate"
    allowed = settings.tools.allow.get(normalise_role(member.role)) if member.role else None
    async with open_sandbox(spec, kind=settings.sandbox.kind) as sandbox:
        agent = Agent(
            house,
            team,
            member,
            settings=settings,
            provider=house.open_model(member, settings),
            toolbox=toolbox_for(kind, allow=allowed, deny=settings.tools.deny),
            sandbox=sandbox,
            system=system_prompt(
                member,
                team,
                workspace,
                instructions=find_instructions(workspace),
                skills=find_skills(workspace),
                role=roles.get(normalise_role(member.role)) if member.role else None,
            ),
            workspace=workspace,
            private_directory=private,
        )
        try:
            yield agent
        finally:
            await agent.aclose()


def _paths(texts: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(Path(text).expanduser() for text in texts)
