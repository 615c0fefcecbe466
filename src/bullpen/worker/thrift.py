"""Giving memory back: what a crowd at work needed all at once goes back to the machine when everybody rests.

The C library keeps what was freed for the next who asks; after hundreds of requests under way at the same moment that
is a tenth of what a process has, for as long as its members are idle.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

INTERVAL_SECONDS = 1.0


async def give_memory_back(is_busy: Callable[[], bool]) -> None:
    """Until it is cancelled: once after each time that somebody was at work."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        # Not glibc: others give it back by themselves, or not at all.
        return
    was_busy = False
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        is_busy_now = is_busy()
        if was_busy and not is_busy_now:
            trim(0)
        was_busy = is_busy_now
