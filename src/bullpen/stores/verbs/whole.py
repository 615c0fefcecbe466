"""Verbs about a team as a whole: a member cut off, a team that follows another, how a team stands."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from bullpen.domain.background import Background, BackgroundKind
from bullpen.domain.budget import BUDGET_SPENT, TEAM_ACCOUNT, Account, less_spent
from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, USER, Member, MemberKind, MemberRef, MemberStatus, Team, Worker
from bullpen.domain.message import Message, MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.request import RequestStatus
from bullpen.domain.standing import Snapshot
from bullpen.domain.task import Task
from bullpen.domain.text import clean, name_key
from bullpen.domain.transcript import CallState
from bullpen.errors import Conflict, NotAllowed, NotFound, UsageError
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced, fenced_lead
from bullpen.stores.verbs.hosting import list_workers_with_room, put_to_rest
from bullpen.stores.verbs.post import mark_delivered, post
from bullpen.stores.verbs.teams import enter_reserved, enter_team
from bullpen.stores.verbs.transcript import close_call, get_call
from bullpen.stores.verbs.verb import read, write
from bullpen.stores.verbs.wake import wake
from bullpen.stores.verbs.workers import living_worker

MAX_CHECK = timedelta(hours=1)
"""Who runs a check may die without a word. After this long it runs no more, and a team does not wait for it."""


class WholeVerbs:
    @write
    async def interrupt_member(
        tx: Transaction, by: MemberRef, name: str, content: str = "", *, operation_id: str | None = None
    ) -> Member:
        _, caller = await fenced_lead(tx, by, what="interrupt members")
        if name_key(name) in (USER, caller.key):
            raise UsageError(f"{name} cannot be interrupted: name a member that {caller.name} leads")
        member = await _hold_member(tx, by.team_id, name)
        count = int(member.counters.get("interrupt", 0)) + 1
        interrupted = replace(member, counters={**member.counters, "interrupt": count})
        await tx.update(interrupted)
        tx.record(member.team_id, EventKind.MEMBER_INTERRUPTED, caller.name, member=member.name, count=count)
        wake(tx, interrupted)
        if content.strip():
            origin = Origin.HUMAN if caller.kind is MemberKind.USER else Origin.AGENT
            text = clean(content, what="message")
            await post(tx, interrupted, text, sender=caller.name, type=MessageType.MESSAGE, origin=origin)
        # Mail may have brought it back.
        return await tx.find(Member, member.team_id, member.key) or interrupted

    @write
    async def want_compaction(
        tx: Transaction, by: MemberRef, name: str, focus: str = "", *, operation_id: str | None = None
    ) -> Member:
        _, caller = await fenced_lead(tx, by, what="have memories compressed")
        member = await _hold_member(tx, by.team_id, name)
        if member.kind not in (MemberKind.LEAD, MemberKind.TEAMMATE):
            raise UsageError(f"{member.name} has no transcript here: name the lead or a teammate")
        focus = clean(focus, what="focus").strip()
        wanted = replace(member, counters={**member.counters, "compact": focus})
        await tx.update(wanted)
        tx.record(member.team_id, EventKind.COMPACTION_WANTED, caller.name, member=member.name, focus=focus)
        return wanted

    @write
    async def succeed_team(
        tx: Transaction,
        by: MemberRef,
        name: str,
        *,
        goal: str = "",
        call_id: str | None = None,
        result: str = "",
        operation_id: str | None = None,
    ) -> Member:
        old, me, worker = await _hold_predecessor(tx, by)
        spent = await tx.find(Account, old.id, TEAM_ACCOUNT)
        settings = old.settings if spent is None else less_spent(old.settings, spent)
        team = await enter_team(tx, name, goal=goal, settings=settings)
        lead = await tx.insert(_lead_of(tx, team, me))
        await enter_reserved(tx, team, USER, MemberKind.USER)
        facts = {"name": name, "goal": team.goal, "generation": team.generation, "predecessor": old.id}
        tx.record(team.id, EventKind.TEAM_CREATED, me.name, **facts)
        if worker is not None:
            where = {"worker": worker.id, "host": worker.host, "incarnation": lead.incarnation}
            tx.record(team.id, EventKind.MEMBER_HOSTED, lead.name, member=lead.name, **where)
        if call_id is not None:
            call = await get_call(tx, me, call_id)
            await close_call(tx, me, call, CallState.FINISHED, clean(result, what="tool result"), False)
        await _hand_over_memory(tx, me, lead)
        await _hand_over_mail(tx, me, lead)
        note = f"{me.name} went on in team {name}"
        await put_to_rest(tx, me, reason="finished", actor=me.name, note=note, ends_incarnation=True)
        return lead

    @read
    async def get_snapshot(tx: Transaction, team_id: int) -> Snapshot:
        team = await tx.find(Team, team_id)
        if team is None:
            raise NotFound(f"there is no team with id {team_id}")
        members = await tx.list_members(team_id)
        tasks = await tx.list_tasks(team_id, None, None, 0, None)
        backgrounds = await tx.list_backgrounds(team_id, None, running_only=True)
        hosts = [one for one in await tx.list_workers(include_stopped=False) if one.may_host(team_id)]
        return Snapshot(
            team=team,
            members=tuple(members),
            tasks=tuple(tasks),
            requests=tuple(await tx.list_requests(team_id, RequestStatus.OPEN, None, None, None)),
            mail_for=frozenset(await tx.list_mail_keys(team_id)),
            running=_count_running(tx, members, backgrounds, tasks),
            has_host=bool(hosts),
            can_host=any(one.may_host(team_id) for one in await list_workers_with_room(tx)),
            unhostable=frozenset(
                member.key for member in members if not any(one.may_host(team_id, member.labels) for one in hosts)
            ),
            question=await _find_question(tx, team_id),
            submissions=tuple(await tx.list_submissions(team_id, True)),
        )


async def _hold_member(tx: Transaction, team_id: int, name: str) -> Member:
    member = await tx.find(Member, team_id, name_key(name), lock=Lock.UPDATE)
    if member is None:
        raise NotFound(f"there is no member {name!r} in this team")
    return member


async def _hold_predecessor(tx: Transaction, by: MemberRef) -> tuple[Team, Member, Worker | None]:
    """The worker before the member, as who declares it dead takes them: else the new lead might stay there."""
    _, seen = await fenced(tx, by, lock=Lock.NONE, team_must_live=False)
    worker = None if seen.worker_id is None else await living_worker(tx, seen.worker_id, lock=Lock.SHARE)
    old, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
    if me.kind is not MemberKind.LEAD:
        raise NotAllowed(f"only the lead goes on in another team; {me.name} is a {me.kind}")
    if old.deleted_at is None:
        raise Conflict(f"team {old.name!r} lives: delete it first")
    return old, me, worker


def _lead_of(tx: Transaction, team: Team, old: Member) -> Member:
    return replace(
        old,
        team_id=team.id,
        incarnation=1,
        status=MemberStatus.WORKING,
        status_reason="",
        shutdown_request_id=None,
        created_at=tx.now,
        status_at=tx.now,
    )


async def _hand_over_memory(tx: Transaction, old: Member, new: Member) -> None:
    for turn in await tx.list_turns(old.team_id, old.key, 0, None):
        await tx.insert(replace(turn, team_id=new.team_id))
    for call in await tx.list_calls(old.team_id, old.key, open_only=False):
        # What this incarnation runs just now, the new one runs: anything older was interrupted.
        incarnation = new.incarnation if call.incarnation == old.incarnation else 0
        await tx.insert(replace(call, team_id=new.team_id, incarnation=incarnation))


async def _hand_over_mail(tx: Transaction, old: Member, new: Member) -> None:
    """What the human wrote to it meanwhile must not stay behind unread."""
    messages = await tx.list_undelivered(old.team_id, old.key, 1000)
    from_human = [message for message in messages if message.origin is Origin.HUMAN]
    for message in from_human:
        await post(tx, new, message.content, sender=message.sender, type=message.type, origin=message.origin)
    if from_human:
        await mark_delivered(tx, old, [message.id for message in from_human], None)


def _count_running(tx: Transaction, members: list[Member], backgrounds: list[Background], tasks: list[Task]) -> int:
    """Commands, subagents and checks whose host may yet tell how they end."""
    alive: Mapping[str, Any] = {member.key: member.incarnation for member in members if _has_host(member)}
    broke = {member.key for member in members if member.status_reason.startswith(BUDGET_SPENT)}
    commands = [
        background
        for background in backgrounds
        if alive.get(background.member_key) == background.incarnation
        # It waits for the same budget as its member.
        and not (background.kind is BackgroundKind.SUBAGENT and background.member_key in broke)
    ]
    checks = [task for task in tasks if task.verifying and tx.now - task.updated_at < MAX_CHECK]
    return len(commands) + len(checks)


def _has_host(member: Member) -> bool:
    return member.worker_id is not None or member.kind in (MemberKind.LEAD, MemberKind.USER)


async def _find_question(tx: Transaction, team_id: int) -> Message | None:
    question = await tx.find_last_mail(team_id, USER, LEAD, MessageType.MESSAGE)
    if question is None or question.origin is not Origin.AGENT:
        return None
    answer = await tx.find_last_mail(team_id, LEAD, USER, None)
    return question if answer is None or answer.id < question.id else None
