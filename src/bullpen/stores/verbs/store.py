"""`VerbStore`: every verb of the contract, over the few things that an implementation provides.

An implementation provides `_open` and `_close`, `_write` and `_read` (run a body
in a transaction), `_hold_life` and `_drop_life` (what proves that this process
lives), `probe_worker`, and a doorbell. Everything else stands here and in the
sibling modules, once.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Self, TypeVar

from bullpen.clock import Clock
from bullpen.domain.event import Event
from bullpen.domain.member import MAX_SECONDS, Liveness, Member, MemberRef, Worker
from bullpen.errors import BullpenError, LeaseLost, StoreRemoved, UsageError
from bullpen.store import BEGINNING, Bell
from bullpen.stores.bells import (
    EVENTS_PREFIX,
    OVERFLOW_TOPIC,
    SUBMISSIONS_TOPIC,
    WANTED_TOPIC,
    BellBoard,
    Doorbell,
    events_topic,
    is_events_topic,
    is_member_topic,
    member_topic,
    worker_prefix,
)
from bullpen.stores.life import boot_id
from bullpen.stores.verbs.backgrounds import BackgroundVerbs
from bullpen.stores.verbs.budgets import BudgetVerbs
from bullpen.stores.verbs.changes import ChangeVerbs
from bullpen.stores.verbs.completion import CompletionVerbs
from bullpen.stores.verbs.events import EventVerbs
from bullpen.stores.verbs.mail import MailVerbs
from bullpen.stores.verbs.members import MemberVerbs
from bullpen.stores.verbs.requests import RequestVerbs
from bullpen.stores.verbs.submissions import SubmissionVerbs
from bullpen.stores.verbs.tasks import TaskVerbs
from bullpen.stores.verbs.teams import TeamVerbs
from bullpen.stores.verbs.transcript import TranscriptVerbs
from bullpen.stores.verbs.verb import Body
from bullpen.stores.verbs.whole import WholeVerbs
from bullpen.stores.verbs.workers import WorkerVerbs

T = TypeVar("T")

POLL_INTERVAL_SECONDS = 1.0
MAX_SLOTS = 1_000_000


class VerbStore(
    TeamVerbs,
    WorkerVerbs,
    MemberVerbs,
    TaskVerbs,
    ChangeVerbs,
    CompletionVerbs,
    SubmissionVerbs,
    MailVerbs,
    RequestVerbs,
    TranscriptVerbs,
    BackgroundVerbs,
    BudgetVerbs,
    WholeVerbs,
    EventVerbs,
):
    def __init__(self, url: str, clock: Clock, *, poll_interval_seconds: float = POLL_INTERVAL_SECONDS) -> None:
        self.url = url
        self.clock = clock
        self.poll_interval_seconds = poll_interval_seconds
        self._board = BellBoard()
        self._workers: dict[int, tuple[Worker, ExitStack]] = {}
        self._listeners = 0
        self._net: asyncio.Task[None] | None = None
        self._owes_look = False
        """Something has changed, and the look at it failed."""
        self._is_closed = False
        self._followers = 0
        self._follower_bell = ExitStack()

    # -- what an implementation provides -------------------------------------------

    @property
    def _doorbell(self) -> Doorbell:
        raise NotImplementedError

    async def _open(self) -> None:
        """Creates nothing on disk: whoever only looks leaves no trace."""
        raise NotImplementedError

    async def _close(self) -> None:
        """Also after an `_open` that failed, at whatever point."""
        raise NotImplementedError

    async def _write(self, body: Body[T]) -> T:
        """One transaction: all or nothing, durable when it returns. A body may be run again in a new one.

        After the commit, and before it returns, each ring goes to this process (`self._board.ring(topic_of(ring))`)
        and to the others (`self._doorbell.send`), also if the caller has been cancelled by then: a cancellation goes on
        when the transaction has ended, or never began. What fails beside the body (a disk, a connection) is
        StoreUnavailable. `stores.writer.Writer` does most of this for an embedded store.
        """
        raise NotImplementedError

    async def _read(self, body: Body[T]) -> T:
        """One consistent snapshot; sees every write that has returned. It lets the loop have a turn now and then,
        however quick it is (`stores.pace.Pace`): one who looks again and again must not stop everybody else."""
        raise NotImplementedError

    async def _hold_life(self, token: str) -> None:
        """From now until `_drop_life` or the death of this process, `probe_worker` of this token says ALIVE."""
        raise NotImplementedError

    async def _drop_life(self, token: str) -> None:
        raise NotImplementedError

    async def probe_worker(self, worker: Worker) -> Liveness:
        raise NotImplementedError

    async def probe_workers(self, workers: Sequence[Worker]) -> list[Liveness]:
        return [await self.probe_worker(worker) for worker in workers]

    def proves_life(self, worker_id: int) -> bool:
        return worker_id in self._workers

    # -- life of the store object ----------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            # Nobody calls __aexit__ after this.
            await self._close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # A stack: who is cancelled in one of these steps still takes the others.
        async with AsyncExitStack() as stack:
            stack.callback(self._tell_that_it_is_closed)
            stack.push_async_callback(self._close)
            stack.callback(self._follower_bell.close)
            stack.push_async_callback(self._stop_net)
            for worker_id in list(self._workers):
                with suppress(BullpenError):
                    await self.stop_worker(worker_id)

    def _tell_that_it_is_closed(self) -> None:
        """Nothing comes any more: whoever still waits looks, and is told."""
        self._is_closed = True
        self._board.ring_all()

    # -- workers of this process -------------------------------------------------------

    async def register_worker(
        self, *, slots: int = 0, labels: Sequence[str] = (), lease_seconds: float = 15.0
    ) -> Worker:
        if not 0 < lease_seconds <= MAX_SECONDS or not 0 <= slots <= MAX_SLOTS:
            raise UsageError(f"a worker has a lease of more than 0 seconds, and 0 to {MAX_SLOTS:,} slots")
        token = secrets.token_hex(8)
        # Its life is held before anyone can read its row: an observer never sees a worker that looks dead.
        await self._hold_life(token)
        moment = datetime.now(UTC)
        try:
            worker = await self._enter_worker(
                Worker(
                    id=0,
                    token=token,
                    host=socket.gethostname(),
                    boot_id=boot_id(),
                    pid=os.getpid(),
                    slots=slots,
                    labels=tuple(labels),
                    lease_seconds=lease_seconds,
                    started_at=moment,
                    renewed_at=moment,
                )
            )
        except BaseException:
            await self._drop_life(token)
            raise
        bells = ExitStack()
        self._workers[worker.id] = (worker, bells)
        try:
            bells.enter_context(self._doorbell.receive(worker_prefix(worker.id)))
        except BaseException:
            await self.stop_worker(worker.id)
            raise
        return worker

    async def renew_worker(self, worker_id: int) -> Worker:
        try:
            return await super().renew_worker(worker_id)
        except LeaseLost:
            # Who is no member any more is rung for nothing: whoever still waits here looks, and is told.
            self._board.ring_all()
            raise

    async def stop_worker(self, worker_id: int) -> list[Member]:
        worker, bells = self._workers.pop(worker_id, (None, None))
        if bells is not None:
            bells.close()
        try:
            return await self._leave_worker(worker_id)
        finally:
            if worker is not None:
                await self._drop_life(worker.token)

    # -- bells -----------------------------------------------------------------------

    @asynccontextmanager
    async def listen_member(self, by: MemberRef) -> AsyncIterator[Bell]:
        async with self._watched():
            with self._board.subscribe(member_topic(by.team_id, by.name)) as bell:
                yield bell

    @asynccontextmanager
    async def listen_wanted(self) -> AsyncIterator[Bell]:
        async with self._watched():
            with self._board.subscribe(WANTED_TOPIC) as bell:
                yield bell

    @asynccontextmanager
    async def listen_submissions(self) -> AsyncIterator[Bell]:
        async with self._watched():
            with self._board.subscribe(SUBMISSIONS_TOPIC) as bell:
                yield bell

    @asynccontextmanager
    async def listen_events(self, team_id: int) -> AsyncIterator[Bell]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._watched())
            bell = stack.enter_context(self._board.subscribe(events_topic(team_id)))
            await stack.enter_async_context(self._followed(team_id))
            yield bell

    async def follow_events(self, team_id: int, *, after: str = BEGINNING) -> AsyncIterator[Event]:
        async with self.listen_events(team_id) as bell:
            position = after
            while True:
                bell.clear()
                try:
                    events = await self.list_events(team_id, after=position)
                except UsageError as error:
                    if position == after or self._is_closed:
                        raise
                    # It came from this log: somebody has brought back an older one meanwhile.
                    raise StoreRemoved(
                        "the log was replaced by another one while it was followed: begin anew"
                    ) from error
                for event in events:
                    yield event
                    position = event.position
                if not events:
                    await bell.wait()

    @asynccontextmanager
    async def _followed(self, team_id: int) -> AsyncIterator[None]:
        """While inside, rings for events reach this process; one receiver for all followers."""
        if self._followers == 0:
            self._follower_bell.enter_context(self._doorbell.receive(EVENTS_PREFIX))
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if self._followers == 0:
                self._follower_bell.close()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """While anyone listens, the safety net runs: one for the process, not one for each member."""
        self._listeners += 1
        if self._net is None:
            self._net = asyncio.create_task(self._run_net())
        try:
            yield
        finally:
            self._listeners -= 1
            if self._listeners == 0:
                await self._stop_net()

    async def _stop_net(self) -> None:
        net, self._net = self._net, None
        if net is not None:
            net.cancel()
            # Not awaited itself: a cancellation of ours must not be taken for its own.
            await asyncio.wait({net})

    async def _run_net(self) -> None:
        """Rings may be lost (a full socket, a dead connection); then this finds who has work, at once if the loss
        was noticed, else an interval later."""
        with self._board.subscribe(OVERFLOW_TOPIC) as bell:
            while True:
                await bell.wait(self.poll_interval_seconds)
                bell.clear()
                with suppress(BullpenError):
                    await self._look_for_what_was_lost()

    async def _look_for_what_was_lost(self) -> None:
        try:
            self._owes_look |= await self._has_changed()
            if self._owes_look:
                await self._look_for_the_deaf()
                self._owes_look = False
        except StoreRemoved:
            # Whoever waits looks, and is told; but not the net itself, which would look again at once.
            for topic in set(self._board.topics()) - {OVERFLOW_TOPIC}:
                self._board.ring(topic)

    async def _has_changed(self) -> bool:
        """False only if nothing can have happened since the last call. Cheaper than looking, where it can be known.
        StoreRemoved if the store is not there any more."""
        return True

    async def _look_for_the_deaf(self) -> None:
        # Before who is hosted: whoever listens by now and is not among those is not hosted any more.
        topics = self._board.topics()
        hosted = set()
        for worker_id in list(self._workers):
            hosted |= {member_topic(ref.team_id, ref.name) for ref in await self._list_hosted(worker_id)}
            for ref in await self.list_due_members(worker_id):
                self._board.ring(member_topic(ref.team_id, ref.name))
        if WANTED_TOPIC in topics and await self._has_wanted():
            self._board.ring(WANTED_TOPIC)
        if SUBMISSIONS_TOPIC in topics and await self._has_queued():
            self._board.ring(SUBMISSIONS_TOPIC)
        for topic in topics:
            if is_events_topic(topic) or (is_member_topic(topic) and topic not in hosted):
                self._board.ring(topic)
