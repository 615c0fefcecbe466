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
    if agent.was_interrupted():
        doing.close()
        raise Interrupted
    watch = _Watch(agent)
    try:
        with agent.bell.call(watch.look_now):
            return await doing
    except asyncio.CancelledError:
        watch.raise_reason()
        raise
    finally:
        await watch.end()


class _Watch:
    """Looks when the bell rings, and cancels the task in which it was made when that is to be cut off.

    Nothing runs until it rings: a member begins something long twice a turn, and a task that only waits beside it would
    cost as much as most tools. Whose cancellation it was is told as in `asyncio.timeout`: by counting them.
    """

    def __init__(self, agent: Agent) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._agent = agent
        self._task = task
        self._cancelled_before = task.cancelling()
        self._timer = task.get_loop().call_later(LOOK_AGAIN_SECONDS, self.look_now)
        self._looking: asyncio.Task[None] | None = None
        self._has_rung = False
        self._reason: Exception | None = None

    def look_now(self) -> None:
        """If it looks just then, it looks once more: what rings may have come too late for that."""
        self._timer.cancel()
        self._has_rung = True
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    def raise_reason(self) -> None:
        """Why it was cut off, if that was done here, and nobody else wants it to end."""
        if self._reason is not None and self._task.cancelling() - 1 <= self._cancelled_before:
            raise self._reason from None

    async def end(self) -> None:
        self._timer.cancel()
        if self._reason is not None:
            self._task.uncancel()
        if self._looking is not None:
            self._looking.cancel()
            # Not awaited itself: a cancellation of ours must not be taken for its own.
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        try:
            while self._has_rung:
                self._has_rung = False
                # If the store is away, what runs goes on; if it stays away, the worker stops its members in time.
                with suppress(StoreUnavailable):
                    await self._agent.refresh()
                if self._agent.was_interrupted():
                    raise Interrupted
        except Exception as reason:
            # Once only: who presses Esc twice has cut off the same thing, which is just ending. A second cancellation
            # would cut off that end, and be taken for somebody else's.
            if self._reason is None:
                self._reason = reason
                self._task.cancel()
        else:
            self._timer = self._task.get_loop().call_later(LOOK_AGAIN_SECONDS, self.look_now)
        self._looking = None
