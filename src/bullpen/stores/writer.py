"""One writer: verbs wait in a queue and are committed in groups.

A commit costs a flush of the disk, whether one verb is in it or fifty. So while
one group is being committed the next gathers, and the busier the process, the
fewer flushes a verb costs. Nobody waits for a group to fill.

Groups run in a thread of their own, so that the loop goes on while a disk is slow
or another process is inside. A verb that is alone, with the gate open and a quick
disk, runs at once where it was called: the way to the thread and back would cost
it as much as its commit.

A process that had to wait for the gate stays inside for a moment if its next verb comes at once: see `Visit`.

- A job answers only after the commit of its group.
- A caller cancelled while its job still waits takes the job back; once the job
  has begun, it runs to its end before the cancellation goes on.
- A caller that waits longer than `patience_seconds` for its job to begin is told
  who holds the store, and the job is taken back.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from bullpen.errors import StoreUnavailable, UsageError
from bullpen.stores.transaction import Ring

T = TypeVar("T")

MAX_GROUP = 256
CLOSE_PATIENCE_SECONDS = 5.0
CLOSED = "this store has been closed: open it again"
QUICK_SECONDS = 0.002
"""What a loop may stand still for; after two commits in a row that took longer, the next one is the thread's."""
TURN_SECONDS = 0.002
"""How long one task may call verb after verb before the loop has a turn in between."""

LATE_SECONDS = 0.05
"""Who leaves the gate so much later than it should may not stay inside for `HURRY_SECONDS`."""
HURRY_SECONDS = 30.0


class Pace:
    """Says when the loop is due for a turn before a verb that could run at once.

    A turn costs a tenth of a verb, and mixes what several tasks do, so that all are done at the end instead of one
    after the other. So a task is given `TURN_SECONDS` for its verbs; another one comes only after a turn of the loop.
    Whoever finds somebody waiting for that turn waits, too, and all of them are committed in one group.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last_task = 0
        self._until = 0.0

    def is_due(self) -> bool:
        # By its id, which keeps nothing alive; another task that gets the same one merely has what is left of its time.
        task, now = id(asyncio.current_task(self._loop)), time.monotonic()
        if task == self._last_task and now < self._until:
            return False
        is_due = task == self._last_task
        self._last_task, self._until = task, now + TURN_SECONDS
        return is_due


class Job(Generic[T]):
    """A body to run, and where its outcome goes."""

    __slots__ = ("_begun", "_done", "_dropped", "_error", "_result", "body", "loop", "rings")

    _lock = threading.Lock()
    """One for all of them: it is held for a moment, and only for those in the queue."""

    def __init__(self, body: Callable[[Any], T]) -> None:
        self.body = body
        self.rings: list[Ring] = []
        # Only for a job that is waited for: to find out which loop runs is a call of the system.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._begun = False
        self._dropped = False
        self._result: T | None = None
        self._error: BaseException | None = None

    # -- in the writer's thread --------------------------------------------------------

    def begin(self) -> bool:
        """False if its caller has gone."""
        with self._lock:
            self._begun = not self._dropped
            return self._begun

    def succeed(self, result: T) -> None:
        self._result = result

    def fail(self, error: BaseException) -> None:
        self._error = error

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    # -- in the caller's loop ------------------------------------------------------------

    def settle(self) -> None:
        if self._done is not None:
            self._done.set()

    def drop(self) -> bool:
        """Take it back; False if it has begun."""
        with self._lock:
            self._dropped = not self._begun
            return self._dropped

    @property
    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    async def wait(self, patience_seconds: float, holder: Callable[[], str]) -> None:
        """To be called before the loop has another turn, which could settle it."""
        assert self.loop is not None
        done = self._done = asyncio.Event()
        # A timer, not `asyncio.timeout`: a job that has begun is waited for, and it costs a third.
        timer = self.loop.call_later(patience_seconds, self._lose_patience, patience_seconds, holder)
        try:
            await done.wait()
        except asyncio.CancelledError:
            # One that has begun is waited for, however often its caller is cancelled meanwhile.
            while not self.drop() and not done.is_set():
                with suppress(asyncio.CancelledError):
                    await done.wait()
            raise
        finally:
            timer.cancel()

    def _lose_patience(self, patience_seconds: float, holder: Callable[[], str]) -> None:
        if self.drop():
            self.fail(
                StoreUnavailable(
                    f"waited {patience_seconds:g} s to write, {holder()} holds the store; nothing was changed"
                )
            )
            self.settle()


class Occupied(Exception):
    """Raised by `commit` where a verb was called, if a program that knows no gate is in the way: nothing was done.

    The thread commits the job then. It may wait; the loop would stand still.
    """


class Gate(Protocol):
    """Who may write just now, among all processes."""

    stay_seconds: float
    """For how long a process that had to wait may stay inside for the verbs that follow; 0 for one group only."""

    def enter(self) -> None:
        """Blocks until it is free."""
        ...

    def try_enter(self) -> bool:
        """Never blocks; False if it is not free, or if it is somebody else's turn."""
        ...

    def leave(self) -> None: ...

    def holder(self) -> str:
        """For whoever waits: a name for who is inside."""
        ...


