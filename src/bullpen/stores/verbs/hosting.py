"""What happens to a member and its task when its host is gone, in one place for every way to lose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from bullpen.domain.event import EventKind
from bullpen.domain.member import SYSTEM, Member, MemberKind, MemberStatus, Team, Worker
from bullpen.domain.message import MessageType
from bullpen.domain.record import replace
from bullpen.domain.request import Request, RequestKind, RequestStatus, answer, close
from bullpen.domain.task import Handover, Task, TaskStatus
from bullpen.stores.transaction import Lock, Transaction, WantedRing
from bullpen.stores.verbs.closing import end_request
from bullpen.stores.verbs.post import notify
from bullpen.stores.verbs.queueing import find_open
from bullpen.stores.verbs.wake import hand_on, offer, revive, wake

TAKEOVER_SECONDS = 30.0
LEFT_IN_ORDER = "its worker stopped"


async def unhost(
    tx: Transaction, members: Sequence[Member], *, why: str, reserve: Callable[[Member], bool]
) -> list[Member]:
    """`members` are locked. Their incarnation is over: they are wanted again, or at rest if nobody may host them.

    Whom `reserve` says yes to has its task kept for a while; the others' return to the board: once all members
    have been unhosted, so that none of them is chosen as the one to be woken.
    """
    teams = {team_id: await tx.find(Team, team_id) for team_id in sorted({member.team_id for member in members})}
    over = [await _end_incarnation(tx, member, teams[member.team_id], why=why) for member in members]
    for member, now in zip(members, over, strict=True):
        if now.status is MemberStatus.SHUTDOWN:
            await withdraw_requests_of(tx, member)
        if now.status is MemberStatus.SHUTDOWN or not reserve(member):
            await give_back_task_of(tx, member, note=why)
        else:
            await _reserve_task_of(tx, member)
    # One of each role is enough: whoever is woken by it passes the baton.
    for member in {(member.team_id, member.role_key): member for member in members}.values():
        await hand_on(tx, member)
    return over


async def _end_incarnation(tx: Transaction, member: Member, team: Team | None, *, why: str) -> Member:
    stops = member.kind is MemberKind.EXTERNAL or member.shutdown_request_id is not None
    stops = stops or member.status in (MemberStatus.STOPPING, MemberStatus.SHUTDOWN)
    stops = stops or team is None or team.deleted_at is not None
    over = replace(
        member,
        incarnation=member.incarnation + 1,
        worker_id=None,
        status=MemberStatus.SHUTDOWN if stops else MemberStatus.WANTED,
        status_reason=why,
        status_at=tx.now,
        shutdown_request_id=None,
    )
    await tx.update(over)
    # A process that was only frozen, and sleeps on its bell, is told by nothing else.
    wake(tx, member)
    await answer_shutdown(tx, member, why=why)
    tx.record(member.team_id, EventKind.MEMBER_LAPSED, SYSTEM, member=member.name, reason=why, status=over.status)
    if not stops:
        tx.ring(WantedRing())
    return over


async def put_to_rest(
    tx: Transaction, member: Member, *, reason: str, actor: str, note: str, ends_incarnation: bool
) -> Member:
    """`member` is locked. Status `shutdown`; whatever it has in progress returns to the board.

    The status first: its own task must not choose it as the one to be woken.
    """
    rested = replace(
        member,
        status=MemberStatus.SHUTDOWN,
        status_reason=reason,
        status_at=tx.now,
        incarnation=member.incarnation + int(ends_incarnation),
        worker_id=None,
        shutdown_request_id=None,
    )
    await tx.update(rested)
    tx.record(member.team_id, EventKind.MEMBER_SHUT_DOWN, actor, member=member.name, reason=reason)
    await withdraw_requests_of(tx, member)
    await give_back_task_of(tx, member, note=note)
    await hand_on(tx, member)
    if rested.can_be_revived:
        await _offer_what_is_its(tx, rested)
    # What it gave back may have brought it back itself, if nobody else is left.
    return await tx.find(Member, member.team_id, member.key) or rested


async def _offer_what_is_its(tx: Transaction, member: Member) -> None:
    """It timed out without a last look: what waits for it brings it back, as it would if it came now."""
    if await tx.has_undelivered(member.team_id, member.key):
        await revive(tx, member, reason="mail waits for it")
    else:
        await offer(tx, await tx.list_tasks(member.team_id, TaskStatus.PENDING, member.key, 0, None))


async def withdraw_requests_of(tx: Transaction, member: Member) -> None:
    """Nobody waits for the answer any more. A shutdown that a lead asked for stands without it."""
    for kind in (RequestKind.PLAN, RequestKind.PERMISSION):
        for request in await tx.list_requests(member.team_id, RequestStatus.OPEN, kind, None, member.key, Lock.UPDATE):
            closed = close(request, RequestStatus.CANCELLED, at=tx.now)
            await end_request(tx, closed, actor=member.name)


async def give_back_task_of(tx: Transaction, member: Member, *, note: str) -> Task | None:
    """Whatever it has in progress returns to the board with a hand-over note, unless only integration is left."""
    task = await _hold_task_of(tx, member)
    return None if task is None else await give_back(tx, task, by=member.name, note=note, actor=SYSTEM)


async def _hold_task_of(tx: Transaction, member: Member) -> Task | None:
    """What it works on. Held before its work is looked for: what is integrated just now is not in progress then."""
    seen = await tx.find_in_progress(member.team_id, member.key)
    task = None if seen is None else await tx.find(Task, member.team_id, seen.id, lock=Lock.UPDATE)
    if task is None or task.status is not TaskStatus.IN_PROGRESS or not task.is_owned_by(member.name):
        return None
    return task if await find_open(tx, task) is None else None


async def give_back(tx: Transaction, task: Task, *, by: str, note: str, actor: str) -> Task:
    """In progress until now, anybody's from here on."""
    free = replace(
        task,
        status=TaskStatus.PENDING,
        owner=None,
        claimed_at=None,
        reserved_until=None,
        verifying=False,
        submission=None,
        updated_at=tx.now,
        handovers=(*task.handovers, Handover(by=by, at=tx.now, note=note)) if note else task.handovers,
    )
    await tx.update(free)
    tx.record(task.team_id, EventKind.TASK_RELEASED, actor, task=task.id, owner=by, note=note)
    await offer(tx, [free])
    return free


