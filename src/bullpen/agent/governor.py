"""One governor for each provider key: how many requests run at once, and when the next may.

Everything that shares a key in this process goes through one governor. As long as the
provider answers, nobody waits. When it says "too many" or is overloaded, the number of
requests at once is halved and grows again by one for each round of answers, so that
twenty teammates do not come back all at the same moment. (Other processes learn of it
through the store: `block_provider`.)
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bullpen.errors import Overloaded, ProviderError, RateLimited

MAX_RETRY_AFTER_SECONDS = 60.0
FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 30.0


class Governor:
    def __init__(self) -> None:
        self._limit = math.inf
        self._active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """While inside, one of the requests at once."""
        await self._enter()
        try:
            yield
        finally:
            self._active -= 1
            self._let_in()

    def note_answer(self) -> None:
        self._limit += 1 / self._limit
        if self._limit > 256:
            self._limit = math.inf
        self._let_in()

    def note_refusal(self) -> None:
        self._limit = max(min(self._limit, self._active + 1) / 2, 1.0)

    async def _enter(self) -> None:
        if self._active < math.floor(min(self._limit, 1e9)) and not self._waiting:
            self._active += 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        try:
            await ticket
        except BaseException:
            if ticket.done() and not ticket.cancelled():
                # Let in and cancelled at the same moment: the place is somebody else's.
                self._active -= 1
                self._let_in()
            elif ticket in self._waiting:
                # Else somebody who left at the same moment has passed it over already.
                self._waiting.remove(ticket)
            raise

    def _let_in(self) -> None:
        while self._waiting and self._active < math.floor(min(self._limit, 1e9)):
            ticket = self._waiting.popleft()
            if not ticket.done():
                self._active += 1
                ticket.set_result(None)


def retry_delay(error: ProviderError, attempt: int) -> float:
    """How long to wait before attempt number `attempt` + 1: what the provider asks for, capped, or doubling; always
    with jitter, and never less than was asked for. "At once" is no wish: obeyed, it would use up all attempts."""
    asked = error.retry_after_seconds if isinstance(error, RateLimited | Overloaded) else None
    if asked:
        return min(max(asked, 0.0), MAX_RETRY_AFTER_SECONDS) * random.uniform(1.0, 1.25)
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 30), MAX_DELAY_SECONDS) * random.uniform(0.5, 1.0)
