"""The lease of this process: over in time however the store behaves, and confirmed before anybody acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bullpen.clock import Clock, FakeClock, SystemClock
from bullpen.domain.member import Worker
from bullpen.errors import LeaseLost, StoreUnavailable
from bullpen.stores.sqlite import SqliteStore
from bullpen.worker import host as module
from bullpen.worker.host import Host

BOUND_SECONDS = 30.0
LEASE = 15.0


class Awkward(SqliteStore):
    """A store that can be slow to renew, and whose workers' lives can be out of sight, as across a network."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(f"sqlite:///{path}", path, clock)
        self.answers = asyncio.Event()
        self.answers.set()
        self.renewing = asyncio.Event()
        self.is_seen = True
        self.renewal_takes_seconds = 0.0

    async def renew_worker(self, worker_id: int) -> Worker:
        self.renewing.set()
        await self.answers.wait()
        if isinstance(self.clock, FakeClock):
            self.clock.advance(self.renewal_takes_seconds)
        return await super().renew_worker(worker_id)

    def proves_life(self, worker_id: int) -> bool:
        return self.is_seen and super().proves_life(worker_id)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Awkward]:
    async with Awkward(tmp_path / "test.db", clock) as opened:
        yield opened


async def test_a_renewal_that_hangs_does_not_outlive_the_lease(tmp_path: Path) -> None:
    async with Awkward(tmp_path / "test.db", SystemClock()) as store, Host(store, 0.6) as host:
        store.answers.clear()
        async with asyncio.timeout(BOUND_SECONDS):
            await store.renewing.wait()
            await host.lost.wait()
        with pytest.raises(LeaseLost):
            await host.confirm()


async def test_who_has_a_fresh_lease_acts_without_asking(store: Awkward) -> None:
    async with Host(store, LEASE) as host:
        store.answers.clear()
        await host.confirm()
        assert not store.renewing.is_set()


async def test_who_was_frozen_renews_before_it_acts(store: Awkward, clock: FakeClock) -> None:
    async with Host(store, LEASE) as host:
        store.answers.clear()
        clock.advance(LEASE * 2)
        acting = asyncio.create_task(host.confirm())
        async with asyncio.timeout(BOUND_SECONDS):
            await store.renewing.wait()
            assert not acting.done()
            store.answers.set()
            await acting


async def test_who_was_taken_for_dead_while_frozen_does_not_act(store: Awkward, clock: FakeClock) -> None:
    async with Host(store, LEASE) as host:
        clock.advance(LEASE * 2)
        await store.lapse_worker(host.worker.id, renewals_seen=None)
        async with asyncio.timeout(BOUND_SECONDS):
            with pytest.raises(LeaseLost):
                await host.confirm()


async def test_who_cannot_be_seen_alive_waits_until_it_can_and_has_renewed(store: Awkward) -> None:
    async with Host(store, LEASE) as host:
        store.is_seen = False
        acting = asyncio.create_task(host.confirm())
        async with asyncio.timeout(BOUND_SECONDS):
            await store.renewing.wait()
            assert not acting.done()
            store.is_seen = True
            await acting
        assert (await store.list_workers())[0].renewals > 0


async def test_what_one_renewal_takes_is_not_added_to_the_time_until_the_next(store: Awkward) -> None:
    interval = BOUND_SECONDS * 10
    store.renewal_takes_seconds = interval
    renewed: asyncio.Queue[StoreUnavailable | None] = asyncio.Queue()
    async with Host(store, interval * module.RENEWALS, on_renewal=renewed.put_nowait) as host:
        store.is_seen = False
        confirming = asyncio.create_task(host.confirm())
        async with asyncio.timeout(BOUND_SECONDS):
            await renewed.get()
            store.is_seen = True
            await confirming
            # The next one was due by now, and nobody has to ask for it.
            await renewed.get()
        assert not host.lost.is_set()


async def test_a_renewal_that_is_late_is_heard_of_before_it_fails(
    store: Awkward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_SECONDS", 0.01)
    heard: asyncio.Queue[StoreUnavailable | None] = asyncio.Queue()
    async with Host(store, LEASE, on_renewal=heard.put_nowait) as host, asyncio.timeout(BOUND_SECONDS):
        store.answers.clear()
        store.is_seen = False
        confirming = asyncio.create_task(host.confirm())
        assert str(await heard.get()) == "it has not answered for 0.01 s"
        store.answers.set()
        assert await heard.get() is None
        store.is_seen = True
        await confirming
