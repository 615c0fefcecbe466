"""Verbs about the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.event import OBSERVED, Event, EventKind
from bullpen.domain.member import MemberRef
from bullpen.errors import UsageError
from bullpen.store import BEGINNING
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.verb import read, write


class EventVerbs:
    @write
    async def record_event(
        tx: Transaction, by: MemberRef, kind: EventKind, data: Mapping[str, Any], *, operation_id: str | None = None
    ) -> None:
        if kind not in OBSERVED:
            raise UsageError(f"{kind} is recorded by the verb that makes it true")
        team, member = await fenced(tx, by)
        tx.record(team.id, kind, member.name, **encode(data))

    @read
    async def list_events(tx: Transaction, team_id: int, *, after: str = BEGINNING, limit: int = 1000) -> list[Event]:
        return await tx.list_events(team_id, after, limit)

    @read
    async def last_position(tx: Transaction, team_id: int) -> str:
        return await tx.last_position(team_id)
