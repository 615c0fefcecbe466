"""A store that answers late: what it was asked for is written, and who asked does not know it yet."""

from __future__ import annotations

import asyncio
from typing import Any

from bullpen.clock import FakeClock
from bullpen.domain.member import MemberRef
from bullpen.stores.sqlite import SqliteStore
from bullpen.team import Team


class SlowStore(SqliteStore):
    """Answers the first of these verbs when the test says so."""

    def __init__(self, *slow: str) -> None:
        super().__init__("sqlite:///:memory:", None, FakeClock())
        self._slow = slow
        self._written, self._may_answer, self._looked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def attend(self, by: MemberRef) -> Any:
        found = await super().attend(by)
        self._looked.set()
        return found

    async def reserve(self, *args: Any, **known: Any) -> Any:
        return await self._answer("reserve", await super().reserve(*args, **known))

    async def start_background(self, *args: Any, **known: Any) -> Any:
        return await self._answer("start_background", await super().start_background(*args, **known))

    async def start_check(self, *args: Any, **known: Any) -> Any:
        return await self._answer("start_check", await super().start_check(*args, **known))

    async def _answer(self, verb: str, outcome: Any) -> Any:
        if verb in self._slow:
            self._written.set()
            await self._may_answer.wait()
        return outcome

    async def cut_in(self, team: Team) -> None:
        """Interrupt ana after it was written, and before the answer."""
        await self._written.wait()
        self._looked.clear()
        await team.interrupt("ana")
        await self._looked.wait()
        for _ in range(10):
            # So that the cut comes before the answer.
            await asyncio.sleep(0)
        self._may_answer.set()
