"""A team on SQLite in memory: a lead and two teammates, ana and ben, with one workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.member import Member, Team
from bullpen.store import Store
from bullpen.stores import open_store
from tests.support.stores import create_team
from tests.unit.tools.hands import Hands

MakeHands = Callable[..., Hands]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store("sqlite:///:memory:") as opened:
        yield opened


@pytest.fixture
async def crew_team(store: Store) -> tuple[Team, dict[str, Member]]:
    """All hosted by one worker."""
    team, user = await create_team(store)
    await store.want_member(user, "lead")
    for name in ("ana", "ben"):
        await store.spawn_member(user, name, role="dev", prompt="work")
    worker = await store.register_worker(slots=10)
    members = {}
    while member := await store.host_member(worker.id):
        members[member.name] = member
    members["lead"] = await store.get_member(team.id, "lead")
    return team, members


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def hands(store: Store, crew_team: tuple[Team, dict[str, Member]], workspace: Path) -> MakeHands:
    """`hands("ana")`: ana, ready to call tools."""
    team, members = crew_team

    def make(name: str = "ana", **given: Any) -> Hands:
        return Hands(**{"store": store, "team": team, "member": members[name], "workspace": workspace, **given})

    return make
