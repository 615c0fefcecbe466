"""Which processes run a team, and which would."""

from __future__ import annotations

from dataclasses import dataclass

from bullpen.domain.member import Liveness, Member, MemberKind, Team, Worker
from bullpen.errors import Conflict
from bullpen.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """`hosting`: living workers with its lead or teammates. `willing`: other living ones that would take them."""

    team: Team
    hosting: tuple[Worker, ...]
    willing: tuple[Worker, ...]


async def find_hosts(store: Store, team: Team) -> Hosts:
    members = await store.list_members(team.id)
    ids = {member.worker_id for member in members if _is_hosted(member)}
    concerned = [worker for worker in await store.list_workers() if worker.id in ids or worker.may_host(team.id)]
    living = [worker for worker in concerned if await store.probe_worker(worker) is not Liveness.DEAD]
    return Hosts(
        team=team,
        hosting=tuple(worker for worker in living if worker.id in ids),
        willing=tuple(worker for worker in living if worker.id not in ids),
    )


def _is_hosted(member: Member) -> bool:
    return member.worker_id is not None and member.kind in (MemberKind.LEAD, MemberKind.TEAMMATE)


async def check_at_rest(store: Store, team: Team) -> None:
    """Conflict while another process runs it; says how to take part."""
    hosts = (await find_hosts(store, team)).hosting
    if hosts:
        raise Conflict(
            f"team {team.name!r} is at work (worker {hosts[0].id} on {hosts[0].host}, pid {hosts[0].pid}): "
            f"`bullpen chat --team {team.name}` talks with it, `bullpen watch {team.name}` looks on"
        )
