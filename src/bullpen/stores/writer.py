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
from typing import Any, TypeVar

from bullpen.errors import UsageError
from bullpen.stores.ending import run_to_the_end
from bullpen.stores.forks import let_go_in_children
from bullpen.stores.gate import Gate, Visit
from bullpen.stores.job import Job
from bullpen.stores.pace import Pace
from bullpen.stores.transaction import Ring

T = TypeVar("T")

MAX_GROUP = 256
CLOSE_PATIENCE_SECONDS = 5.0
CLOSED = "this store has been closed: open it again"
QUICK_SECONDS = 0.002
"""What a loop may stand still for; after two commits in a row that took longer, the next one is the thread's."""


class Occupied(Exception):
    """Raised by `commit` where a verb was called, if a program that knows no gate is in the way: nothing was done.

    The thread commits the job then. It may wait; the loop would stand still.
    """


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
        let_go_in_children(self)
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

    def let_go(self) -> None:
        """The thread is the parent's: in a child, who waited for it would wait for nobody."""
        self._is_closing = True

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
