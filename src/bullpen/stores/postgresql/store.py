"""`PostgresStore`: many machines, one database.

Invariant: a verb is answered after the commit that contains it. What another
transaction made impossible (a deadlock, the same thing inserted twice) and what was
lost with its connection is run again; what was lost during COMMIT is asked after
first, so that it happens once.

Verbs of this process ring the board directly; other processes are told by NOTIFY,
inside the transaction, so a notice is sent if and only if the change is stored.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from bullpen.clock import Clock, SystemClock
from bullpen.domain.event import Event
from bullpen.domain.member import Liveness, Member, MemberRef, Worker
from bullpen.errors import BullpenError, StoreUnavailable
from bullpen.store import BEGINNING, Bell
from bullpen.stores.bells import Doorbell, NoDoorbell, events_topic, topic_of
from bullpen.stores.life import LocalLives
from bullpen.stores.postgresql import channel
from bullpen.stores.postgresql.commit import Fate, fate_of
from bullpen.stores.postgresql.connection import connect, explained, is_full, parse_url
from bullpen.stores.postgresql.empty import look_at_nothing
from bullpen.stores.postgresql.follower import Followers
from bullpen.stores.postgresql.pool import Pool
from bullpen.stores.postgresql.schema import migrate, stored_version, upgrade
from bullpen.stores.postgresql.switchboard import Switchboard
from bullpen.stores.postgresql.transaction import (
    Claimers,
    CommitUnknown,
    Look,
    LookAgain,
    PostgresTransaction,
    Unforeseen,
    look_again_for_offers,
)
from bullpen.stores.postgresql.wire import Lost, Notice, Wire
from bullpen.stores.transaction import Ring, Transaction
from bullpen.stores.verbs.store import VerbStore
from bullpen.stores.verbs.verb import Body, read

T = TypeVar("T")

POOL_SIZE = 16
PATIENCE_SECONDS = 10.0

# A verb that meets others again and again is run again this often, one whose connection is lost that often.
_MAX_CLASHES = 30
_MAX_LOSSES = 3
_MAX_LOOKS = 20

# Clocks that differ by less are left as they are: a round trip measures no better.
_TOLERABLE = timedelta(seconds=0.5)

# How long a look at the log waits for older transactions to end, in steps; then it is content with what is settled.
_LOOK_AGAIN_AFTER = (0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06)
_RING_AGAIN_AFTER = 0.1

_IS_URGENT: ContextVar[bool] = ContextVar("is_urgent", default=False)

_LAST_NUMBER = "SELECT last_value FROM event_number"

_CLASHES = (errors.DeadlockDetected, errors.SerializationFailure, errors.UniqueViolation)


class PostgresStore(VerbStore):
    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        pool_size: int = POOL_SIZE,
        patience_seconds: float = PATIENCE_SECONDS,
        **settings: Any,
    ) -> None:
        super().__init__(url, clock, **settings)
        self._address = parse_url(url)
        self._patience_seconds = patience_seconds
        self._process = secrets.token_hex(6)
        self._pool = Pool(self._connect, size=pool_size, patience_seconds=patience_seconds)
        self._switchboard = Switchboard(self._connect_beside, clock, self._hear, self._look_around)
        self._lives = LocalLives()
        self._following = Followers(self._pool, self._process, self._board)
        self._claimers: Claimers = {}
        self._has_tables = False
        self._began_at: datetime | None = None
        self._last_numbers: tuple[int, int] = (0, -1)

    @property
    def _doorbell(self) -> Doorbell:
        return NoDoorbell()

    async def _open(self) -> None:
        self._pool.open()
        self._switchboard.open()
        try:
            async with self._pool.wire(patience=is_full) as wire:
                await upgrade(wire)
        except (Lost, psycopg.Error) as error:
            raise self._translated(error) from error

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(self._pool.close)
            stack.callback(self._lives.close)
            stack.push_async_callback(self._switchboard.close)
            await self._following.close()

    async def _connect(self, on_notice: Notice | None = None) -> Wire:
        wire, self._began_at = await connect(self._address, on_notice)
        return wire

    async def _connect_beside(self, on_notice: Notice, *, waits: bool) -> Wire:
        return await self._pool.beside(partial(self._connect, on_notice), is_full=is_full, waits=waits)

    def _now(self) -> datetime:
        """The database's time, which all machines share, though ours is set anew while a connection lasts; a clock
        that was given for a test goes by itself."""
        ours = self.clock.now()
        if self._began_at is None or not isinstance(self.clock, SystemClock):
            return ours
        theirs = self._began_at + timedelta(seconds=self.clock.monotonic())
        return theirs if abs(theirs - ours) > _TOLERABLE else ours

    def _translated(self, error: Exception) -> BullpenError:
        if isinstance(error, Lost):
            return StoreUnavailable(f"the connection to PostgreSQL at {self._address.where} was lost: {error}")
        if isinstance(error, errors.UndefinedTable):
            self._has_tables = False
        assert isinstance(error, psycopg.Error)
        return explained(error, self._address.where)

    # -- writing -------------------------------------------------------------------------

    async def _write(self, body: Body[T]) -> T:
        try:
            return await self._write_at_last(body)
        except (Lost, psycopg.Error) as error:
            raise self._translated(error) from error

    async def _write_at_last(self, body: Body[T]) -> T:
        clashes = losses = looks = 0
        may_look_again = True
        while True:
            try:
                return await self._attempt(body, may_look_again, has_clashed=clashes > 0)
            except LookAgain as nothing:
                looks += 1
                is_there = await self._wait_for_others(nothing)
                may_look_again = is_there and looks < _MAX_LOOKS
            except Unforeseen:
                continue
            except _CLASHES:
                clashes += 1
                if clashes > _MAX_CLASHES:
                    raise
                # Two who clashed must not meet again in the same step.
                await asyncio.sleep(random.uniform(0, 0.002) * 2 ** min(clashes, 8))
            except Lost:
                losses += 1
                if losses > _MAX_LOSSES:
                    raise

    async def _attempt(self, body: Body[T], may_look_again: bool, *, has_clashed: bool) -> T:
        wire = await self._pool.take(urgently=_IS_URGENT.get())
        try:
            if not self._has_tables:
                await migrate(wire)
                self._has_tables = True
            tx = PostgresTransaction(
                wire,
                self._now(),
                process=self._process,
                own_workers=self._workers,
                claimers=self._claimers,
                may_look_again=may_look_again,
                has_clashed=has_clashed,
            )
            try:
                result = await body(tx)
                rings = await self._finish(tx)
            except BaseException:
                with suppress(Lost):
                    await tx.roll_back()
                raise
            self._ring(rings)
            wire.raise_cancellation()
        finally:
            self._pool.give_back(wire)
        return result

    async def _wait_for_others(self, nothing: LookAgain) -> bool:
        """Each wait in a transaction of its own, which holds nothing else: is something there after that?"""
        try:
            async with self._pool.wire() as wire:
                for holder in nothing.holders:
                    await wire.run([holder])
                # All of them, so that the last wait is for whoever is last.
                found = [bool((await wire.run([place]))[0].rows) for place in nothing.places]
                return any(found)
        except errors.LockNotAvailable:
            # Who holds something that long is left to the safety net.
            return False
        except (Lost, errors.DeadlockDetected):
            # Whether it was waited for long enough is not known: what looks again finds out.
            return True

    async def _finish(self, tx: PostgresTransaction) -> list[Ring]:
        try:
            return await tx.finish()
        except CommitUnknown as unknown:
            fate = await fate_of(
                unknown.transaction_id, unknown.trace, self._connect, patience_seconds=self._patience_seconds
            )
            match fate:
                case Fate.COMMITTED:
                    return tx.rings
                case Fate.ABORTED:
                    raise Lost("the transaction was undone") from unknown
            if tx.operation_id is not None:
                raise Lost("it is not known whether it was stored") from unknown
            raise StoreUnavailable(
                f"the connection to PostgreSQL at {self._address.where} was lost during COMMIT, "
                "and whether the change was stored cannot be found out: look before you repeat it"
            ) from unknown

    def _ring(self, rings: Sequence[Ring]) -> None:
        for ring in rings:
            self._board.ring(topic_of(ring))

    # -- reading -------------------------------------------------------------------------

    async def _read(self, body: Body[T]) -> T:
        losses = 0
        while True:
            try:
                return await self._look(body)
            except Lost as error:
                losses += 1
                if losses > _MAX_LOSSES:
                    raise self._translated(error) from error
            except psycopg.Error as error:
                raise self._translated(error) from error

    async def _look(self, body: Body[T]) -> T:
        async with self._pool.wire() as wire:
            if not self._has_tables and await stored_version(wire) is None:
                return look_at_nothing(body, self._now())
            tx = PostgresTransaction(wire, self._now(), looks_only=True)
            try:
                return await body(tx)
            finally:
                with suppress(Lost):
                    await tx.roll_back()

    async def find_work(self, by: MemberRef) -> str | None:
        """Who is told that there is nothing goes to sleep. A writer that is just making a task claimable may have seen
        it at work, and rings for nobody: such are waited for, as by a claim, before it is said."""
        found = await super().find_work(by)
        if found is None:
            try:
                await self._wait_for_others(look_again_for_offers(by.team_id))
            except psycopg.Error as error:
                raise self._translated(error) from error
            found = await super().find_work(by)
        return found

    # -- the log -------------------------------------------------------------------------

    async def list_events(self, team_id: int, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        """Waits a moment for older transactions, so that what has returned is seen. One open for long holds it back."""
        look = await self._look_at_events(team_id, after, limit)
        for pause in _LOOK_AGAIN_AFTER:
            if not look.is_behind:
                return look.events
            await asyncio.sleep(pause)
            look = await self._look_at_events(team_id, after, limit)
        if look.is_behind:
            self._ring_again(team_id)
        return look.events

    async def last_position(self, team_id: int) -> str:
        position, is_behind = await self._look_at_end(team_id)
        for pause in _LOOK_AGAIN_AFTER:
            if not is_behind:
                break
            await asyncio.sleep(pause)
            position, is_behind = await self._look_at_end(team_id)
        return position

    @read
    async def _look_at_events(tx: Transaction, team_id: int, after: str, limit: int) -> Look:
        if isinstance(tx, PostgresTransaction):
            return await tx.look_at_events(team_id, after, limit)
        return Look(await tx.list_events(team_id, after, limit), is_behind=False)

    @read
    async def _look_at_end(tx: Transaction, team_id: int) -> tuple[str, bool]:
        if isinstance(tx, PostgresTransaction):
            return await tx.look_at_end(team_id)
        return await tx.last_position(team_id), False

    def _ring_again(self, team_id: int) -> None:
        """There is more than may be seen yet. Whoever sleeps now looks again soon, though nothing new is committed."""
        loop = asyncio.get_running_loop()
        loop.call_later(_RING_AGAIN_AFTER, self._board.ring, events_topic(team_id))

    # -- bells ---------------------------------------------------------------------------

    def _hear(self, name: str, payload: str) -> None:
        topic = channel.topic_in(name, payload, process=self._process)
        if topic is not None:
            self._board.ring(topic)

    async def _has_changed(self) -> bool:
        """Whatever concerns anybody writes an event, whose number is taken just before its commit: so one that was new
        at the last look may have been stored since."""
        if not self._has_tables:
            return True
        try:
            async with self._pool.wire() as wire:
                [(number,)] = await wire.ask(_LAST_NUMBER)
        except (Lost, psycopg.Error) as error:
            raise self._translated(error) from error
        before, self._last_numbers = self._last_numbers, (self._last_numbers[1], number)
        return before != self._last_numbers or before[0] != before[1]

    def _look_around(self) -> None:
        """Notices may have been missed while the connection was away."""
        self._following.renew_soon()
        self._board.ring_all()

    async def register_worker(
        self, *, slots: int = 0, labels: Sequence[str] = (), lease_seconds: float = 15.0
    ) -> Worker:
        worker = await super().register_worker(slots=slots, labels=labels, lease_seconds=lease_seconds)
        await self._switchboard.listen(channel.of_worker(worker.id))
        return worker

    async def renew_worker(self, worker_id: int) -> Worker:
        """Past all other verbs of this process: else its own crowd could make others take it for dead."""
        before = _IS_URGENT.set(True)
        try:
            return await super().renew_worker(worker_id)
        finally:
            _IS_URGENT.reset(before)

    async def stop_worker(self, worker_id: int) -> list[Member]:
        is_ours = worker_id in self._workers
        try:
            return await super().stop_worker(worker_id)
        finally:
            if is_ours:
                await self._switchboard.unlisten(channel.of_worker(worker_id))

    @asynccontextmanager
    async def listen_wanted(self) -> AsyncIterator[Bell]:
        async with super().listen_wanted() as bell, self._listened(channel.WANTED):
            yield bell

    @asynccontextmanager
    async def listen_submissions(self) -> AsyncIterator[Bell]:
        async with super().listen_submissions() as bell, self._listened(channel.SUBMISSIONS):
            yield bell

    @asynccontextmanager
    async def _listened(self, name: str) -> AsyncIterator[None]:
        await self._switchboard.listen(name)
        try:
            yield
        finally:
            await self._switchboard.unlisten(name)

    @asynccontextmanager
    async def _followed(self, team_id: int) -> AsyncIterator[None]:
        async with self._listened(channel.of_team(team_id)), self._following.follow(team_id):
            yield

    # -- life ----------------------------------------------------------------------------

    async def _hold_life(self, token: str) -> None:
        await self._switchboard.hold_life(token)
        self._lives.hold(token)

    async def _drop_life(self, token: str) -> None:
        self._lives.drop(token)
        await self._switchboard.drop_life(token)

    async def probe_worker(self, worker: Worker) -> Liveness:
        [liveness] = await self.probe_workers([worker])
        return liveness

    async def probe_workers(self, workers: Sequence[Worker]) -> list[Liveness]:
        """Of a worker of this machine its kernel knows the death first, and for certain."""
        known = [self._lives.probe(worker) for worker in workers]
        asked = [worker.token for worker, here in zip(workers, known, strict=True) if here is not Liveness.DEAD]
        found = await self._switchboard.probe(asked)
        return [found.get(worker.token, Liveness.DEAD) for worker in workers]

    def proves_life(self, worker_id: int) -> bool:
        return super().proves_life(worker_id) and self._switchboard.is_up
