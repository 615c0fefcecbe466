"""A working team is killed with `kill -9` at random moments and started again, until it is done.

Afterwards its log, its transcripts and what its commands left behind are read: nothing was lost, nothing was done
twice, and nobody wrote after its time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.team import open_team
from tests.support.invariants import Past, check_invariants
from tests.support.performance import perform, unconfined
from tests.support.processes import Crew
from tests.support.theatre import Killer

# On a machine that does much else at the same time: only a hang takes that long.
pytestmark = pytest.mark.timeout(600)

KILLS = 100
KILLS_OF_A_TEAM = 50


@dataclass(slots=True)
class Theatre:
    """Team after team plays and is killed, until enough kills have hit somebody, and some the middle of a command."""

    folder: Path
    crew: Crew
    chance: random.Random
    pasts: list[Past] = field(default_factory=list)

    async def run(self, url: str | None, *, processes: int = 1, kills: int = KILLS) -> None:
        while self.deaths < kills or not self.interrupted:
            workspace = self.folder / f"stage{len(self.pasts)}"
            workspace.mkdir()
            place = url or f"sqlite:///{workspace}/state/bullpen.db"
            name = f"players{len(self.pasts)}"
            async with open_team(name, store=place, settings=unconfined()) as team:
                await team.send("lead", "Perform the play.")
                facts = {"url": place, "name": name, "workspace": str(workspace)}
                killer = Killer(self.crew, self.chance, perform, KILLS_OF_A_TEAM)
                await killer.play(team.store, team.id, processes, **facts)
                self.pasts.append(await check_invariants(team.store, team.id, workspace))

    @property
    def deaths(self) -> int:
        """Kills of a process that hosted somebody: any other hit nothing, and proves nothing."""
        return sum(len(past.of(EventKind.WORKER_LAPSED)) for past in self.pasts)

    @property
    def interrupted(self) -> int:
        return sum(len(past.interrupted) for past in self.pasts)


@pytest.fixture
def theatre(tmp_path: Path, crew: Crew, chance: random.Random) -> Theatre:
    return Theatre(tmp_path, crew, chance)


async def test_a_team_on_sqlite_survives_a_hundred_kills(theatre: Theatre) -> None:
    await theatre.run(None)


async def test_a_team_on_postgresql_survives_a_hundred_kills(theatre: Theatre, postgres_url: str) -> None:
    await theatre.run(postgres_url)


async def test_a_team_of_two_workers_survives_fifty_kills_of_one_or_the_other(
    theatre: Theatre, postgres_url: str
) -> None:
    await theatre.run(postgres_url, processes=2, kills=50)