async def list_workers_with_room(tx: Transaction, *, except_worker: int | None = None) -> list[Worker]:
    return [
        worker
        for worker in await tx.list_workers(include_stopped=False)
        if worker.id != except_worker and worker.slots and await tx.count_hosted(worker.id) < worker.slots
    ]


async def _reserve_task_of(tx: Transaction, member: Member) -> None:
    task = await _hold_task_of(tx, member)
    if task is not None:
        await reserve(tx, task)


async def reserve(tx: Transaction, task: Task) -> None:
    """For its owner, whom nobody hosts: if that goes on for long, it returns to the board."""
    until = tx.now + await _takeover_time(tx, task)
    await tx.update(replace(task, reserved_until=until, verifying=False, updated_at=tx.now))
    tx.record(task.team_id, EventKind.TASK_RESERVED, SYSTEM, task=task.id, owner=task.owner, until=until.isoformat())


async def has_run_out(tx: Transaction, task: Task) -> bool:
    """Its reservation is over by the clock. But time in which nobody could have taken its owner over does not count:
    between Ctrl-C and `resume` there may be a night."""
    owner = None if task.owner_key is None else await tx.find(Member, task.team_id, task.owner_key)
    labels = () if owner is None else owner.labels
    able = [one.started_at for one in await list_workers_with_room(tx) if one.may_host(task.team_id, labels)]
    if able:
        return min(able) + await _takeover_time(tx, task) < tx.now
    return await _is_attended(tx, task.team_id)


async def _takeover_time(tx: Transaction, task: Task) -> timedelta:
    team = await tx.find(Team, task.team_id)
    assert team is not None
    return timedelta(seconds=team.number_setting("takeover_seconds", TAKEOVER_SECONDS))


async def _is_attended(tx: Transaction, team_id: int) -> bool:
    """Is there anybody who could take up what returns to the board?"""
    if any(one.may_host(team_id) for one in await tx.list_workers(include_stopped=False)):
        return True
    return any(member.worker_id is not None for member in await tx.list_members(team_id))


async def answer_shutdown(tx: Transaction, member: Member, *, why: str) -> None:
    """The member is at rest: its open shutdown request, if there is one, is answered with yes."""
    if member.shutdown_request_id is None:
        return
    request = await tx.find(Request, member.team_id, member.shutdown_request_id, lock=Lock.UPDATE)
    if request is None or request.status is not RequestStatus.OPEN:
        return
    answered = answer(request, by=member.name, approve=True, reason=why, at=tx.now)
    await end_request(tx, answered, actor=member.name)
    await notify(
        tx,
        member.team_id,
        request.asker,
        f"{member.name} has shut down: {why}",
        type=MessageType.SHUTDOWN_RESPONSE,
        request_id=request.id,
    )
