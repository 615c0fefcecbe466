"""What became of a transaction whose COMMIT was under way when its connection was lost.

The server remembers it by the transaction's id. While it is still in progress there
(its session has not noticed that the client is gone) it is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum

import psycopg

from bullpen.errors import BullpenError
from bullpen.stores.postgresql.wire import Lost, Wire

_PAUSE_SECONDS = 0.05


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_PROGRESS = "in progress"
    UNKNOWN = "unknown"


async def fate_of(transaction_id: str, connect: Callable[[], Awaitable[Wire]], *, patience_seconds: float) -> Fate:
    """COMMITTED, ABORTED, or UNKNOWN if the server does not come back or does not know."""
    give_up_at = time.monotonic() + patience_seconds
    while time.monotonic() < give_up_at:
        try:
            fate = await _ask(transaction_id, connect)
        except (BullpenError, Lost):
            fate = Fate.IN_PROGRESS
        except psycopg.Error:
            # Another server has taken over, for which this id lies in the future.
            return Fate.UNKNOWN
        if fate is not Fate.IN_PROGRESS:
            return fate
        await asyncio.sleep(_PAUSE_SECONDS)
    return Fate.UNKNOWN


async def _ask(transaction_id: str, connect: Callable[[], Awaitable[Wire]]) -> Fate:
    # A connection of its own: those of the pool may all be held by verbs that ask the same.
    wire = await connect()
    try:
        [(status,)] = await wire.ask("SELECT pg_xact_status(:id::xid8)", id=transaction_id)
    finally:
        wire.close()
    return Fate.UNKNOWN if status is None else Fate(status)
