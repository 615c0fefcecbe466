"""Verbs about what goes on beside a member: commands and subagents."""

from __future__ import annotations

import socket

from bullpen.domain.background import Background, BackgroundKind, BackgroundState
from bullpen.domain.event import EventKind
from bullpen.domain.member import Member, MemberRef
from bullpen.domain.record import replace
from bullpen.domain.text import MAX_TEXT_LENGTH, clean, name_key
from bullpen.errors import NotFound, UsageError
from bullpen.stores.life import boot_id
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.post import notify
from bullpen.stores.verbs.verb import read, write

SHOWN_LENGTH = 4000


class BackgroundVerbs:
    @write
    async def start_background(
        tx: Transaction,
        by: MemberRef,
        kind: BackgroundKind,
        title: str,
        *,
        pid: int | None = None,
        start_ticks: int | None = None,
        output_path: str | None = None,
        operation_id: str | None = None,
    ) -> Background:
        tx.foresee(lambda: tx.fence(by, Lock.SHARE))
        # The number first: it locks the team, the first in the order of locks.
        number = await tx.take_background_id(by.team_id)
        _, me = await fenced(tx, by)
        started = await tx.insert(
            Background(
                team_id=me.team_id,
                id=number,
                member=me.name,
                incarnation=me.incarnation,
                kind=kind,
                title=clean(title, what="title"),
                host=socket.gethostname(),
                boot_id=boot_id(),
                pid=pid,
                start_ticks=start_ticks,
                output_path=output_path,
                started_at=tx.now,
            )
        )
        tx.record(
            me.team_id,
            EventKind.BACKGROUND_STARTED,
            me.name,
            background=number,
            background_kind=kind,
            member=me.name,
            title=started.title,
            pid=pid,
        )
        return started

    @write
    async def finish_background(
        tx: Transaction,
        by: MemberRef,
        background_id: int,
        *,
        state: BackgroundState = BackgroundState.FINISHED,
        exit_code: int | None = None,
        output: str = "",
    ) -> Background:
        if state is BackgroundState.RUNNING:
            raise UsageError("what ends is finished, stopped or lost, not running")
        tx.foresee(lambda: tx.find(Background, by.team_id, background_id, lock=Lock.UPDATE))
        _, me = await fenced(tx, by, team_must_live=False)
        background = await tx.find(Background, by.team_id, background_id, lock=Lock.UPDATE)
        if background is None or background.member_key != me.key:
            raise NotFound(f"{me.name} has no background command bg-{background_id}")
        if background.state is not BackgroundState.RUNNING:
            return background
        # The end of a long output says more than its beginning, and an end is told whatever came before it.
        return await _end(tx, me, background, state, exit_code=exit_code, output=output[-MAX_TEXT_LENGTH:])

    @write
    async def lose_backgrounds(tx: Transaction, by: MemberRef) -> list[Background]:
        _, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        return [
            await _end(tx, me, background, BackgroundState.LOST)
            for background in await tx.list_backgrounds(me.team_id, me.key, running_only=True)
            if background.incarnation != me.incarnation
        ]

    @read
    async def list_backgrounds(
        tx: Transaction, team_id: int, *, name: str | None = None, running_only: bool = False
    ) -> list[Background]:
        return await tx.list_backgrounds(team_id, None if name is None else name_key(name), running_only)


async def _end(
    tx: Transaction,
    me: Member,
    background: Background,
    state: BackgroundState,
    *,
    exit_code: int | None = None,
    output: str = "",
) -> Background:
    ended = replace(background, state=state, exit_code=exit_code, output=output, ended_at=tx.now)
    await tx.update(ended)
    tx.record(
        me.team_id,
        EventKind.BACKGROUND_ENDED,
        me.name,
        background=ended.id,
        background_kind=ended.kind,
        member=me.name,
        title=ended.title,
        state=state,
        exit_code=exit_code,
    )
    if state is not BackgroundState.STOPPED:
        await notify(tx, me.team_id, me.name, _told(ended))
    return ended


def _told(background: Background) -> str:
    """What its member reads of its end."""
    if background.state is BackgroundState.LOST:
        end = "was lost: the process that ran it died. Look what it has done before you start it again"
    elif background.exit_code is None:
        end = "has finished"
    else:
        end = f"has ended with exit code {background.exit_code}"
    lines = [f"{background.label} ({background.title}) {end}."]
    shown = background.output.strip()
    if len(shown) > SHOWN_LENGTH:
        shown = f"…{shown[-SHOWN_LENGTH:]}"
    if background.output_path:
        lines.append(f"Its output is in {background.output_path}.")
    return "\n".join([*lines, shown] if shown else lines)
