"""Which logs this process follows, written down so that others send notices for them, and for no others.

- A row says "until"; it is renewed long before, and is over by itself if we die.
- A writer that looked for followers just before the row appeared sends no notice,
  and commits after the follower's first look. So each bell rings once more when
  every transaction that was open at that moment has ended.
- Where the row cannot be written (no tables yet, a standby) the safety net remains.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg

from bullpen.errors import BullpenError
from bullpen.stores.bells import BellBoard, events_topic
from bullpen.stores.postgresql.pool import Pool, with_nothing
from bullpen.stores.postgresql.transaction import HORIZON
from bullpen.stores.postgresql.wire import Lost, statement

RENEW_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_SETTLE_SECONDS = 0.01

_RENEW = """
    INSERT INTO follower (team_id, process, until)
    SELECT team_id, :process, clock_timestamp() + interval '30 seconds' FROM unnest(:teams::bigint[]) AS team_id
    ON CONFLICT (team_id, process) DO UPDATE SET until = excluded.until
"""
_FORGET = "DELETE FROM follower WHERE process = :process AND team_id = ANY(:teams::bigint[])"
_FORGET_THE_DEAD = "DELETE FROM follower WHERE until < clock_timestamp() - interval '1 hour'"
_TAKE_ID = "SELECT pg_current_xact_id()::text"
_HAS_TABLES = "SELECT to_regclass('follower') IS NOT NULL"


class Followers:
    def __init__(self, pool: Pool, process: str, board: BellBoard) -> None:
        self._pool = pool
        self._process = process
        self._board = board
        self._teams: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()

    @asynccontextmanager
    async def follow(self, team_id: int) -> AsyncIterator[None]:
        self._teams[team_id] += 1
        try:
            if not await self._register([team_id], looks_next=True):
                self._hurry.set()
            if self._teams.total() == 1:
                self._start(self._keep_renewing())
            yield
        finally:
            self._teams[team_id] -= 1
            if not self._teams[team_id]:
                del self._teams[team_id]
                await self._forget([team_id])
            if not self._teams:
                await self._stop()

    def renew_soon(self) -> None:
        self._hurry.set()

    async def close(self) -> None:
        await self._stop()
        if self._teams:
            await self._forget(list(self._teams))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- rows ------------------------------------------------------------------------------------

    async def _keep_renewing(self) -> None:
        is_known = True
        while True:
            was_hurried = await self._is_hurried_within(RENEW_SECONDS if is_known else _RETRY_SECONDS)
            if was_hurried or not is_known:
                is_known = await self._register(list(self._teams), looks_next=False)
            else:
                is_known = await self._renew(list(self._teams)) is not None

    async def _is_hurried_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return False
        self._hurry.clear()
        return True

    async def _register(self, teams: list[int], *, looks_next: bool) -> bool:
        """`looks_next`: the caller looks after this, so it need not be rung if nothing was open meanwhile."""
        newest = await self._renew(teams)
        if newest is None:
            return False
        if not looks_next or await self._is_open_below(newest):
            self._start(self._ring_when_settled(teams, newest))
        return True

    async def _renew(self, teams: list[int]) -> int | None:
        """An id above those of all who may not have seen the rows; None if they could not be written."""
        with suppress(BullpenError, Lost, psycopg.Error):
            async with self._pool.wire() as wire:
                [(has_tables,)] = await wire.ask(_HAS_TABLES)
                if has_tables:
                    await wire.run([statement(_RENEW, teams=teams, process=self._process), statement(_FORGET_THE_DEAD)])
                    return int((await wire.ask(_TAKE_ID))[0][0])
        return None

    async def _ring_when_settled(self, teams: list[int], newest: int) -> None:
        pause = _SETTLE_SECONDS
        while await self._is_open_below(newest):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _RETRY_SECONDS)
        for team_id in teams:
            self._board.ring(events_topic(team_id))

    async def _is_open_below(self, newest: int) -> bool:
        with suppress(BullpenError, Lost, psycopg.Error):
            async with self._pool.wire() as wire:
                [(horizon,)] = await wire.ask(HORIZON)
                return int(horizon) < newest
        return True

    async def _forget(self, teams: list[int]) -> None:
        with suppress(BullpenError, Lost, psycopg.Error):
            async with self._pool.wire(patience=with_nothing) as wire:
                await wire.ask(_FORGET, teams=teams, process=self._process)
