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
from bullpen.store import Store
from bullpen.team import open_team
from tests.support.invariants import Past, check_invariants
from tests.support.performance import perform, unconfined
from tests.support.processes import Child, Crew, Report

# On a machine that does much else at the same time: only a hang takes that long.
pytestmark = pytest.mark.timeout(600)

KILLS = 100
KILLS_OF_A_TEAM = 50
MAX_WAIT = 5.0
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
                facts = {"url": place, "name": name, "workspace": str(workspace)}
                await self._play(team.store, team.id, processes, **facts)
                self.pasts.append(await check_invariants(team.store, team.id, workspace))

    @property
    def deaths(self) -> int:
        """Kills of a process that hosted somebody: any other hit nothing, and proves nothing."""
        return sum(len(past.of(EventKind.WORKER_LAPSED)) for past in self.pasts)

    @property
    def interrupted(self) -> int:
        return sum(len(past.interrupted) for past in self.pasts)

    async def _play(self, store: Store, team_id: int, processes: int, **arguments: object) -> None:
        has_room = processes == 1
        running = [await self._enter(arguments, has_room=has_room) for _ in range(processes)]
        for _ in range(KILLS_OF_A_TEAM):
            if await self._is_over_before_the_next_kill(store, team_id, [performer.over for performer in running]):
                break
            victim = self.chance.randrange(processes)
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

    async def _is_over_before_the_next_kill(
        self, store: Store, team_id: int, over: Sequence[asyncio.Future[Report]]
    ) -> bool:
        """Waits for a random moment: after so many steps of the team, or after the start of some command."""
        moment = asyncio.create_task(self._moment(store, team_id, await store.last_position(team_id)))
        hopes: list[asyncio.Future[Any]] = [moment, *over]
        await asyncio.wait(hopes, timeout=MAX_WAIT, return_when=asyncio.FIRST_COMPLETED)
        moment.cancel()
        await asyncio.wait({moment})
        return any(one.done() for one in over)

    async def _moment(self, store: Store, team_id: int, position: str) -> None:
        steps = self.chance.randrange(1, 60)
        is_in_command = self.chance.random() < 0.15
        async for event in store.follow_events(team_id, after=position):
            steps -= 1
            is_bash = event.kind == EventKind.TOOL_CALL_STARTED and event.data["tool"] == "bash"
            if is_bash if is_in_command else steps <= 0:
                # Between two steps, too; a command that began has perhaps done something by then.
                await asyncio.sleep(self.chance.uniform(0.0, 0.15 if is_in_command else 0.03))
                return


class Performer:
    """A process that hosts the team. `over`: what it said at the end."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.over: asyncio.Task[Report] = asyncio.create_task(child.hear("over", bound_seconds=MAX_SILENCE))

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
