"""A working team is killed with `kill -9` at random moments and started again, until it is done.

Afterwards its log, its transcripts and what its commands left behind are read: nothing was lost, nothing was done
twice, and nobody wrote after its time.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.stores import open_store
from bullpen.team import open_team
from tests.support.invariants import Past, check_invariants
from tests.support.performance import perform, unconfined
from tests.support.processes import Child, Crew, Report

KILLS = 100
KILLS_OF_A_TEAM = 40


@dataclass(slots=True)
class Theatre:
    """Team after team plays and is killed, until there were enough kills."""

    folder: Path
    crew: Crew
    chance: random.Random
    kills: int = 0
    pasts: list[Past] = field(default_factory=list)

    async def run(self, url: str | None, *, processes: int = 1) -> None:
        while self.kills < KILLS:
            workspace = self.folder / f"stage{len(self.pasts)}"
            workspace.mkdir()
            place = url or f"sqlite:///{workspace}/state/bullpen.db"
            name = f"players{len(self.pasts)}"
            async with open_team(name, store=place, settings=unconfined()) as team:
                await team.send("lead", "Perform the play.")
            await self._play(processes, url=place, name=name, workspace=str(workspace), is_alone=processes == 1)
            async with open_store(place) as store:
                record = await store.find_team(name)
                assert record is not None
                self.pasts.append(await check_invariants(store, record.id, workspace))

    async def _play(self, processes: int, **arguments: object) -> None:
        running = [await self._start(arguments) for _ in range(processes)]
        killed = 0
        while True:
            victim = self.chance.randrange(processes)
            over = await _over_within(running[victim], self._delay())
            if over is None and killed < KILLS_OF_A_TEAM:
                running[victim].kill()
                killed += 1
                running[victim] = await self._start(arguments)
                continue
            for child in running:
                [report] = [over] if over and child is running[victim] else await child.join("over")
                assert report["outcome"] == "done", report
            self.kills += killed
            return

    async def _start(self, arguments: dict[str, object]) -> Child:
        child = self.crew.start(perform, **arguments)
        await child.hear("up")
        return child

    def _delay(self) -> float:
        """Mostly short; sometimes long enough for what the lead gathers before it wakes."""
        return self.chance.uniform(0.0, 0.3) if self.chance.random() < 0.85 else self.chance.uniform(0.3, 1.5)

    def check_that_it_mattered(self) -> None:
        """Kills that hit nothing would prove nothing."""
        assert sum(len(past.of(EventKind.MEMBER_LAPSED)) for past in self.pasts) >= KILLS
        assert sum(len(past.interrupted) for past in self.pasts) > 0


async def _over_within(child: Child, seconds: float) -> Report | None:
    try:
        async with asyncio.timeout(seconds):
            return await child.hear("over")
    except TimeoutError:
        return None


@pytest.fixture
def theatre(tmp_path: Path, crew: Crew, chance: random.Random) -> Theatre:
    return Theatre(tmp_path, crew, chance)


async def test_a_team_on_sqlite_survives_a_hundred_kills(theatre: Theatre) -> None:
    await theatre.run(None)
    theatre.check_that_it_mattered()


async def test_a_team_on_postgresql_survives_a_hundred_kills(theatre: Theatre, postgres_url: str) -> None:
    await theatre.run(postgres_url)
    theatre.check_that_it_mattered()


async def test_a_team_of_two_workers_survives_a_hundred_kills_of_one_or_the_other(
    theatre: Theatre, postgres_url: str
) -> None:
    await theatre.run(postgres_url, processes=2)
    theatre.check_that_it_mattered()
