"""Verbs about workers: life proved by renewals, death declared once."""

from __future__ import annotations

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM, Member, MemberKind, Team, Worker
from bullpen.domain.record import replace
from bullpen.domain.task import Task
from bullpen.errors import LeaseLost, NotFound
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.hosting import LEFT_IN_ORDER, give_back, has_run_out, list_workers_with_room, unhost
from bullpen.stores.verbs.post import tell_lead
from bullpen.stores.verbs.queueing import put_back
from bullpen.stores.verbs.verb import read, write


class WorkerVerbs:
    @write
    async def _enter_worker(tx: Transaction, worker: Worker) -> Worker:
        return await tx.insert(replace(worker, started_at=tx.now, renewed_at=tx.now))

    @write
    async def renew_worker(tx: Transaction, worker_id: int) -> Worker:
        worker = await living_worker(tx, worker_id)
        renewed = replace(worker, renewals=worker.renewals + 1, renewed_at=tx.now)
        await tx.update(renewed)
        return renewed

    @write
    async def _leave_worker(tx: Transaction, worker_id: int) -> list[Member]:
        return await _end(tx, worker_id, why=LEFT_IN_ORDER, renewals_seen=None, kind=EventKind.WORKER_STOPPED)

    @write
    async def lapse_worker(tx: Transaction, worker_id: int, *, renewals_seen: int | None) -> list[Member]:
        return await _end(
            tx, worker_id, why="its worker died", renewals_seen=renewals_seen, kind=EventKind.WORKER_LAPSED
        )

    @write
    async def hand_back_tasks(tx: Transaction) -> list[Task]:
        returned = []
        for task in await tx.list_reserved_before(tx.now):
            if not await has_run_out(tx, task):
                continue
            owner = task.owner or ""
            note = f"{owner} was not taken over in time"
            returned.append(await give_back(tx, task, by=owner, note=note, actor=SYSTEM))
            await tell_lead(tx, task.team_id, f"#{task.id} is back on the board: {note}")
        return returned

    @read
    async def list_workers(tx: Transaction, *, include_stopped: bool = False) -> list[Worker]:
        return await tx.list_workers(include_stopped)


async def living_worker(tx: Transaction, worker_id: int, *, lock: Lock = Lock.UPDATE) -> Worker:
    worker = await tx.find(Worker, worker_id, lock=lock)
    if worker is None:
        raise NotFound(f"there is no worker {worker_id}")
    if worker.stopped_at is not None or worker.is_lost:
        raise LeaseLost(f"worker {worker_id} was declared over ({worker.stop_reason}): stop its members, register anew")
    return worker


async def _end(
    tx: Transaction, worker_id: int, *, why: str, renewals_seen: int | None, kind: EventKind
) -> list[Member]:
    worker = await tx.find(Worker, worker_id, lock=Lock.UPDATE)
    if worker is None or worker.stopped_at is not None:
        return []
    if renewals_seen is not None and worker.renewals != renewals_seen:
        return []
    await tx.update(replace(worker, stopped_at=tx.now, stop_reason=why))
    # One who leaves in good order says so: whoever comes next goes on with the tasks.
    others = await list_workers_with_room(tx, except_worker=worker_id)

    def reserve(member: Member) -> bool:
        hopes = any(other.may_host(member.team_id, member.labels) for other in others)
        return hopes or kind is EventKind.WORKER_STOPPED

    members = await unhost(tx, await tx.list_members_of(worker_id, Lock.UPDATE), why=why, reserve=reserve)
    for taken in await tx.list_taken(worker_id):
        await put_back(tx, taken, why=why)
    for team_id in sorted({member.team_id for member in members}):
        lost = [member for member in members if member.team_id == team_id]
        names = ", ".join(f"{member.name} ({member.status})" for member in lost)
        tx.record(team_id, kind, SYSTEM, worker=worker_id, host=worker.host, members=[member.name for member in lost])
        team = await tx.find(Team, team_id)
        told = [member for member in lost if member.kind is not MemberKind.LEAD]
        if kind is EventKind.WORKER_LAPSED and told and team is not None and team.deleted_at is None:
            await tell_lead(tx, team_id, f"worker {worker_id} on {worker.host} died; it hosted {names}")
    return members
