"""What a member has running beside it, in this process: commands and subagents, each with a watcher.

Invariants: the store knows of a thing before its member does, and is told of its end once, by its watcher. What is
only in this process (the running command itself) may be lost at any moment: the successor marks it `lost`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.domain.background import Background, BackgroundKind, BackgroundState
from bullpen.domain.member import MemberRef
from bullpen.errors import BullpenError, LeaseLost, SandboxUnavailable, StoreError
from bullpen.sandbox import OUTPUT_CHARACTERS, Command
from bullpen.sandboxes.output import excerpt
from bullpen.store import Store
from bullpen.tool import ToolContext
from bullpen.tools.patience import insist, seen_through

TAIL_CHARACTERS = 4_000
TITLE_CHARACTERS = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _End:
    state: BackgroundState
    exit_code: int | None = None
    output: str = ""


@dataclass(slots=True)
class _Running:
    ref: MemberRef
    id: int
    wait: Callable[[], Awaitable[_End]]
    stop: Callable[[], Awaitable[None]]
    watcher: asyncio.Task[None] | None = None
    is_stopping: bool = False


class Backgrounds:
    """Of one member, across the teams that it leads one after the other."""

    def __init__(self, context: ToolContext) -> None:
        self._store: Store = context.store
        self._running: dict[tuple[int, int], _Running] = {}

    # -- starting

    async def start_command(self, context: ToolContext, title: str, command: Command) -> Background:
        """Known to the store, or stopped."""
        try:
            started = await self._store_start(
                context,
                BackgroundKind.COMMAND,
                title,
                pid=command.identity.pid,
                start_ticks=command.identity.start_ticks,
                output_path=str(command.output_path),
            )
        except BaseException:
            await asyncio.shield(command.stop(grace_seconds=0.0))
            raise
        self._watch(_Running(context.ref, started.id, lambda: _command_end(command), command.stop))
        return started

    async def start_subagent(self, context: ToolContext, title: str, run: Callable[[], Awaitable[str]]) -> Background:
        started = await self._store_start(context, BackgroundKind.SUBAGENT, title)
        work = asyncio.ensure_future(run())

        async def stop() -> None:
            work.cancel()
            await asyncio.wait({work})

        self._watch(_Running(context.ref, started.id, lambda: _subagent_end(work), stop))
        return started

    async def _store_start(self, context: ToolContext, kind: BackgroundKind, title: str, **known: Any) -> Background:
        async def end(started: Background) -> None:
            # What the store takes for running keeps its team from ending.
            await self._store.finish_background(context.ref, started.id, state=BackgroundState.STOPPED)

        return await seen_through(
            self._store.start_background(context.ref, kind, _title(title), **known, operation_id=context.operation_id),
            end,
        )

    def _watch(self, running: _Running) -> None:
        self._running[running.ref.team_id, running.id] = running
        running.watcher = asyncio.create_task(self._see_to_its_end(running))

    # -- watching

    async def _see_to_its_end(self, running: _Running) -> None:
        try:
            end = await running.wait()
            state = BackgroundState.STOPPED if running.is_stopping else end.state
            await insist(
                lambda: self._store.finish_background(
                    running.ref, running.id, state=state, exit_code=end.exit_code, output=end.output
                )
            )
        except StoreError as error:
            # LeaseLost above all: whoever is this member now has marked it lost.
            logger.info("the end of bg-%d of %s was not stored: %s", running.id, running.ref.name, error)
        finally:
            self._running.pop((running.ref.team_id, running.id), None)

    async def wait(self, team_id: int, background_id: int, timeout_seconds: float) -> None:
        """Until it has ended and the store knows, or the time is over."""
        running = self._running.get((team_id, background_id))
        if running is not None and running.watcher is not None:
            await asyncio.wait({running.watcher}, timeout=timeout_seconds)

    # -- stopping

    async def stop(self, team_id: int, background_id: int) -> bool:
        """When this returns it is gone, and the store knows. False if it does not run here (any more)."""
        running = self._running.get((team_id, background_id))
        if running is None or running.watcher is None:
            return False
        running.is_stopping = True
        try:
            await running.stop()
        except BaseException:
            running.is_stopping = False
            raise
        await asyncio.wait({running.watcher})
        return True

    async def stop_all(self) -> None:
        """For good: all are gone, and marked `stopped`."""
        for team_id, background_id in tuple(self._running):
            await self.stop(team_id, background_id)

    async def aclose(self) -> None:
        """The hosting ends: nothing is marked, because who hosts the member next finds what was left running."""
        everything = tuple(self._running.values())
        # A watcher that was cancelled before its first step cannot do this itself.
        self._running.clear()
        for running in everything:
            if running.watcher is not None:
                running.watcher.cancel()
        await asyncio.gather(*(running.watcher for running in everything if running.watcher), return_exceptions=True)
        await asyncio.gather(*(running.stop() for running in everything), return_exceptions=True)


async def _command_end(command: Command) -> _End:
    try:
        exit_code = await command.wait()
    except SandboxUnavailable as error:
        return _End(BackgroundState.LOST, output=f"{error}\n{read_output(command.output_path, TAIL_CHARACTERS)}")
    return _End(BackgroundState.FINISHED, exit_code, read_output(command.output_path, TAIL_CHARACTERS))


async def _subagent_end(work: asyncio.Future[str]) -> _End:
    # Waited for, not awaited: its cancellation is not ours.
    await asyncio.wait({work})
    if work.cancelled():
        return _End(BackgroundState.STOPPED)
    error = work.exception()
    if error is None:
        return _End(BackgroundState.FINISHED, output=work.result())
    if isinstance(error, LeaseLost):
        raise error
    if not isinstance(error, BullpenError):
        logger.error("a subagent failed", exc_info=error)
    return _End(BackgroundState.FINISHED, exit_code=1, output=f"the subagent failed: {error}")


def read_output(path: Path, limit: int = OUTPUT_CHARACTERS) -> str:
    try:
        return excerpt(path, limit)
    except OSError as error:
        return f"(its output cannot be read: {error.strerror})"


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"
