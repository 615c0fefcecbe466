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
    """Team after team plays and is killed, until enough kills have hit somebody."""

    folder: Path
    crew: Crew
    chance: random.Random
    pasts: list[Past] = field(default_factory=list)

    async def run(self, url: str | None, *, processes: int = 1) -> None:
        while self.deaths < KILLS:
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
        running = [await self._start(arguments, has_room=has_room) for _ in range(processes)]
        reports: list[Report] = []
        for _ in range(KILLS_OF_A_TEAM):
            if reports := await _over_within(running, self._delay()):
                break
            victim = self.chance.randrange(processes)
            running[victim].kill()
            running[victim] = await self._start(arguments, has_room=has_room)
        if not has_room:
            # Who had no seat any more when the others left is owed its mail.
            running.append(await self._start(arguments, has_room=True))
        for child in running:
            reports += await child.join("over")
        assert [report["outcome"] for report in reports] == ["done"] * len(running), reports

    async def _start(self, arguments: dict[str, object], *, has_room: bool) -> Child:
        child = self.crew.start(perform, **arguments, has_room=has_room)
        await child.hear("up")
        return child

    def _delay(self) -> float:
        """Mostly short; sometimes long enough for what the lead gathers before it wakes."""
        return self.chance.uniform(0.0, 0.3) if self.chance.random() < 0.85 else self.chance.uniform(0.3, 1.5)


async def _over_within(children: Sequence[Child], seconds: float) -> list[Report]:
    """What those say who have ended, if anybody has by then."""
    hearing = [asyncio.ensure_future(child.hear("over")) for child in children]
    over, waiting = await asyncio.wait(hearing, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for hope in waiting:
        hope.cancel()
    if waiting:
        await asyncio.wait(waiting)
    return [one.result() for one in over]


@pytest.fixture
def theatre(tmp_path: Path, crew: Crew, chance: random.Random) -> Theatre:
    return Theatre(tmp_path, crew, chance)


async def test_a_team_on_sqlite_survives_a_hundred_kills(theatre: Theatre) -> None:
    await theatre.run(None)
    assert theatre.interrupted > 0


async def test_a_team_on_postgresql_survives_a_hundred_kills(theatre: Theatre, postgres_url: str) -> None:
    await theatre.run(postgres_url)
    assert theatre.interrupted > 0


async def test_a_team_of_two_workers_survives_a_hundred_kills_of_one_or_the_other(
    theatre: Theatre, postgres_url: str
) -> None:
    await theatre.run(postgres_url, processes=2)
    assert theatre.interrupted > 0
