"""A working team is killed with `kill -9` at random moments and started again, until it is done.

Afterwards its log, its transcripts and what its commands left behind are read: nothing was lost, nothing was done
twice, and nobody wrote after its time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.stores import open_store
from bullpen.team import open_team
from tests.support.invariants import Past, check_invariants
from tests.support.performance import perform, unconfined
from tests.support.processes import Child, Crew, Report

# On a machine that does much else at the same time: only a hang takes that long.
pytestmark = pytest.mark.timeout(600)

KILLS = 100
KILLS_OF_A_TEAM = 50
MAX_WAIT = 2.0
MAX_SILENCE = 200.0


@dataclass(slots=True)
class Theatre:
    """Team after team plays and is killed, until enough kills have hit somebody, and some the middle of a command."""

    folder: Path
    crew: Crew
    chance: random.Random
    pasts: list[Past] = field(default_factory=list)

    async def run(self, url: str | None, *, processes: int = 1) -> None:
        while self.deaths < KILLS or not self.interrupted:
            workspace = self.folder / f"stage{len(self.pasts)}"
            workspace.mkdir()
            place = url or f"sqlite:///{workspace}/state/bullpen.db"
            name = f"players{len(self.pasts)}"
            async with open_team(name, store=place, settings=unconfined()) as team:
                await team.send("lead", "Perform the play.")
            await self._play(processes, url=place, name=name, workspace=str(workspace))
            async with open_store(place) as store:
                record = await store.find_team(name)
                assert record is not None
                self.pasts.append(await check_invariants(store, record.id, workspace))

    @property
    def deaths(self) -> int:
        """Kills of a process that hosted somebody: any other hit nothing, and proves nothing."""
        return sum(len(past.of(EventKind.WORKER_LAPSED)) for past in self.pasts)

    @property
    def interrupted(self) -> int:
        return sum(len(past.interrupted) for past in self.pasts)

    async def _play(self, processes: int, **arguments: object) -> None:
        has_room = processes == 1
        running = [await self._enter(arguments, has_room=has_room) for _ in range(processes)]
        for _ in range(KILLS_OF_A_TEAM):
            victim = self.chance.randrange(processes)
            if await self._is_over_before_a_kill(running, running[victim]):
                break
            await running[victim].kill()
            running[victim] = await self._enter(arguments, has_room=has_room)
        if not has_room:
            # Who had no seat any more when the others left is owed its mail.
            running.append(await self._enter(arguments, has_room=True))
        for performer in running:
            report = await performer.over
            assert report["outcome"] == "done", report
            await performer.child.join()

    async def _enter(self, arguments: dict[str, object], *, has_room: bool) -> Performer:
        child = self.crew.start(perform, **arguments, has_room=has_room)
        await child.hear("up")
        return Performer(child)

    async def _is_over_before_a_kill(self, running: Sequence[Performer], victim: Performer) -> bool:
        """Waits for a random moment: mostly soon after somebody is hosted, sometimes before, sometimes long after."""
        over = [performer.over for performer in running]
        if self.chance.random() < 0.5:
            hopes: list[asyncio.Future[Any]] = [victim.hosting, *over]
            await asyncio.wait(hopes, timeout=MAX_WAIT, return_when=asyncio.FIRST_COMPLETED)
        longest = 0.2 if self.chance.random() < 0.9 else 1.0
        await asyncio.wait(over, timeout=self.chance.uniform(0.0, longest), return_when=asyncio.FIRST_COMPLETED)
        return any(one.done() for one in over)


class Performer:
    """A process that hosts the team. `hosting`: somebody is hosted; `over`: what it said at the end."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.hosting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.create_task(self._listen())

    async def _listen(self) -> Report:
        while (report := await self.child.hear(bound_seconds=MAX_SILENCE))["word"] != "over":
            self.hosting.set_result(None)
        return report

    async def kill(self) -> None:
        self.child.kill()
        self.over.cancel()
        await asyncio.wait({self.over})


@pytest.fixture
def theatre(tmp_path: Path, crew: Crew, chance: random.Random) -> Theatre:
    return Theatre(tmp_path, crew, chance)


async def test_a_team_on_sqlite_survives_a_hundred_kills(theatre: Theatre) -> None:
    await theatre.run(None)


async def test_a_team_on_postgresql_survives_a_hundred_kills(theatre: Theatre, postgres_url: str) -> None:
    await theatre.run(postgres_url)


async def test_a_team_of_two_workers_survives_a_hundred_kills_of_one_or_the_other(
    theatre: Theatre, postgres_url: str
) -> None:
    await theatre.run(postgres_url, processes=2)
