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


class Maintenance:
    """While entered: dead workers are lapsed, reserved tasks handed back, requests expired."""

    def __init__(self, store: Store, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._duties: list[Callable[[], Awaitable[Any]]] = [
            LapseWatch(store).look,
            store.hand_back_tasks,
            store.expire_requests,
        ]
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
        for duty in self._duties:
            try:
                await duty()
            except StoreUnavailable as error:
                logger.info("maintenance waits: %s", error)
            except Exception:
                # One of the boundaries where a fault must not spread: the other duties and the members go on.
                logger.exception("a maintenance duty failed")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            await self.run_once()
