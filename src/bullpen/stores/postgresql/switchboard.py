"""The one connection of a process that is always there: notices come in on it, and it holds the proofs of life.

Opened when it is first needed and then kept: when it is lost it is opened again, as
long as it takes, what was listened to is listened to again, the proofs of life are
taken again, and everyone looks once, because a notice may have been missed.

A proof of life is an advisory lock of this session. That another's is free is only a
suspicion: its connection may have been cut, or the server restarted, and it comes
back in a moment. `probe` says DEAD only if this very session saw it held and it has
been free for `PROOF_SECONDS` since then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

import psycopg

from bullpen.clock import Clock
from bullpen.domain.member import Liveness
from bullpen.errors import BullpenError, StoreUnavailable, UsageError
from bullpen.stores.postgresql.wire import Lost, Notice, Row, Wire
from bullpen.stores.writer import CLOSED

# Who lives takes it again in a tenth of that.
PROOF_SECONDS = 0.75
_ANSWER_SECONDS = 10.0
_RETRY_SECONDS = 0.1

_TAKE_LIFE = "SELECT pg_try_advisory_lock(:key)"
_DROP_LIFE = "SELECT pg_advisory_unlock(:key)"
_ARE_HELD = """
    SELECT pg_postmaster_start_time(), coalesce(array_agg((classid::bigint << 32) | objid::bigint), '{}') FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((classid::bigint << 32) | objid::bigint) = ANY(:keys::bigint[])
