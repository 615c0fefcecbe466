"""Verbs about teams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, USER, Member, MemberKind, MemberRef, MemberStatus, Team
from bullpen.domain.record import replace
from bullpen.domain.request import RequestStatus
from bullpen.domain.text import check_name, clean, name_key
from bullpen.errors import Conflict, NotFound
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced_lead, hold_team
from bullpen.stores.verbs.queueing import withdraw_queue
from bullpen.stores.verbs.requests import ask_to_shut_down, close_request, moment_in
from bullpen.stores.verbs.verb import read, write


class TeamVerbs:
    @write
    async def create_team(
        tx: Transaction,
        name: str,
        *,
        goal: str = "",
        settings: Mapping[str, Any] | None = None,
        operation_id: str | None = None,
    ) -> Team:
        team = await enter_team(tx, name, goal=goal, settings=encode(settings or {}))
        await enter_reserved(tx, team, LEAD, MemberKind.LEAD)
        await enter_reserved(tx, team, USER, MemberKind.USER)
        tx.record(team.id, EventKind.TEAM_CREATED, USER, name=name, goal=team.goal, generation=team.generation)
        return team

    @read
    async def get_team(tx: Transaction, team_id: int) -> Team:
        team = await tx.find(Team, team_id)
        if team is None:
            raise NotFound(f"there is no team with id {team_id}")
        return team

    @read
    async def find_team(tx: Transaction, name: str) -> Team | None:
        return await tx.find_live_team(name_key(name))

    @read
    async def list_teams(tx: Transaction, *, include_deleted: bool = False) -> list[Team]:
        return await tx.list_teams(include_deleted)

    @write
    async def change_team(
        tx: Transaction,
        by: MemberRef,
        *,
        name: str | None = None,
        goal: str | None = None,
        settings: Mapping[str, Any] | None = None,
        operation_id: str | None = None,
    ) -> Team:
        await hold_team(tx, by)
        team, lead = await fenced_lead(tx, by, what="change the team")
        if name is not None and name != team.name:
            team = await _renamed(tx, team, name, lead.name)
        changed = replace(
            team,
            goal=team.goal if goal is None else clean(goal, what="goal"),
            settings={**team.settings, **encode(settings or {})},
        )
        await tx.update(changed)
        if goal is not None or settings:
            tx.record(team.id, EventKind.TEAM_CHANGED, lead.name, goal=changed.goal, settings=encode(settings or {}))
        return changed

    @write
    async def delete_team(
        tx: Transaction, by: MemberRef, *, deadline_seconds: float = 30.0, operation_id: str | None = None
    ) -> Team:
        await hold_team(tx, by)
        team, lead = await fenced_lead(tx, by, what="delete the team")
        until = moment_in(tx, deadline_seconds)
        # First, so that nothing of what follows brings anybody back.
        await tx.update(replace(team, deleted_at=tx.now))
        tx.record(team.id, EventKind.TEAM_DELETED, lead.name, name=team.name)
        # Held before the requests, in the order of locks; these may change them.
        await tx.list_members(team.id, Lock.UPDATE)
        for request in await tx.list_requests(team.id, RequestStatus.OPEN, None, None, None, Lock.UPDATE):
            await close_request(tx, request, RequestStatus.CANCELLED, actor=lead.name)
        for member in await tx.list_members(team.id):
            is_wanted_lead = member.kind is MemberKind.LEAD and member.status is MemberStatus.WANTED
            if member.kind in (MemberKind.TEAMMATE, MemberKind.EXTERNAL) or is_wanted_lead:
                number = await tx.take_request_id(team.id)
                await ask_to_shut_down(tx, number, member, asker=lead, reason="the team is deleted", open_until=until)
        await withdraw_queue(tx, team.id, actor=lead.name, why="the team is deleted")
        # Read again: its requests have taken numbers since.
        deleted = await tx.find(Team, team.id)
        assert deleted is not None
        return deleted


async def enter_team(tx: Transaction, name: str, *, goal: str, settings: Mapping[str, Any]) -> Team:
    """A new team, yet without members; the first that a verb writes."""
    key = name_key(check_name(name, what="team name"))
    if await tx.find_live_team(key) is not None:
        raise Conflict(f"there is a live team {name!r} already: use it, or delete it first")
    return await tx.insert(
        Team(
            id=0,
            name=name,
            generation=await tx.count_generations(key) + 1,
            goal=clean(goal, what="goal"),
            settings=settings,
            created_at=tx.now,
        )
    )


async def enter_reserved(tx: Transaction, team: Team, name: str, kind: MemberKind) -> Member:
    return await tx.insert(
        Member(
            team_id=team.id,
            name=name,
            kind=kind,
            role=name,
            status=MemberStatus.IDLE,
            created_at=tx.now,
            status_at=tx.now,
        )
    )


async def _renamed(tx: Transaction, team: Team, name: str, actor: str) -> Team:
    key = name_key(check_name(name, what="team name"))
    teammates = [member for member in await tx.list_members(team.id) if member.kind is MemberKind.TEAMMATE]
    if teammates or await tx.has_tasks(team.id):
        raise Conflict(f"team {team.name!r} has work: finish it, or delete the team first")
    other = await tx.find_live_team(key)
    if other is not None and other.id != team.id:
        raise Conflict(f"there is a live team {name!r} already")
    tx.record(team.id, EventKind.TEAM_RENAMED, actor, old=team.name, name=name)
    generation = team.generation if key == team.key else await tx.count_generations(key) + 1
    return replace(team, name=name, generation=generation)
