"""Room that is promised while workers are on their way: without it, a team that nobody hosts yet would be over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bullpen.domain.member import LEAD
from bullpen.domain.standing import Verdict, judge
from bullpen.runners.ray.line import Line
from bullpen.runners.ray.runner import RayCrew, RayRunner
from bullpen.team.service import make_house
from tests.support.stores import create_team, opened

BOUND_SECONDS = 60


class Orders(Line):
    """What the driver is told; it starts nobody."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def say(self, **order: Any) -> None:
        self.given.put_nowait(order)


async def test_room_is_promised_until_the_only_worker_there_may_be_is_there(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/bullpen.db") as store:
        team, user = await create_team(store)
        await store.want_member(user, LEAD)
        await store.send(user, LEAD, "Begin.")
        orders = Orders()
        house = make_house(store, workspace=tmp_path)
        crew = RayCrew(RayRunner(max_workers=1), team, house, orders, lease_seconds=60)
        await crew.promise_room(True)
        keeping = asyncio.create_task(crew.keep())
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                order = await orders.given.get()
            assert order["do"] == "start"
            assert judge(await store.get_snapshot(team.id)).verdict is Verdict.MOVES
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
