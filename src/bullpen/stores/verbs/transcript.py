"""Verbs about memory: turns, tool calls, the end of a work phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bullpen.domain.budget import Settlement
from bullpen.domain.codec import encode
from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, Member, MemberKind, MemberRef, MemberStatus
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.record import replace
from bullpen.domain.text import check_key, clean, name_key
from bullpen.domain.transcript import (
    INTERRUPTED_TEXT,
    CallState,
    NewCall,
    ToolCall,
    TranscriptEnd,
    Turn,
    TurnKind,
    step_call,
)
from bullpen.errors import Conflict, NotFound
from bullpen.stores.transaction import Lock, Transaction
from bullpen.stores.verbs.budgets import foresee_settlement, settle
from bullpen.stores.verbs.fence import fenced
from bullpen.stores.verbs.post import post
from bullpen.stores.verbs.status import change_status, merged_counters
from bullpen.stores.verbs.verb import read, write


class TranscriptVerbs:
    @write
    async def record_turn(
        tx: Transaction,
        by: MemberRef,
        kind: str,
        content: Any,
        *,
        calls: Sequence[NewCall] = (),
        counters: Mapping[str, Any] | None = None,
        settlement: Settlement | None = None,
        operation_id: str | None = None,
    ) -> Turn:
        key = name_key(by.name)
        tx.foresee(lambda: tx.find_end(by.team_id, key))
        tx.foresee(*(partial(tx.find, ToolCall, by.team_id, key, call.call_id) for call in calls))
        if settlement is not None:
            foresee_settlement(tx, by, settlement)
        team, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        turn = await append_turn(tx, me, await tx.find_end(me.team_id, me.key), kind, content)
        await _queue_calls(tx, me, turn, calls)
        if counters:
            await tx.update(replace(me, counters=merged_counters(me, counters)))
        if settlement is not None:
            # At the end: who holds the team's account locks nothing more.
            await settle(tx, team, me, settlement)
        return turn

    @write
    async def start_call(tx: Transaction, by: MemberRef, call_id: str) -> ToolCall:
        _, me = await fenced(tx, by, team_must_live=False)
        started = _started(tx, me, await get_call(tx, me, call_id))
        await tx.update(started)
        return started

    @write
    async def finish_call(
        tx: Transaction, by: MemberRef, call_id: str, result: str, *, is_error: bool = False
    ) -> ToolCall:
        _, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        call = await get_call(tx, me, call_id)
        if call.state is CallState.FINISHED:
            return call
        return await close_call(tx, me, call, CallState.FINISHED, clean(result, what="tool result"), is_error)

    @write
    async def interrupt_calls(tx: Transaction, by: MemberRef) -> list[ToolCall]:
        _, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        return [
            await close_call(tx, me, call, CallState.INTERRUPTED, INTERRUPTED_TEXT, True)
            for call in await tx.list_calls(me.team_id, me.key, open_only=True)
            if call.state is CallState.STARTED and call.incarnation != me.incarnation
        ]

    @write
    async def end_phase(
        tx: Transaction,
        by: MemberRef,
        *,
        why: str,
        result: str = "",
        status: MemberStatus = MemberStatus.IDLE,
        counters: Mapping[str, Any] | None = None,
        operation_id: str | None = None,
    ) -> Member:
        _, me = await fenced(tx, by, lock=Lock.UPDATE, team_must_live=False)
        had_task = "task" in me.counters
        me = replace(me, counters=merged_counters(me, counters or {}))
        await tx.update(me)
        if me.status is not MemberStatus.STOPPING:
            me = await change_status(tx, me, status, reason=why)
        if me.kind is not MemberKind.LEAD:
            await _report_result(tx, me, result, why, has_task=had_task or "task" in me.counters)
        tx.record(me.team_id, EventKind.PHASE_ENDED, me.name, member=me.name, why=why, result=result[:500])
        return me

    @read
    async def list_turns(
        tx: Transaction, team_id: int, name: str, *, after_seq: int = 0, limit: int | None = None
    ) -> list[Turn]:
        return await tx.list_turns(team_id, name_key(name), after_seq, limit)

    @read
    async def list_calls(tx: Transaction, team_id: int, name: str, *, open_only: bool = False) -> list[ToolCall]:
        return await tx.list_calls(team_id, name_key(name), open_only)


async def _queue_calls(tx: Transaction, me: Member, turn: Turn, calls: Sequence[NewCall]) -> None:
    used: set[str] = set()
    for position, call in enumerate(calls):
        check_key(call.call_id, what="tool call id")
        if call.call_id in used or await tx.find(ToolCall, me.team_id, me.key, call.call_id) is not None:
            raise Conflict(f"{me.name} has used the tool call id {call.call_id!r} before")
        used.add(call.call_id)
        queued = ToolCall(
            team_id=me.team_id,
            member=me.name,
            call_id=call.call_id,
            turn_seq=turn.seq,
            position=position,
            name=call.name,
            arguments=encode(call.arguments),
            incarnation=me.incarnation,
            queued_at=tx.now,
        )
        await tx.insert(_started(tx, me, queued) if call.is_started else queued)


def _started(tx: Transaction, me: Member, call: ToolCall) -> ToolCall:
    started = replace(step_call(call, CallState.STARTED, at=tx.now), incarnation=me.incarnation)
    tx.record(me.team_id, EventKind.TOOL_CALL_STARTED, me.name, call=call.call_id, tool=call.name, about=started.about)
    return started


async def append_turn(tx: Transaction, me: Member, end: TranscriptEnd, kind: str, content: Any) -> Turn:
    """`me` is locked for change, so the number after the end of its transcript is its own."""
    turn = await tx.insert(
        Turn(
            team_id=me.team_id,
            member=me.name,
            seq=end.seq + 1,
            kind=str(kind),
            content=encode(content),
            incarnation=me.incarnation,
            created_at=tx.now,
        )
    )
    tx.record(me.team_id, EventKind.TURN_RECORDED, me.name, member=me.name, seq=turn.seq, kind_of_turn=turn.kind)
    return turn


async def get_call(tx: Transaction, me: Member, call_id: str) -> ToolCall:
    call = await tx.find(ToolCall, me.team_id, me.key, call_id, lock=Lock.UPDATE)
    if call is None:
        raise NotFound(f"{me.name} has no tool call {call_id!r}")
    return call


async def close_call(
    tx: Transaction, me: Member, call: ToolCall, state: CallState, result: str, is_error: bool
) -> ToolCall:
    finished = step_call(call, state, at=tx.now, result=result, is_error=is_error)
    await tx.update(finished)
    content = {"call_id": call.call_id, "name": call.name, "text": result, "is_error": is_error}
    await append_turn(tx, me, await tx.find_end(me.team_id, me.key), TurnKind.TOOL_RESULT, content)
    tx.record(me.team_id, EventKind.TOOL_CALL_FINISHED, me.name, call=call.call_id, tool=call.name, state=state)
    return finished


async def _report_result(tx: Transaction, me: Member, result: str, why: str, *, has_task: bool) -> None:
    if not result.strip():
        return
    lead = await tx.find(Member, me.team_id, LEAD, lock=Lock.SHARE)
    assert lead is not None
    # A result of a task that is on the board comes along with what wakes the lead; one that belongs to none wakes it.
    await post(
        tx,
        lead,
        f"[{why}] {result}",
        sender=me.name,
        type=MessageType.RESULT,
        origin=Origin.AGENT,
        wakes=not has_task,
    )
