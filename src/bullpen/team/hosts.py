"""Which processes run a team, and which would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bullpen.domain.event import EventKind
from bullpen.domain.member import Liveness, MemberKind, MemberStatus, Team, Worker
from bullpen.domain.standing import Standing, Verdict
from bullpen.errors import Conflict
from bullpen.maintenance.lapse import LapseWatch
from bullpen.maintenance.standing import StandingWatch
from bullpen.store import Store

LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """`hosting`: living workers with its lead or teammates. `willing`: other living ones that would take them.
    `has_wanted`: one of them is to be taken, or was with a worker that is dead, and will be."""

    team: Team
    hosting: tuple[Worker, ...]
    willing: tuple[Worker, ...]
    has_wanted: bool


async def find_hosts(store: Store, team: Team) -> Hosts:
    members = [member for member in await store.list_members(team.id) if member.kind in _HOSTED]
    ids = {member.worker_id for member in members if member.worker_id is not None}
    concerned = [worker for worker in await store.list_workers() if worker.id in ids or worker.may_host(team.id)]
    living = [worker for worker in concerned if await store.probe_worker(worker) is not Liveness.DEAD]
    is_wanted = any(member.status is MemberStatus.WANTED for member in members)
    return Hosts(
        team=team,
        hosting=tuple(worker for worker in living if worker.id in ids),
        willing=tuple(worker for worker in living if worker.id not in ids),
        has_wanted=is_wanted or not ids <= {worker.id for worker in living},
    )


_HOSTED = (MemberKind.LEAD, MemberKind.TEAMMATE)


async def find_rest(store: Store, hosts: Hosts) -> Standing | None:
    """How a team stands that is hosted by workers alone, once nothing moves: its lead stays there, but nobody runs it
    who would end it. None while something moves, or somebody runs it."""
    if not hosts.hosting or any(worker.is_of_run for worker in hosts.hosting):
        return None
    standing = await StandingWatch(store, hosts.team.id).peek()
    return None if standing.verdict is Verdict.MOVES else standing


async def is_at_work(store: Store, team: Team) -> bool:
    """Does another process run it, or do workers that have something to do?"""
    hosts = await find_hosts(store, team)
    return bool(hosts.hosting) and await find_rest(store, hosts) is None


async def check_at_rest(store: Store, team: Team) -> None:
    """Conflict while it is at work; says how to take part."""
    if await is_at_work(store, team):
        hosts = (await find_hosts(store, team)).hosting
        raise Conflict(
            f"team {team.name!r} is at work (worker {hosts[0].id} on {hosts[0].host}, pid {hosts[0].pid}): "
            f"`bullpen chat --team {team.name}` talks with it, `bullpen watch {team.name}` looks on"
        )


async def outwait_silent(store: Store, team: Team, say: Callable[[str], None]) -> None:
    """Workers of another machine, or of a database before it was restored, of which nothing tells whether they live:
    watched for as long as their lease. If they stay silent they are declared dead, and the team is at rest."""
    hosts = (await find_hosts(store, team)).hosting
    liveness = [await store.probe_worker(worker) for worker in hosts]
    if Liveness.UNKNOWN not in liveness or Liveness.ALIVE in liveness:
        return
    seen = {worker.id: worker.renewals for worker in hosts}
    longest = max(worker.lease_seconds for worker in hosts)
    say(f"worker {hosts[0].id} on {hosts[0].host} is silent: its lease of {longest:g} seconds is waited for")
    watch = LapseWatch(store)
    while hosts and all(seen.get(worker.id) == worker.renewals for worker in hosts):
        await watch.look()
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        hosts = (await find_hosts(store, team)).hosting


async def find_successor(store: Store, team_id: int) -> Team | None:
    """The team in which its lead has gone on, for those who do not host the lead themselves."""
    for team in await store.list_teams():
        if team.id > team_id:
            [first] = await store.list_events(team.id, limit=1)
            if first.kind == EventKind.TEAM_CREATED and first.data.get("predecessor") == team_id:
                return team
    return None
