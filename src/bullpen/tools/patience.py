"""What must reach the store is tried until it does: a disk that is full for a minute loses no verdict and no notice.
And what has reached it is not forgotten by who was cut off just then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from bullpen.errors import BullpenError, StoreUnavailable
from bullpen.stores.ending import to_the_end

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0

T = TypeVar("T")


async def insist(step: Callable[[], Awaitable[T]]) -> T:
    """Ends when it succeeds, raises anything but StoreUnavailable, or is cancelled: with its member at the latest."""
    pause = FIRST_SECONDS
    while True:
        try:
            return await step()
        except StoreUnavailable:
            await asyncio.sleep(pause)
            pause = min(LONGEST_SECONDS, pause * 2)


async def seen_through(verb: Coroutine[Any, Any, T], take_back: Callable[[T], Awaitable[None]]) -> T:
    """What the verb returns. Whoever is cut off while it is written never learns what it did, which stands in the store
    all the same: then its outcome is waited for, and taken back, however often it is cut off meanwhile."""
    writing = asyncio.ensure_future(verb)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        # If the store is away, or somebody else is the member by now: what is left open is seen to by the next one.
        with suppress(BullpenError):
            await to_the_end(_take_back(writing, take_back))
        raise


async def _take_back(writing: Awaitable[T], take_back: Callable[[T], Awaitable[None]]) -> None:
    await take_back(await writing)
