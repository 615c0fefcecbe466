"""Running the duties again and again while a process is there, and never letting one spoil another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

from bullpen.errors import StoreUnavailable
from bullpen.maintenance.lapse import LapseWatch
from bullpen.store import Store

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
# Parts of it: so often who suspects that somebody has died looks again, who is on guard looks, and who is not.
SUSPECTING, GUARDING, RESTING = 0.25, 0.5, 1.5


class Maintenance:
    """While entered: dead workers are lapsed, reserved tasks handed back, requests expired. Of many processes that do
    so the first few are enough."""

    def __init__(self, store: Store, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._clock = store.clock
        self._watch = LapseWatch(store)
        self._duties: list[Callable[[], Awaitable[Any]]] = [store.hand_back_tasks, store.expire_requests]
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.run_once()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._task is not None
        self._task.cancel()
        # Not awaited itself: a cancellation of ours must not be taken for its own.
        await asyncio.wait({self._task})

    async def run_once(self) -> None:
        await self._do(self._watch.look)
        for duty in self._duties:
            await self._do(duty)

    async def _run(self) -> None:
        done_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._interval_seconds * self._part)
            await self._do(self._watch.look)
            # In turns with the others who are on guard.
            now = self._clock.monotonic()
            if self._watch.is_on_guard and now - done_at >= self._interval_seconds * self._watch.guards:
                done_at = now
                for duty in self._duties:
                    await self._do(duty)

    @property
    def _part(self) -> float:
        if self._watch.has_suspicion:
            return SUSPECTING
        return GUARDING if self._watch.is_on_guard else RESTING

    async def _do(self, duty: Callable[[], Awaitable[Any]]) -> None:
        try:
            await duty()
        except StoreUnavailable as error:
            logger.info("maintenance waits: %s", error)
        except Exception:
            # One of the boundaries where a fault must not spread: the other duties and the members go on.
            logger.exception("a maintenance duty failed")
