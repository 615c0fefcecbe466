"""Declaring workers dead: by proof at once, else by watching their renewals stand still.

No clock of another process is ever read. A worker counts its renewals in the
store; an observer lapses it only after it has itself watched that count stand
still for a whole lease, without a gap in its own watching. So neither a jump of a
wall clock, nor a suspended machine, nor a slow start can kill one who lives:

- the observer's own monotonic clock measures, and it does not jump;
- after a suspend the observer notices the gap and begins to watch anew, which
  gives every worker one lease to renew;
- a fresh observer knows nothing and waits a lease before it judges by time.

A proof (the worker's lock is free although it never said goodbye) needs no watching.
"""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.member import Liveness, Member, Worker
from bullpen.store import Store

# More than this between two looks: we were stopped ourselves and have seen nothing.
MAX_GAP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Sighting:
    renewals: int
    since: float


class LapseWatch:
    def __init__(self, store: Store, *, max_gap_seconds: float = MAX_GAP_SECONDS) -> None:
        self._store = store
        self._max_gap_seconds = max_gap_seconds
        self._sightings: dict[int, _Sighting] = {}
        self._looked_at: float | None = None

    async def look(self) -> list[Member]:
        """One look at all workers; returns the members that lost their host by it."""
        workers = await self._store.list_workers()
        now = self._store.clock.monotonic()
        if self._looked_at is None or now - self._looked_at > self._max_gap_seconds:
            self._sightings.clear()
        self._looked_at = now
        lapsed: list[Member] = []
        for worker in workers:
            lapsed += await self._judge(worker, now)
        self._sightings = {worker.id: self._sightings[worker.id] for worker in workers if worker.id in self._sightings}
        return lapsed

    async def _judge(self, worker: Worker, now: float) -> list[Member]:
        if await self._store.probe_worker(worker) is Liveness.DEAD:
            return await self._store.lapse_worker(worker.id, renewals_seen=None)
        sighting = self._sightings.get(worker.id)
        if sighting is None or sighting.renewals != worker.renewals:
            self._sightings[worker.id] = _Sighting(worker.renewals, now)
            return []
        if now - sighting.since < worker.lease_seconds:
            return []
        return await self._store.lapse_worker(worker.id, renewals_seen=sighting.renewals)