class Visit:
    """This process at the gate; called by whoever has the writer's turn.

    Each change of the process inside costs a switch of the processor, and what the next one knew of the pages that
    were changed: where several write all the time, more than half of all. So whoever had to wait stays for
    `stay_seconds`, and the verbs that follow run where they are called, like those of a process that is alone. It
    leaves before that when nothing follows. Whoever could not leave in time (its process was busy with something that
    lets no other thread go on) does not stay again for a while.
    """

    def __init__(self, gate: Gate) -> None:
        self.stays = False
        self._gate = gate
        self._stays_until = 0.0
        self._hurries_until = 0.0

    @property
    def left_seconds(self) -> float:
        return max(0.0, self._stays_until - time.monotonic())

    def try_enter(self) -> bool:
        return self.stays or self._gate.try_enter()

    def enter(self) -> None:
        if not self.try_enter():
            self._gate.enter()
            now = time.monotonic()
            if self._gate.stay_seconds and now >= self._hurries_until:
                self.stays, self._stays_until = True, now + self._gate.stay_seconds

    def leave(self, *, at_once: bool = False) -> None:
        """At once, or if it must not stay."""
        if not self.stays:
            self._gate.leave()
        elif at_once or not self.left_seconds:
            now = time.monotonic()
            if now > self._stays_until + LATE_SECONDS:
                self._hurries_until = now + HURRY_SECONDS
            self.stays = False
            self._gate.leave()


