"""A repository with a team whose work is on its trunk, and the command in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bullpen.stores import open_store
from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.support.repositories import Work, make_repository


async def nothing(team: Team) -> None:
    pass


async def three_done(team: Team) -> None:
    """Tasks 1, 2 and 3, done by ana, ben and ana."""
    for number, name in enumerate(("ana", "ben", "ana"), 1):
        await team.create_task(f"Task {number}")
        async with team.join(name) as session:
            await session.claim_task(number)
            await session.complete_task(number, result="done")


class Home:
    def __init__(self, directory: Path, **files: Any) -> None:
        self.repository = make_repository(directory / "project", files.get("files"))
        self.bullpen = Bullpen(self.repository)
        self.bullpen.environment |= {"HOME": str(directory), "GIT_CONFIG_SYSTEM": "/dev/null"}
        (self.repository / ".bullpen").mkdir()
        (self.repository / ".bullpen" / ".gitignore").write_text("*\n")
        self._place = directory / "place"

    def begin(self, work: Callable[[Team], Awaitable[None]] = nothing, *, name: str = "demo", **trunk: Any) -> Work:
        """A team that works apart, with this on its board."""
        made = Work(self.repository, self._place, name=name, **trunk)

        async def create() -> None:
            async with open_store(self.bullpen.store) as store:
                record = await store.create_team(name, goal="Make it good", settings=made.settings)
                await work(Team(store, record))

        asyncio.run(create())
        return made
