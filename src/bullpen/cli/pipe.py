"""The pipe that a command writes into, whose reader may go while there is nothing to write."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """BrokenPipeError as soon as nobody reads what is written: `… --follow | head -1` ends with head, not with the
    next line, which may never come."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.timeout(None)
    try:
        async with waiting:
            with _told_when_unread(lambda: waiting.reschedule(loop.time())):
                yield
    except TimeoutError:
        if waiting.expired():
            raise BrokenPipeError from None
        raise


@contextmanager
def _told_when_unread(tell: Callable[[], None]) -> Iterator[None]:
    descriptor = _find_pipe()
    if descriptor is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def look() -> None:
        # Once: it may also have something to read for us, which stays there.
        loop.remove_reader(descriptor)
        if _is_unread(descriptor):
            tell()

    loop.add_reader(descriptor, look)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


def _find_pipe() -> int | None:
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def _is_unread(descriptor: int) -> bool:
    asked = select.poll()
    asked.register(descriptor, 0)
    # What is not asked for is said all the same: an error, or that the other end is closed.
    return any(answer & (select.POLLERR | select.POLLHUP) for _, answer in asked.poll(0))
