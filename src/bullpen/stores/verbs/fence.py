"""Who writes: the check that opens every verb of a member."""

from __future__ import annotations

from bullpen.domain.member import Member, MemberKind, MemberRef, MemberStatus, Team
from bullpen.errors import LeaseLost, NotAllowed, NotFound, TeamDeleted
from bullpen.stores.transaction import Lock, Transaction


async def fenced(
    tx: Transaction, by: MemberRef, *, lock: Lock = Lock.SHARE, team_must_live: bool = True
) -> tuple[Team, Member]:
    """The writer and its team, held until the transaction ends; LeaseLost for an old incarnation."""
    found = await tx.fence(by, lock)
    if found is None:
        raise NotFound(f"there is no member {by.name!r} in team {by.team_id}")
    team, member = found
    if member.incarnation != by.incarnation:
        raise LeaseLost(
            f"{member.name}@{team.name} is now incarnation {member.incarnation}, "
            f"{by.incarnation} is over: stop, nothing was written"
        )
    if member.worker_id is None and member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL):
        state = "has shut down" if member.status is MemberStatus.SHUTDOWN else "waits for a worker to host it"
        raise LeaseLost(f"{member.name}@{team.name} {state} ({member.status_reason}): nothing was written")
    if team_must_live and team.deleted_at is not None:
        raise TeamDeleted(f"team {team.name!r} has been deleted; its board and mail can still be read")
    return team, member


async def fenced_lead(tx: Transaction, by: MemberRef, *, what: str) -> tuple[Team, Member]:
    team, member = await fenced(tx, by)
    if not member.leads:
        raise NotAllowed(f"only the lead may {what}; {member.name} is a {member.kind}")
    return team, member


async def hold_team(tx: Transaction, by: MemberRef) -> None:
    """Before its member, in the order of locks: for who changes the team itself, or meets others who do the same."""
    tx.foresee(lambda: tx.fence(by, Lock.SHARE))
    await tx.find(Team, by.team_id, lock=Lock.UPDATE)


async def get_live_team(tx: Transaction, team_id: int, *, lock: Lock = Lock.NONE) -> Team:
    team = await tx.find(Team, team_id, lock=lock)
    if team is None:
        raise NotFound(f"there is no team with id {team_id}")
    if team.deleted_at is not None:
        raise TeamDeleted(f"team {team.name!r} has been deleted; its board and mail can still be read")
    return team
