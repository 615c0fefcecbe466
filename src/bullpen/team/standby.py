"""Hosting a team for as long as nobody else does: several terminals on one team, one of which runs it.

Whoever hosts the lead hosts the team. If two take over in the same moment, each may get some members; the one without
the lead lets go of its own, which the other then takes. Leases and incarnations make that harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from bullpen.domain.member import LEAD
from bullpen.team.hosts import find_hosts

if TYPE_CHECKING:
    from bullpen.team.run import Hosting
    from bullpen.team.team import Team

# Who is killed writes no event: whether it lives is looked at so often.
LOOK_AGAIN_SECONDS = 1.0


async def stand_by(team: Team, hosting: Hosting) -> NoReturn:
    async with team.store.listen_events(team.id) as bell:
        while True:
            bell.clear()
            if not (await find_hosts(team.store, team.record)).hosting:
                async with hosting.worker(team) as worker:
                    while not await _is_led_elsewhere(team, worker.id):
                        await bell.wait(LOOK_AGAIN_SECONDS)
                        bell.clear()
            await bell.wait(LOOK_AGAIN_SECONDS)


async def _is_led_elsewhere(team: Team, worker_id: int) -> bool:
    lead = await team.store.get_member(team.id, LEAD)
    if lead.worker_id in (None, worker_id):
        return False
    return any(host.id == lead.worker_id for host in (await find_hosts(team.store, team.record)).hosting)