"""


class Connect(Protocol):
    async def __call__(self, on_notice: Notice, *, waits: bool) -> Wire:
        """`waits`: for a server that has no connection left."""
        ...


class Switchboard:
    def __init__(
        self, connect: Connect, clock: Clock, on_notice: Callable[[str, str], None], on_return: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._on_notice = on_notice
        self._on_return = on_return
        self._channels: Counter[str] = Counter()
        self._lives: set[str] = set()
        self._untaken: set[str] = set()
        self._is_open = False
        self._wire: Wire | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._lost = asyncio.Event()
        self._one_asks = asyncio.Lock()
        self._seen_held: dict[str, datetime] = {}
        self._free_since: dict[str, float] = {}

    # -- notices ---------------------------------------------------------------------------------

    async def listen(self, channel: str) -> None:
        """From here on notices on it arrive; if the server is away just now, from when it is back."""
        await self._open()
        self._channels[channel] += 1
        if self._channels[channel] == 1:
            with suppress(StoreUnavailable):
                await self._ask(f'LISTEN "{channel}"')

    async def unlisten(self, channel: str) -> None:
        """The server is told later: whoever leaves because it is cut off from it must not wait for its answer."""
        self._channels[channel] -= 1
        if self._channels[channel] <= 0:
            del self._channels[channel]
            leaving = asyncio.create_task(self._leave(channel))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, channel: str) -> None:
        async with self._one_asks:
            if channel not in self._channels:
                # Else somebody listens to it again by now.
                with suppress(StoreUnavailable):
                    await self._ask_next(f'UNLISTEN "{channel}"')

    # -- life ------------------------------------------------------------------------------------

    async def hold_life(self, token: str) -> None:
        await self._open()
        self._lives.add(token)
        try:
            await self._ask(_TAKE_LIFE, key=life_key(token))
        except BaseException:
            self._lives.discard(token)
            raise

    async def drop_life(self, token: str) -> None:
        self._lives.discard(token)
        with suppress(StoreUnavailable):
            await self._ask(_DROP_LIFE, key=life_key(token))

    @property
    def is_up(self) -> bool:
        """The session that holds the proofs is there, as far as it has not hung up. That one which is over may hold
        them a while longer is no danger: nobody sees them free."""
        return self._wire is not None and not self._lost.is_set()

    async def probe(self, tokens: Sequence[str]) -> dict[str, Liveness]:
        """All of them with one question."""
        found = {token: Liveness.ALIVE for token in tokens if token in self._lives}
        others = {token: life_key(token) for token in tokens if token not in found}
        if not others:
            return found
        try:
            await self._open()
            [(started_at, held)] = await self._ask(_ARE_HELD, keys=list(others.values()))
        except BullpenError:
            return found | dict.fromkeys(others, Liveness.UNKNOWN)
        return found | {token: self._judge(token, key in held, started_at) for token, key in others.items()}

    def _judge(self, token: str, is_held: bool, started_at: datetime) -> Liveness:
        if is_held:
            self._seen_held[token] = started_at
            self._free_since.pop(token, None)
            return Liveness.ALIVE
        if self._seen_held.get(token) != started_at:
            return Liveness.UNKNOWN
        since = self._free_since.setdefault(token, self._clock.monotonic())
        return Liveness.DEAD if self._clock.monotonic() - since >= PROOF_SECONDS else Liveness.UNKNOWN

    # -- the connection ---------------------------------------------------------------------------

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        keeper, self._keeper = self._keeper, None
        ending = self._leaving | ({keeper} if keeper is not None else set())
        try:
            for task in ending:
                task.cancel()
            if ending:
                # Not awaited themselves: a cancellation of ours must not be taken for theirs.
                await asyncio.wait(ending)
        finally:
            self._drop_wire()

    async def _open(self) -> None:
        async with self._one_asks:
            if self._keeper is None:
                self._check_open()
                await self._establish(waits=True)
                self._keeper = asyncio.create_task(self._keep())

    async def _ask(self, sql: str, /, **parameters: Any) -> list[Row]:
        async with self._one_asks:
            return await self._ask_next(sql, **parameters)

    async def _ask_next(self, sql: str, /, **parameters: Any) -> list[Row]:
        """`_one_asks` is held. On a connection that is lost nobody waits: who keeps it is next."""
        wire = self._wire
        if wire is None or self._lost.is_set():
            raise StoreUnavailable("the connection to PostgreSQL is being opened again; try again")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await wire.ask(sql, **parameters)
        except (Lost, TimeoutError, psycopg.Error) as error:
            self._lost.set()
            raise StoreUnavailable(f"the connection to PostgreSQL was lost: {error}") from error

    async def _keep(self) -> None:
        while True:
            if await self._is_lost_within(_RETRY_SECONDS if self._untaken else None):
                await self._return()
                self._on_return()
            elif self._untaken:
                with suppress(StoreUnavailable):
                    await self._take_the_rest()

    async def _is_lost_within(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._lost.wait()
        except TimeoutError:
            return False

    async def _return(self) -> None:
        pause = 0.05
        while True:
            with suppress(BullpenError, Lost, psycopg.Error):
                async with self._one_asks:
                    self._drop_wire()
                    await self._establish(waits=False)
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    async def _establish(self, *, waits: bool) -> None:
        """`_one_asks` is held."""
        wire = await self._connect(self._on_notice, waits=waits)
        try:
            for channel in list(self._channels):
                await wire.ask(f'LISTEN "{channel}"')
            # Closed meanwhile: then nobody else would close this one.
            self._check_open()
        except BaseException:
            wire.close()
            raise
        # What this observer has seen was seen by a session that is over.
        self._seen_held.clear()
        self._free_since.clear()
        self._untaken = set(self._lives)
        self._lost.clear()
        wire.on_lost = self._lost.set
        self._wire = wire
        if not wire.is_usable:
            self._lost.set()

    async def _take_the_rest(self) -> None:
        """The server may not have noticed yet that our last session is gone; until it has, that one holds them."""
        for token in self._untaken & self._lives:
            [(is_taken,)] = await self._ask(_TAKE_LIFE, key=life_key(token))
            if is_taken:
                self._untaken.discard(token)
        self._untaken &= self._lives

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError(CLOSED)

    def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


def life_key(token: str) -> int:
    """A signed 64-bit number that names this token's lock."""
    return int.from_bytes(hashlib.sha256(f"bullpen life {token}".encode()).digest()[:8], "big", signed=True)