class Writer:
    """`commit` runs a group of jobs inside the gate and settles each; it must not raise, except `Occupied`.

    `ring` gets the rings that it leaves in its jobs once the gate is free for the next process.
    """

    def __init__(
        self,
        name: str,
        gate: Gate,
        commit: Callable[[list[Job[Any]]], None],
        ring: Callable[[list[Ring]], None],
    ) -> None:
        self._gate = gate
        self._visit = Visit(gate)
        self._commit = commit
        self._ring = ring
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._callers: set[Job[Any]] = set()
        self._pace = Pace()
        self._turn = threading.Lock()
        """Held by whoever is at the gate or inside, for this process: the thread, or a lone caller."""
        # Two, since one that was held up on a busy machine says little about the next.
        self._last_seconds = deque([float("inf")], maxlen=2)
        self._groups = 0
        self._is_open = True
        self._is_closing = False
        # A daemon: a gate that is never opened must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, body: Callable[[Any], T], *, patience_seconds: float) -> T:
        job = Job(body)
        has_turn_first = bool(self._callers) or self._pace.is_due()
        if has_turn_first or not self._run_here(job):
            await self._run_in_turn(job, patience_seconds, has_turn_first=has_turn_first)
        return job.outcome

    async def _run_in_turn(self, job: Job[Any], patience_seconds: float, *, has_turn_first: bool) -> None:
        self._callers.add(job)
        try:
            if has_turn_first:
                await asyncio.sleep(0)
                if len(self._callers) == 1 and self._run_here(job):
                    return
            if self._is_closing:
                raise UsageError(CLOSED)
            job.loop = asyncio.get_running_loop()
            self._queue.put(job)
            await job.wait(patience_seconds, self._gate.holder)
        finally:
            self._callers.discard(job)

    async def close(self) -> bool:
        """What is queued is still done. False if another process never opens the gate: then the thread is left
        behind, and what it uses must stay open, or it would one day write into a file of somebody else."""
        self._is_closing = True
        self._queue.put(None)
        await run_to_the_end(self._thread.join, CLOSE_PATIENCE_SECONDS)
        return self.has_ended

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def may_wait(self) -> bool:
        """For `commit`: is this the thread, which holds up no loop?"""
        return threading.get_ident() == self._thread.ident

    def _run_here(self, job: Job[Any]) -> bool:
        if min(self._last_seconds) > QUICK_SECONDS or not self._turn.acquire(blocking=False):
            return False
        try:
            if self._is_closing or not self._visit.try_enter():
                return False
            is_done = self._commit_inside([job])
            self._visit.leave()
        finally:
            self._turn.release()
        if not is_done:
            return False
        if job.rings and not job.has_failed:
            self._ring(job.rings)
        return True

    def _run(self) -> None:
        while self._is_open:
            first = self._next()
            with self._turn:
                if first is None:
                    self._leave_if_staying()
                    return
                jobs = self._serve(first)
            # In this order: whoever is answered may write and ring at once, and rings arrive in the order of commits.
            self._ring_for(jobs)
            _announce(jobs, self._leave_when_idle if self._visit.stays else _stay_away)

    def _next(self) -> Job[Any] | None:
        """None when it is closed. While it stays, others wait: if the loop is busy elsewhere, it is left from here."""
        while self._visit.stays:
            with suppress(queue.Empty):
                return self._queue.get(timeout=self._visit.left_seconds)
            with self._turn:
                self._leave_if_staying()
        return self._queue.get()

    def _leave_when_idle(self, groups: int = -1) -> None:
        """In the loop, after whoever was answered has had a turn: until no verb has followed. What the thread has
        it serves by itself, and then this is called again."""
        if groups == self._groups and not self._callers:
            # Whoever has the turn sees to it.
            if self._turn.acquire(blocking=False):
                self._leave_if_staying()
                self._turn.release()
        elif self._visit.stays and self._queue.empty() and not self._turn.locked():
            asyncio.get_running_loop().call_soon(self._leave_when_idle, self._groups)

    def _leave_if_staying(self) -> None:
        if self._visit.stays:
            self._visit.leave(at_once=True)

    def _serve(self, first: Job[Any]) -> list[Job[Any]]:
        try:
            self._visit.enter()
        except BaseException as error:
            if not first.begin():
                return []
            first.fail(error)
            return [first]
        # Whatever came while we waited at the gate goes along, without what was taken back.
        jobs = [job for job in (first, *self._waiting()) if job.begin()]
        if jobs:
            self._commit_inside(jobs)
        self._visit.leave(at_once=not self._is_open)
        return jobs

    def _commit_inside(self, jobs: list[Job[Any]]) -> bool:
        """Then each has its outcome. False: nothing was done, it would have had to wait."""
        began = time.monotonic()
        try:
            self._commit(jobs)
        except Occupied:
            return False
        except BaseException as error:
            # It must not raise; if it does, its callers are told, and the next is served.
            for job in jobs:
                job.fail(error)
        self._groups += 1
        self._last_seconds.append(time.monotonic() - began)
        return True

    def _ring_for(self, jobs: list[Job[Any]]) -> None:
        rings = list(dict.fromkeys(ring for job in jobs for ring in job.rings if not job.has_failed))
        if rings:
            self._ring(rings)

    def _waiting(self) -> list[Job[Any]]:
        jobs: list[Job[Any]] = []
        while len(jobs) < MAX_GROUP:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._is_open = False
                break
            jobs.append(job)
        return jobs


async def run_to_the_end(function: Callable[..., None], *args: Any) -> None:
    """In a thread. Who is cancelled meanwhile waits all the same: what the thread uses can be closed only then."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        await asyncio.wait({running})
    finally:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
    running.result()


def _announce(jobs: list[Job[Any]], afterwards: Callable[[], None]) -> None:
    """One wake-up for each loop, not for each job. `afterwards` is called there when they have been told."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in jobs:
        assert job.loop is not None
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, done, afterwards)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            continue


def _settle(jobs: list[Job[Any]], afterwards: Callable[[], None]) -> None:
    for job in jobs:
        job.settle()
    afterwards()


def _stay_away() -> None:
    """It has left the gate."""
