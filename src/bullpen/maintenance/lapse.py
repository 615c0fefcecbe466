"""Declaring workers dead: by proof at once, else by watching their renewals stand still.

No clock of another process is ever read. A worker counts its renewals in the
store; an observer lapses it only after it has itself watched that count stand
still for a whole lease, without a gap in its own watching. So neither a jump of a
wall clock, nor a suspended machine, nor a slow start can kill one who lives:

- the observer's own monotonic clock measures, and it does not jump;
- after a suspend the observer notices the gap and begins to watch anew, which
  gives every worker one lease to renew;
- a lease that is shorter than such a gap takes several looks: one that comes late,
  because the observer stood still itself, has not watched for as long as it seems;
- a fresh observer knows nothing and waits a lease before it judges by time.

A proof (the worker's lock is free although it never said goodbye) needs no watching.

Not everyone need look all the time: the first few workers in good standing are on guard, whoever else looks now and
then knows when it has become one of them. So what a thousand workers ask for each other's sake is what three ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bullpen.domain.member import Liveness, Member, Worker
from bullpen.store import Store

# More than this between two looks: we were stopped ourselves and have seen nothing.
MAX_GAP_SECONDS = 5.0
# What has passed between two looks counts for no more than this part of a lease.
MAX_PART = 1 / 3
GUARDS = 3


@dataclass(frozen=True, slots=True)
class _Sighting:
    renewals: int
    still_seconds: float
    """For how long it has been seen to stand still."""


class LapseWatch:
    def __init__(self, store: Store, *, max_gap_seconds: float = MAX_GAP_SECONDS) -> None:
        self._store = store
        self._max_gap_seconds = max_gap_seconds
        self._sightings: dict[int, _Sighting] = {}
        self._looked_at: float | None = None
        self.guards = 1
        """How many are on guard, as far as the last look could tell."""
        self.is_on_guard = True
        self.has_suspicion = False
        """Somebody who was alive cannot be seen any more: soon it is back, or proved dead."""
        self._seen_alive: set[int] = set()

    async def look(self) -> list[Member]:
        """One look at all workers; returns the members that lost their host by it."""
        workers = await self._store.list_workers()
        now = self._store.clock.monotonic()
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        if passed > self._max_gap_seconds:
            self._sightings.clear()
        lapsed: list[Member] = []
        standing: list[Worker] = []
        liveness_of = dict(zip(workers, await self._store.probe_workers(workers), strict=True))
        self._suspect(liveness_of)
        for worker, liveness in liveness_of.items():
            if liveness is Liveness.DEAD:
                lapsed += await self._store.lapse_worker(worker.id, renewals_seen=None)
                continue
            still_seconds = self._watch(worker, passed)
            if still_seconds >= worker.lease_seconds:
                lapsed += await self._store.lapse_worker(worker.id, renewals_seen=worker.renewals)
            elif still_seconds < worker.lease_seconds / 2:
                standing.append(worker)
        self._sightings = {worker.id: self._sightings[worker.id] for worker in workers if worker.id in self._sightings}
        self._share_the_guard(standing)
        return lapsed

    def _suspect(self, liveness_of: Mapping[Worker, Liveness]) -> None:
        alive = {worker.id for worker, liveness in liveness_of.items() if liveness is Liveness.ALIVE}
        unknown = {worker.id for worker, liveness in liveness_of.items() if liveness is Liveness.UNKNOWN}
        self.has_suspicion = bool(unknown & self._seen_alive)
        self._seen_alive = alive | (unknown & self._seen_alive)

    def _watch(self, worker: Worker, passed: float) -> float:
        """For how long its count has been seen to stand still."""
        sighting = self._sightings.get(worker.id)
        if sighting is None or sighting.renewals != worker.renewals:
            still_seconds = 0.0
        else:
            still_seconds = sighting.still_seconds + min(passed, worker.lease_seconds * MAX_PART)
        self._sightings[worker.id] = _Sighting(worker.renewals, still_seconds)
        return still_seconds

    def _share_the_guard(self, standing: list[Worker]) -> None:
        """Oldest first. Who has no worker of its own here is nobody whom others count on, and looks for itself."""
        self.guards = max(1, min(GUARDS, len(standing)))
        ours = [place for place, worker in enumerate(standing) if self._store.proves_life(worker.id)]
        self.is_on_guard = not ours or ours[0] < GUARDS
