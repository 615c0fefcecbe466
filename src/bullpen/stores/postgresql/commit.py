"""What became of a transaction whose COMMIT was under way when its connection was lost.

The server is asked until that transaction is over there: its session may not have
noticed yet that the client is gone. Then its events tell: they are there, or nothing
of it is. Its id alone would not do. A server that crashed forgets ids that it had not
written down and gives them out again, so what it says of one may be said of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum

import psycopg

from bullpen.errors import BullpenError
from bullpen.stores.postgresql.wire import Lost, Statement, Wire

_PAUSE_SECONDS = 0.05


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_PROGRESS = "in progress"
    UNKNOWN = "unknown"


async def fate_of(
    transaction_id: str,
    trace: Statement | None,
    connect: Callable[[], Awaitable[Wire]],
    *,
    patience_seconds: float,
) -> Fate:
    """COMMITTED, ABORTED, or UNKNOWN if the server does not come back or does not know. `trace` finds a row that the
    transaction wrote, if it wrote one that no other can have written."""
    give_up_at = time.monotonic() + patience_seconds
    while time.monotonic() < give_up_at:
        with suppress(BullpenError, Lost):
            fate = await _ask(transaction_id, trace, connect)
            if fate is not Fate.IN_PROGRESS:
                return fate
        await asyncio.sleep(_PAUSE_SECONDS)
    return Fate.UNKNOWN


async def _ask(transaction_id: str, trace: Statement | None, connect: Callable[[], Awaitable[Wire]]) -> Fate:
    # A connection of its own: those of the pool may all be held by verbs that ask the same.
    wire = await connect()
    try:
        fate = await _status(wire, transaction_id)
        if trace is None or fate is Fate.IN_PROGRESS:
            return fate
        return Fate.COMMITTED if (await wire.run([trace]))[0].rows else Fate.ABORTED
    finally:
        wire.close()


async def _status(wire: Wire, transaction_id: str) -> Fate:
    try:
        [(status,)] = await wire.ask("SELECT pg_xact_status(:id::xid8)", id=transaction_id)
    except psycopg.errors.InvalidParameterValue:
        # An id of the future: it was never written down, and what it stood for neither.
        return Fate.ABORTED
    return Fate.UNKNOWN if status is None else Fate(status)
