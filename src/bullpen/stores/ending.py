"""What comes to its end once it has begun, though whoever began it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_the_end(function: Callable[..., None], *args: Any) -> None:
    """In a thread: what it uses can be closed only when it has ended."""
    await to_the_end(asyncio.to_thread(function, *args))


async def to_the_end(deed: Awaitable[T]) -> T:
    """Who is cancelled meanwhile, however often, waits for it all the same; then the cancellation goes on."""
    running = asyncio.ensure_future(deed)
    try:
        await asyncio.wait({running})
    finally:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            # Looked at, since who is cancelled never asks how it ended.
            running.exception()
    return running.result()
