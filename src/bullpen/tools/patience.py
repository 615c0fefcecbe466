"""What must reach the store is tried until it does: a disk that is full for a minute loses no verdict and no notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bullpen.errors import StoreUnavailable

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
