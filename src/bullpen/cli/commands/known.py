"""Members that people name: a wrong name is answered with the right ones."""

from __future__ import annotations

from bullpen.domain.member import USER, Member
from bullpen.domain.text import name_key
from bullpen.errors import NotFound
from bullpen.team import Team


async def get_member(team: Team, name: str) -> Member:
    members = {member.key: member for member in await team.list_members()}
    if name_key(name) not in members:
        names = ", ".join(member.name for key, member in members.items() if key != USER)
        raise NotFound(f"there is no member {name[:80]!r} in team {team.name}; there are {names}")
    return members[name_key(name)]
