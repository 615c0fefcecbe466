"""This process in the store: registered as a worker, renewed in the background.

Invariant: whoever acts for a member asks `confirm` just before, and what runs is ended when `lost` is set. So nothing
begins here after others may have taken the members over, as far as this process can know:

- after `lease - margin` without a renewal it is `lost`, however long a renewal that is under way hangs;
- who was frozen or suspended that long, or has lost the connection that proves its life, renews before it acts;
- a command carries the moment until which it may begin: its keeper, which nobody froze, looks at the clock last;
- a request to a model asks once more when it is ready to be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from bullpen.errors import BullpenError, LeaseLost, StoreUnavailable
from bullpen.store import Store

LEASE_SECONDS = 15.0
# Parts of a lease: so often it is renewed, and so early what runs here is ended if that fails.
RENEWALS = 3
MARGIN = 1 / 3
RETRY_SECONDS = 0.5
# A renewal that takes longer is talked about: a store that is away may not say so for as long as a lease.
LATE_SECONDS = 2.5
# Who slept past its deadline by more was stopped itself: it may renew once more before it gives up.
OVERSLEPT_SECONDS = 0.5


class Host:
    """While entered, the lease is renewed. `lost` is set when it is over: because the store said so, or because no
    renewal got through in time and others may take its members any moment. `on_renewal` hears of each renewal: None if
    it got through, else what is wrong."""

    def __init__(
        self,
        store: Store,
        lease_seconds: float = LEASE_SECONDS,
        *,
        slots: int = 0,
        labels: Sequence[str] = (),
        on_renewal: Callable[[StoreUnavailable | None], None] = lambda error: None,
    ) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._slots = slots
        self._labels = labels
        self._on_renewal = on_renewal
        self._hurry = asyncio.Event()
        self._renewed = asyncio.Event()
        self._renewed_at = 0.0
        self.lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._renewed_at = self._store.clock.monotonic()
        self.worker = await self._store.register_worker(
            slots=self._slots, labels=self._labels, lease_seconds=self._lease_seconds
        )
        self._tasks = {asyncio.create_task(self._renew()), asyncio.create_task(self._watch())}
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            # Not awaited themselves: a cancellation of ours must not be taken for theirs.
            await asyncio.wait(self._tasks)
        finally:
            # Cancelled, too: as long as the store is open, others see that it lives, and wait for its lease.
            with suppress(BullpenError):
                await self._store.stop_worker(self.worker.id)

    async def confirm(self) -> float:
        """Returns when this process may act for its members, and for how many seconds from then on: at once, as a rule.
        LeaseLost when it may not any more."""
        while not self.lost.is_set():
            left = self._left_seconds
            if left > 0 and self._store.proves_life(self.worker.id):
                return left
            self._renewed.clear()
            self._hurry.set()
            await self._until_renewed_or_lost()
        raise LeaseLost(f"worker {self.worker.id} could not renew its lease in time: its members stop here")

    @property
    def _left_seconds(self) -> float:
        passed = self._store.clock.monotonic() - self._renewed_at
        return self._lease_seconds * (1 - MARGIN) - passed

    async def _until_renewed_or_lost(self) -> None:
        waits = {asyncio.create_task(self._renewed.wait()), asyncio.create_task(self.lost.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._renewed.is_set() and not self._store.proves_life(self.worker.id):
                # Others look for the connection; it is opened again in the background.
                await asyncio.sleep(RETRY_SECONDS / 10)
        finally:
            for wait in waits:
                wait.cancel()

    async def _renew(self) -> None:
        interval = self._lease_seconds / RENEWALS
        pause = interval
        while True:
            await self._sleep(pause)
            begun_at = self._store.clock.monotonic()
            try:
                with self._noticed_if_late():
                    await self._store.renew_worker(self.worker.id)
            except LeaseLost:
                self.lost.set()
                return
            except StoreUnavailable as error:
                # The next one may get through.
                self._on_renewal(error)
                pause = min(RETRY_SECONDS, interval)
                continue
            # From begin to begin: in a process that is busy with hundreds of members one renewal may take seconds.
            self._renewed_at, pause = begun_at, max(0.0, begun_at + interval - self._store.clock.monotonic())
            self._renewed.set()
            self._on_renewal(None)

    @contextmanager
    def _noticed_if_late(self) -> Iterator[None]:
        late = StoreUnavailable(f"it has not answered for {LATE_SECONDS:g} s")
        noticing = asyncio.get_running_loop().call_later(LATE_SECONDS, self._on_renewal, late)
        try:
            yield
        finally:
            noticing.cancel()

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        self._hurry.clear()

    async def _watch(self) -> None:
        """Before others may judge by time, its members must have stopped."""
        while await self._is_in_time():
            pass
        self.lost.set()

    async def _is_in_time(self) -> bool:
        await asyncio.sleep(max(0.0, self._left_seconds))
        if self._left_seconds < -OVERSLEPT_SECONDS:
            self._hurry.set()
            await asyncio.sleep(min(OVERSLEPT_SECONDS, self._lease_seconds * MARGIN))
        return self._left_seconds > 0
