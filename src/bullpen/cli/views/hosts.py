"""Who runs a team: every command that only writes a row says so."""

from __future__ import annotations

from bullpen.domain.member import Liveness
from bullpen.team import Team
from bullpen.team.beginning import living_hosts


async def hosts_line(team: Team) -> str:
    hosts = await living_hosts(team.store, team.id)
    if hosts:
        return "hosted by " + ", ".join(f"worker {host.id} on {host.host} (pid {host.pid})" for host in hosts)
    for worker in await team.store.list_workers():
        if worker.slots and await team.store.probe_worker(worker) is not Liveness.DEAD:
            return f"worker {worker.id} on {worker.host} may host it"
    return f"nobody hosts it: `bullpen resume {team.name}` or `bullpen worker` does"
