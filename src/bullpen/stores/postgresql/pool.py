"""The connections of a store object: as many as verbs run at once, at most `size`.

psycopg's own pool costs 70 us a verb, hides why a server cannot be reached behind
a timeout, and tries again in the background. Here whoever needs a connection opens
it and gets the reason at once.

A connection that rests is looked at before it is handed out (one read, no round
trip), so after a restart of the server nobody gets a dead one. Once the store has
been reached, a server that is gone is waited for, `patience_seconds` at most; before
that, only one that is there and has no connection left: a name that is wrong is told at once.

Where the server has none left because those that rest here are all that it gives, they make room for the one that
notices come in on (`beside`): without that one nobody hosts members. That room is kept for it: verbs share what they
have until it has come, and open no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bullpen.errors import StoreUnavailable, UsageError
from bullpen.stores.postgresql.wire import Wire
from bullpen.stores.writer import CLOSED

_MAX_IDLE_SECONDS = 300.0
# Those in front are verbs of this process; each ends or gives up by itself.
_QUEUE_SECONDS = 30.0
# A new connection costs the server ten times what a verb does, so a burst of verbs rather takes turns.
_OPENED_AT_ONCE = 2
# The server needs a moment to end a session that was closed.
_LET_IN_SECONDS = 0.05
# Whoever keeps trying tries again within this time (`Switchboard._return`).
_KEPT_SECONDS = 3.0


Patience = Callable[[StoreUnavailable], bool]
"""Is this worth waiting for, as long as the store's patience lasts?"""


def with_all(error: StoreUnavailable) -> bool:
    return True


def with_nothing(error: StoreUnavailable) -> bool:
    return False


class Pool:
    def __init__(self, connect: Callable[[], Awaitable[Wire]], *, size: int, patience_seconds: float) -> None:
        self._connect = connect
        self._size = size
        self._patience_seconds = patience_seconds
        self._room = asyncio.Semaphore(size)
        self._door = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._idle: list[Wire] = []
        self._beyond: set[Wire] = set()
        self._is_open = False
        self._owes_room = False
        self._is_kept_until = 0.0
        self._refusal = ""
        self._refused_at = 0.0
        self._alive = 0
        """Connections for verbs, in use or at rest."""

    @asynccontextmanager
    async def wire(self, *, patience: Patience = with_all) -> AsyncIterator[Wire]:
        wire = await self.take(patience=patience)
        try:
            yield wire
        finally:
            self.give_back(wire)

    async def take(self, *, patience: Patience = with_all, urgently: bool = False) -> Wire:
        """To be given back. `urgently`: past all who wait, beyond `size`; for what is done seldom, one at a time."""
        # From here on, not from when those in front have lost theirs: a crowd waits as long as one alone.
        give_up_at = time.monotonic() + self._patience_seconds
        if urgently:
            self._check_open()
            wire = self._rested() or await self._connected(patience, give_up_at)
            self._beyond.add(wire)
            return wire
        await self._enter()
        try:
            return self._rested() or await self._opened(patience, give_up_at)
        except BaseException:
            self._room.release()
            raise

    async def beside(self, connect: Callable[[], Awaitable[Wire]], *, is_full: Patience, waits: bool) -> Wire:
        """A connection that is not for verbs. While the server lets nobody in, one of theirs after the other makes room
        for it; `waits`: it is waited for, as verbs do, else tried once."""
        give_up_at = time.monotonic() + (self._patience_seconds if waits else 0.0)
        while True:
            try:
                wire = await connect()
            except StoreUnavailable as error:
                if not is_full(error):
                    raise
                self._make_room()
                self._is_kept_until = time.monotonic() + _KEPT_SECONDS
                if time.monotonic() + _LET_IN_SECONDS > give_up_at:
                    raise
            else:
                self._owes_room = False
                self._is_kept_until = 0.0
                return wire
            await asyncio.sleep(_LET_IN_SECONDS)
            self._check_open()

    def _make_room(self) -> None:
        """The one that has rested longest is closed; if none rests, the next that comes back."""
        self._owes_room = not self._idle
        if self._idle:
            self._close(self._idle.pop(0))

    def give_back(self, wire: Wire) -> None:
        """Closed if a transaction was left open on it, or somebody waits for its place."""
        if wire in self._beyond:
            self._beyond.discard(wire)
        else:
            self._room.release()
        is_usable = wire.is_usable
        if not is_usable:
            self._close_rested()
        is_fit = self._is_open and is_usable and wire.is_between_transactions
        if self._owes_room or not is_fit:
            self._owes_room = False
            self._close(wire)
            return
        wire.idle_since = time.monotonic()
        self._idle.append(wire)
        # The last one in is the first one out, so the one at the bottom has rested longest.
        if self._idle[0].idle_since < wire.idle_since - _MAX_IDLE_SECONDS:
            self._close(self._idle.pop(0))

    def _close(self, wire: Wire) -> None:
        self._alive -= 1
        wire.close()

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        self._close_rested()

    def _close_rested(self) -> None:
        """Also when one was lost in use: a server that froze, or a firewall that forgot them, has ended those that rest
        just as silently, and a verb that is run again must not wait for one of them after the other."""
        while self._idle:
            self._close(self._idle.pop())

    async def _enter(self) -> None:
        self._check_open()
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {self._size} connections were in use for {_QUEUE_SECONDS:g} s; nothing was changed, try again"
            ) from None

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError(CLOSED)

    def _rested(self) -> Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_usable:
                return wire
            self._close(wire)
        return None

    async def _opened(self, patience: Patience, give_up_at: float) -> Wire:
        async with self._door:
            if (rested := self._rested()) is not None:
                return rested
            self._check_patience(give_up_at)
            return await self._connected(patience, give_up_at)

    def _check_patience(self, give_up_at: float) -> None:
        """Those in front at the door have tried since this one came, and it has waited long enough: it takes their word
        for it. A host that swallows everything would cost each pair of a crowd the whole time of a connection."""
        was_tried = self._refused_at > give_up_at - self._patience_seconds
        if was_tried and time.monotonic() > give_up_at:
            raise StoreUnavailable(self._refusal)

    async def _connected(self, patience: Patience, give_up_at: float) -> Wire:
        """Tried once at least."""
        pause = 0.05
        while True:
            # It may have been closed while we waited: for room, or for the server.
            self._check_open()
            if not self._alive or time.monotonic() > min(self._is_kept_until, give_up_at):
                try:
                    wire = await self._connect()
                except StoreUnavailable as error:
                    self._refusal, self._refused_at = str(error), time.monotonic()
                    if not patience(error) or time.monotonic() + pause > give_up_at:
                        raise
                else:
                    self._alive += 1
                    return wire
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
            # Where the server lets nobody in any more, those whom it has let in are enough.
            if (rested := self._rested()) is not None:
                return rested
