"""Verbs about the log."""

from __future__ import annotations

from bullpen.domain.event import Event
from bullpen.store import BEGINNING
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.verb import read


class EventVerbs:
    @read
    async def list_events(tx: Transaction, team_id: int, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        return await tx.list_events(team_id, after, limit)

    @read
    async def last_position(tx: Transaction, team_id: int) -> str:
        return await tx.last_position(team_id)
