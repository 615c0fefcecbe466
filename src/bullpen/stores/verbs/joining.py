"""A member gets a host: a worker takes in one that is wanted, or somebody's own agent joins."""

from __future__ import annotations

from collections.abc import Sequence

from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberKind, MemberStatus, Worker
from bullpen.domain.record import replace
from bullpen.errors import Conflict
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.hosting import unhost
from bullpen.stores.verbs.workers import living_worker


async def take_in_wanted(
    tx: Transaction, worker_id: int, team_id: int | None, except_teams: Sequence[int], limit: int
) -> list[Member]:
    # Locked: two who host for the same worker do not both count its free slots.
    worker = await living_worker(tx, worker_id)
    if not worker.slots or team_id in except_teams:
        return []
    free = worker.slots - await tx.count_hosted(worker_id)
    wanted = await tx.list_wanted(
        team_id,
        except_teams=except_teams,
        leads_only=free <= 0,
        labels=worker.labels,
        limit=limit if free <= 0 else min(limit, free),
    )
    return [await _take_in(tx, worker, member) for member in wanted]


async def _take_in(tx: Transaction, worker: Worker, member: Member) -> Member:
    """`member` is locked."""
    hosted = replace(
        member,
        incarnation=member.incarnation + 1,
        worker_id=worker.id,
        status=MemberStatus.WORKING,
        status_reason="",
        status_at=tx.now,
    )
    await tx.update(hosted)
    # Nothing is asked here: while a crowd is taken in, the worker's row is held, and its renewal waits for that.
    await tx.clear_reservation(member.team_id, member.key)
    tx.record(
        member.team_id,
        EventKind.MEMBER_HOSTED,
        member.name,
        member=member.name,
        worker=worker.id,
        host=worker.host,
        incarnation=hosted.incarnation,
    )
    return hosted


async def join_again(tx: Transaction, member: Member, worker_id: int, role: str | None) -> Member:
    if member.kind is not MemberKind.EXTERNAL:
        raise Conflict(f"{member.name} is a {member.kind} of this team: join under another name")
    if member.worker_id is not None:
        host = await tx.find(Worker, member.worker_id)
        if host is not None and host.stopped_at is None and not host.is_lost:
            where = f"by worker {host.id} on {host.host} (pid {host.pid})"
            raise Conflict(
                f"{member.name} is in the team already, {where}: leave there first, or wait until its lease is over"
            )
        [member] = await unhost(tx, [member], why="it joined again", reserve=lambda one: False)
    joined = replace(
        member,
        role=role if role is not None else member.role,
        incarnation=member.incarnation + 1,
        worker_id=worker_id,
        status=MemberStatus.WORKING,
        status_reason="",
        status_at=tx.now,
        shutdown_request_id=None,
    )
    await tx.update(joined)
    return joined
