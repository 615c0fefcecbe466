"""This process in the store: registered as a worker, renewed in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from bullpen.errors import BullpenError, LeaseLost, StoreUnavailable
from bullpen.store import Store

LEASE_SECONDS = 15.0


class Host:
    """While entered, the lease is renewed. `lost` is set when it is over: because the store said so, or because no
    renewal got through in time and others may take its members any moment."""

    def __init__(
        self, store: Store, lease_seconds: float = LEASE_SECONDS, *, slots: int = 0, labels: Sequence[str] = ()
    ) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._slots = slots
        self._labels = labels
        self.lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.worker = await self._store.register_worker(
            slots=self._slots, labels=self._labels, lease_seconds=self._lease_seconds
        )
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._renewing.cancel()
        # Not awaited itself: a cancellation of ours must not be taken for its own.
        await asyncio.wait({self._renewing})
        with suppress(BullpenError):
            await self._store.stop_worker(self.worker.id)

    async def _renew(self) -> None:
        clock, interval = self._store.clock, self._lease_seconds / 3
        renewed_at = clock.monotonic()
        while True:
            await asyncio.sleep(interval)
            begun_at = clock.monotonic()
            try:
                await self._store.renew_worker(self.worker.id)
                renewed_at = begun_at
            except LeaseLost:
                self.lost.set()
                return
            except StoreUnavailable:
                # The next one may get through. Before others may judge by time, its members must have stopped.
                if clock.monotonic() - renewed_at > self._lease_seconds - interval:
                    self.lost.set()
