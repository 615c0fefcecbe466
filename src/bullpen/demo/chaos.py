"""`--chaos`: two teammates live in a process of their own, which is killed with `kill -9` while one of them works.

    this process    hosts the lead and its first teammate, and has room for no other
    first worker    hosts the others; the one that comes to the marked step thinks for ever
    second worker   started just before the first is killed: takes over whom that hosted

Nothing is left to luck: the first worker begins when this process is full, and everybody here thinks until
that worker is up, so that the lead cannot find that nobody takes its teammates. The kill comes when the log says that
the marked step is next.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bullpen.domain.event import Event, EventKind
from bullpen.errors import BullpenError
from bullpen.providers.scripted import Script, ScriptedProvider
from bullpen.team import Team
from bullpen.team.run import Hosting

STAYS = "analyst"
VICTIM, ITS_TASK = "backend", 3
# Of the lead, until its first teammate is there.
FIRST_STEPS = 2
LEAVING_SECONDS = 3.0


class Kill(NamedTuple):
    """What the saboteur did."""

    pid: int
    members: tuple[str, ...]
    successor: int


@asynccontextmanager
async def sabotage(
    team: Team, workspace: Path, *, script: Path, hanging: Path, tell: Callable[[Kill], None]
) -> AsyncIterator[None]:
    """While inside, `team.run` hosts who belongs here, and all else happens by itself. `hanging` is the script of the
    worker that is killed."""
    up = asyncio.Event()
    patient = _patient_model(script, up)
    team.hosting = Hosting(model=patient.model, open_model=lambda model, **_: patient, workspace=workspace, slots=1)
    async with AsyncExitStack() as workers:
        playing = asyncio.create_task(_play(team, _Starter(team, workspace, workers), script, hanging, up, tell))
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


def _patient_model(script: Path, up: asyncio.Event) -> ScriptedProvider:
    steps = itertools.count(1)

    async def think(seconds: float) -> None:
        if next(steps) > FIRST_STEPS:
            await up.wait()
        await asyncio.sleep(seconds)

    return ScriptedProvider(Script.from_file(script), model=f"scripted:{script}", sleep=think)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _play(
    team: Team, start: _Starter, script: Path, hanging: Path, up: asyncio.Event, tell: Callable[[Kill], None]
) -> None:
    async with aclosing(team.follow_events()) as log:  # type: ignore[type-var]
        await _until(log, lambda event: event.kind == EventKind.MEMBER_HOSTED and event.data["member"] == STAYS)
        first = await start(hanging)
        up.set()
        await _until(log, lambda event: event.kind == EventKind.TASK_CLAIMED and event.data["task"] == ITS_TASK)
        await _until(log, _has_written)
        second = await start(script)
        victim = await team.store.get_member(team.id, VICTIM)
        members = tuple(one.name for one in await team.list_members() if one.worker_id == victim.worker_id)
        tell(Kill(first.pid, members, second.pid))
        os.kill(first.pid, signal.SIGKILL)


def _has_written(event: Event) -> bool:
    """The step after this one is the marked one."""
    return event.kind == EventKind.TOOL_CALL_FINISHED and event.actor == VICTIM and event.data["tool"] == "write_file"


async def _until(log: AsyncIterator[Event], matches: Callable[[Event], bool]) -> None:
    async for event in log:
        if matches(event):
            return


class _Starter:
    """Starts processes that host the team; they end with the stack."""

    def __init__(self, team: Team, workspace: Path, stack: AsyncExitStack) -> None:
        self._words = (team.store.url, str(team.id), str(workspace))
        self._stack = stack

    async def __call__(self, script: Path) -> asyncio.subprocess.Process:
        """Returns when it is up. In a session of its own: a Ctrl-C is for this process alone."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bullpen.demo.worker", *self._words, f"scripted:{script}"),
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
