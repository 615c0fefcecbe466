"""Teams that play in processes of their own and are killed with `kill -9` at random moments, until they are done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from bullpen.domain.event import EventKind
from bullpen.store import Store
from tests.support.processes import Child, Crew, Report

MAX_WAIT = 5.0
MAX_SILENCE = 500.0
"""Of one that nobody kills: as long as the whole play may take."""

Role = Callable[..., Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Killer:
    """Hosts one team in processes that play `role` and kills one of them again and again, so often at most."""

    crew: Crew
    chance: random.Random
    role: Role
    kills: int
    steps: int = 60
    """At most so many events between two kills."""

    async def play(self, store: Store, team_id: int, processes: int, **arguments: object) -> None:
        has_room = processes == 1
        running = [await self._enter(arguments, has_room=has_room) for _ in range(processes)]
        for _ in range(self.kills):
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
        child = self.crew.start(self.role, **arguments, has_room=has_room)
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
        steps = self.chance.randrange(1, self.steps)
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
