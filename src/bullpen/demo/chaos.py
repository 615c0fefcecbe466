"""`--chaos`: the teammates live in a process of their own, which is killed with `kill -9` while one of them works.

    this process    hosts the lead, and nobody else
    first worker    hosts the teammates; the one that comes to the marked step thinks for ever
    second worker   started just before the first is killed: takes over whom that hosted

The order is kept by the log: the first begins when the lead is hosted, so that it does not take the lead; the kill
comes when the marked step is being thought about.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import LEAD, MemberKind
from bullpen.errors import BullpenError
from bullpen.team import Team

VICTIM, ITS_TASK = "backend", 3
LEAVING_SECONDS = 3.0


class Kill(NamedTuple):
    """What the saboteur did."""

    pid: int
    members: tuple[str, ...]
    successor: int


class Workers:
    """The processes beside this one."""

    def __init__(self, team: Team, workspace: Path) -> None:
        self._words = (team.store.url, str(team.id), str(workspace))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def start(self, model: str) -> asyncio.subprocess.Process:
        """Returns when it is up. In a session of its own: a Ctrl-C is for this process alone."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bullpen.demo.worker",
            *self._words,
            model,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stack.push_async_callback(_end, process)
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise BullpenError("a worker process ended before it was up")
        return process


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVING_SECONDS):
            await process.wait()
            return
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@asynccontextmanager
async def sabotage(
    team: Team, workspace: Path, *, hanging: str, going_on: str, tell: Callable[[Kill], None]
) -> AsyncIterator[None]:
    """While inside, all of it happens by itself. `hanging` and `going_on` are the models of the two workers."""
    async with Workers(team, workspace) as workers:
        playing = asyncio.create_task(_play(team, workers, hanging, going_on, tell))
        inside = asyncio.current_task()
        assert inside is not None
        # Without its workers the team would wait for ever.
        playing.add_done_callback(lambda _: inside.cancel() if _error_of(playing) else None)
        try:
            yield
        finally:
            playing.cancel()
            await asyncio.wait({playing})
            if error := _error_of(playing):
                raise error


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _play(team: Team, workers: Workers, hanging: str, going_on: str, tell: Callable[[Kill], None]) -> None:
    async with aclosing(team.follow_events()) as log:  # type: ignore[type-var]
        await _until(log, lambda event: event.kind == EventKind.MEMBER_HOSTED and event.data["member"] == LEAD)
        first = await workers.start(hanging)
        await _until(log, lambda event: event.kind == EventKind.TASK_CLAIMED and event.data["task"] == ITS_TASK)
        await _until(log, _has_written)
        second = await workers.start(going_on)
        members = tuple(member.name for member in await team.list_members() if member.kind is MemberKind.TEAMMATE)
        tell(Kill(first.pid, members, second.pid))
        os.kill(first.pid, signal.SIGKILL)


def _has_written(event: Event) -> bool:
    return event.kind == EventKind.TOOL_CALL_FINISHED and event.actor == VICTIM and event.data["tool"] == "write_file"


async def _until(log: AsyncIterator[Event], matches: Callable[[Event], bool]) -> None:
    async for event in log:
        if matches(event):
            return
