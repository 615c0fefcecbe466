"""Leaving a team: a member that nobody plays any more keeps neither its name nor its task.

Its process goes on renewing its lease, so nobody else would ever take them back. Who is cancelled as it leaves has
left all the same; and where the store is away just then, it leaves once that is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Self

from bullpen.domain.text import name_key
from bullpen.errors import BullpenError, StoreUnavailable
from bullpen.stores.ending import to_the_end
from bullpen.team.session import Session
from bullpen.tools.patience import insist

Leaving = Callable[[], Awaitable[None]]


class Departures:
    """While entered, who could not leave is tried again; later its worker leaves, and all its members with it."""

    def __init__(self) -> None:
        self._late: dict[str, Leaving] = {}
        self._trying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for trying in self._trying:
            trying.cancel()
        if self._trying:
            await asyncio.wait(self._trying)

    async def leave(self, session: Session, *, is_clean: bool) -> None:
        await to_the_end(self._leave_soon(name_key(session.name), partial(session.leave, is_clean=is_clean)))

    async def catch_up(self, name: str) -> None:
        """Whoever had this name leaves now; StoreUnavailable while that still cannot be."""
        leaving = self._late.get(name_key(name))
        if leaving is not None:
            await leaving()

    async def _leave_soon(self, key: str, leaving: Leaving) -> None:
        """Now, or as soon as it can. Who is cancelled meanwhile never learns that the store was away."""
        try:
            await leaving()
        except StoreUnavailable:
            self._leave_late(key, leaving)
            raise

    def _leave_late(self, key: str, leaving: Leaving) -> None:
        self._late[key] = leaving
        trying = asyncio.create_task(self._try(key, leaving))
        self._trying.add(trying)
        trying.add_done_callback(self._trying.discard)

    async def _try(self, key: str, leaving: Leaving) -> None:
        # What else it may be told, it has left by that: its team or its store is no more.
        with suppress(BullpenError):
            await insist(leaving)
        if self._late.get(key) is leaving:
            del self._late[key]
