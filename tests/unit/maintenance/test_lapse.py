"""Who is declared dead, and who never is: with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.member import Liveness, MemberRef, MemberStatus, Worker
from bullpen.errors import LeaseLost
from bullpen.maintenance import LapseWatch, Maintenance
from bullpen.maintenance.lapse import GUARDS
from bullpen.stores import open_store
from bullpen.stores.sqlite import SqliteStore

LEASE = 15.0


class Observed(SqliteStore):
    """A store whose workers cannot be proved dead, as on another machine: only time tells."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        super().__init__(f"sqlite:///{path}", path, clock)

    async def probe_worker(self, worker: Worker) -> Liveness:
        return Liveness.UNKNOWN


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Observed]:
    async with Observed(tmp_path / "test.db", clock) as opened:
        yield opened


async def join(store: SqliteStore, name: str = "ana", *, lease_seconds: float = LEASE) -> tuple[Worker, MemberRef]:
    team = await store.find_team("t") or await store.create_team("t")
    worker = await store.register_worker(lease_seconds=lease_seconds)
    member = await store.join_member(worker.id, team.id, name)
    return worker, member.ref


async def watch(watcher: LapseWatch, clock: FakeClock, seconds: float) -> list[str]:
    """Look every second, as a living observer does; returns who lost its host."""
    lapsed: list[str] = []
    for _ in range(int(seconds)):
        clock.advance(1)
        lapsed += [member.name for member in await watcher.look()]
    return lapsed


async def test_a_worker_that_stops_renewing_lapses_after_its_lease(store: Observed, clock: FakeClock) -> None:
    _, ref = await join(store)
    watcher = LapseWatch(store)
    await watcher.look()
    assert await watch(watcher, clock, LEASE - 1) == []
    assert await watch(watcher, clock, 2) == ["ana"]
    with pytest.raises(LeaseLost):
        await store.claim_next_task(ref)


async def test_a_worker_that_renews_never_lapses(store: Observed, clock: FakeClock) -> None:
    worker, ref = await join(store)
    watcher = LapseWatch(store)
    for _ in range(10):
        assert await watch(watcher, clock, LEASE - 2) == []
        await store.renew_worker(worker.id)
    assert await store.claim_next_task(ref) is None


@pytest.mark.parametrize("days", [-400, 400])
async def test_a_jump_of_the_wall_clock_kills_nobody(store: Observed, clock: FakeClock, days: int) -> None:
    worker, ref = await join(store)
    watcher = LapseWatch(store)
    await watcher.look()
    clock.jump(days * 86_400)
    assert await watch(watcher, clock, LEASE - 1) == []
    await store.renew_worker(worker.id)
    assert await watch(watcher, clock, LEASE - 1) == []
    assert await store.claim_next_task(ref) is None


async def test_a_suspended_machine_gives_everyone_one_lease_to_renew(store: Observed, clock: FakeClock) -> None:
    worker, _ = await join(store)
    watcher = LapseWatch(store)
    await watcher.look()
    clock.advance(3600)
    assert await watcher.look() == []
    await store.renew_worker(worker.id)
    assert await watch(watcher, clock, LEASE - 1) == []


async def test_an_observer_that_stood_still_itself_judges_no_short_lease_by_that(
    store: Observed, clock: FakeClock
) -> None:
    worker, ref = await join(store, lease_seconds=2.0)
    watcher = LapseWatch(store)
    for _ in range(3):
        await watcher.look()
        # Its loop was busy, or its machine suspended: the worker could be this very process.
        clock.advance(4)
        assert await watcher.look() == []
        await store.renew_worker(worker.id)
    assert await store.claim_next_task(ref) is None
    assert await watch(watcher, clock, 4) == ["ana"], "it does not renew any more"


async def test_a_fresh_observer_judges_nobody_by_time(store: Observed, clock: FakeClock) -> None:
    await join(store)
    clock.advance(3600)
    assert await LapseWatch(store).look() == []


async def test_a_renewal_between_look_and_verdict_saves_the_worker(store: Observed, clock: FakeClock) -> None:
    worker, ref = await join(store)
    await store.renew_worker(worker.id)
    assert await store.lapse_worker(worker.id, renewals_seen=worker.renewals) == []
    assert await store.claim_next_task(ref) is None


async def test_proof_of_death_needs_no_lease(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with open_store(url) as other:
        assert isinstance(other, SqliteStore)
        worker, ref = await join(other)
        # What the kernel does when a process dies, however it dies.
        await other._drop_life(worker.token)
        async with open_store(url) as store, Maintenance(store):
            member = await store.get_member(ref.team_id, "ana")
            assert member.status is MemberStatus.SHUTDOWN
            assert member.incarnation == ref.incarnation + 1
        other._workers.clear()


async def test_of_many_workers_the_oldest_in_good_standing_are_on_guard(store: Observed, clock: FakeClock) -> None:
    """Whoever else looks now and then is on guard as soon as too few of those are left."""
    others = [await store.register_worker(lease_seconds=LEASE) for _ in range(GUARDS)]
    async with Observed(store._path or Path(), clock) as younger:
        mine = await younger.register_worker(lease_seconds=LEASE)
        watcher, own = LapseWatch(younger), LapseWatch(store)
        await watcher.look()
        await own.look()
        assert (own.is_on_guard, watcher.is_on_guard) == (True, False)
        for _ in range(int(LEASE / 2) + 1):
            clock.advance(1)
            for worker in (*others[1:], mine):
                await store.renew_worker(worker.id)
            await watcher.look()
        assert watcher.is_on_guard, "one of the three has not renewed for half its lease"


async def test_who_has_no_worker_of_its_own_looks_for_itself(store: Observed, clock: FakeClock) -> None:
    for _ in range(GUARDS + 1):
        await store.register_worker(lease_seconds=LEASE)
    async with Observed(store._path or Path(), clock) as observer:
        watcher = LapseWatch(observer)
        await watcher.look()
        assert watcher.is_on_guard


async def test_who_was_alive_and_cannot_be_seen_any_more_is_suspected(tmp_path: Path) -> None:
    class Flickering(SqliteStore):
        seen = Liveness.UNKNOWN

        async def probe_worker(self, worker: Worker) -> Liveness:
            return self.seen

    path = tmp_path / "test.db"
    async with Flickering(f"sqlite:///{path}", path, FakeClock()) as store:
        await store.register_worker(lease_seconds=LEASE)
        watcher = LapseWatch(store)
        for seen, is_suspected in (("UNKNOWN", False), ("ALIVE", False), ("UNKNOWN", True), ("ALIVE", False)):
            store.seen = Liveness[seen]
            await watcher.look()
            assert watcher.has_suspicion == is_suspected
