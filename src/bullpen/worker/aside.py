"""Teams that a worker cannot serve, because their directory, script or repository is not on its machine: it leaves them
to others for a while. Kept in memory, for what is missing here today may be there tomorrow.
"""

from __future__ import annotations

from collections.abc import Collection

from bullpen.clock import Clock
from bullpen.domain.member import Liveness
from bullpen.domain.member import Worker as WorkerRecord
from bullpen.store import Store


class Aside:
    """Each team until a moment of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}

    def put(self, team_id: int, seconds: float) -> None:
        self._until[team_id] = self._clock.monotonic() + seconds

    @property
    def team_ids(self) -> tuple[int, ...]:
        """Those whose time is not over."""
        now = self._clock.monotonic()
        self._until = {team_id: until for team_id, until in self._until.items() if until > now}
        return tuple(self._until)

    @property
    def seconds_left(self) -> float | None:
        """Until the first of them may be looked at again; None if there is none."""
        if not self._until:
            return None
        return max(0.0, min(self._until.values()) - self._clock.monotonic())


async def list_others(store: Store, worker_id: int, team_id: int, labels: Collection[str] = ()) -> list[WorkerRecord]:
    """Who else lives and takes members of this team who want these labels, whether or not a slot is free just now."""
    others = [
        worker
        for worker in await store.list_workers()
        if worker.id != worker_id and not worker.is_promise and worker.may_host(team_id, labels)
    ]
    lives = await store.probe_workers(others)
    return [worker for worker, life in zip(others, lives, strict=True) if life is not Liveness.DEAD]
