"""Doing something long while listening whether it is still to be done.

A model call or a tool may take minutes. Meanwhile the member may be interrupted by the
human, or end (its shutdown was forced, another worker took it over): then what runs is
cut off at once, and everything that it started with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bullpen.agent.agent import Agent
from bullpen.errors import BullpenError, StoreUnavailable

T = TypeVar("T")

# Rings come at once; this finds what was not rung for.
LOOK_AGAIN_SECONDS = 5.0


class Interrupted(BullpenError):
    """Somebody cut it off."""


async def watched(agent: Agent, doing: Coroutine[Any, Any, T]) -> T:
    """What `doing` returns; Interrupted or LeaseLost if it was cut off, after it has ended."""
    task = asyncio.ensure_future(doing)
    watch = asyncio.ensure_future(_watch(agent))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        await _end(task)
        if not task.cancelled() and task.exception() is None:
            # It ended by itself in the same moment.
            return task.result()
        watch.result()
        raise Interrupted
    finally:
        await _end(task)
        await _end(watch)


async def _watch(agent: Agent) -> None:
    """Returns when it is interrupted, raises LeaseLost when it is over."""
    while not agent.was_interrupted():
        await agent.bell.wait(LOOK_AGAIN_SECONDS)
        # If the store is away, what runs goes on; if it stays away, the worker stops its members in time.
        with suppress(StoreUnavailable):
            await agent.refresh()


async def _end(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        # Not awaited itself: a cancellation of ours must not be taken for its own.
        await asyncio.wait({task})
    if not task.cancelled():
        # Looked at, so that nobody is told of a fault that was cut off together with what it was in.
        task.exception()
