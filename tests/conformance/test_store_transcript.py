"""Memory: turns are only appended, calls are started before their effect, and finished once."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.transcript import INTERRUPTED_TEXT, CallState, NewCall
from bullpen.errors import Conflict, NotFound
from tests.conformance.board import Board


async def test_turns_are_numbered_and_only_appended(board: Board) -> None:
    ana = await board.teammate("ana")
    contents = ["text", {"parts": [{"text": "ä"}, 1.5, None, True]}, [1, 2**70], ""]
    for content in contents:
        board.clock.advance(1)
        turn = await board.store.record_turn(ana, "user", content)
        assert (turn.member, turn.incarnation, turn.created_at) == ("ana", ana.incarnation, board.clock.now())
    turns = await board.store.list_turns(board.id, "ANA")
    assert [turn.seq for turn in turns] == [1, 2, 3, 4]
    assert [turn.content for turn in turns] == contents


async def test_a_turn_of_a_kind_from_the_future_is_kept(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.record_turn(ana, "hologram", {"depth": 3})
    [turn] = await board.store.list_turns(board.id, "ana")
    assert (turn.kind, turn.content) == ("hologram", {"depth": 3})


async def test_a_transcript_is_read_page_by_page(board: Board) -> None:
    ana = await board.teammate("ana")
    for number in range(5):
        await board.store.record_turn(ana, "user", number)
    page = await board.store.list_turns(board.id, "ana", after_seq=1, limit=2)
    assert [turn.content for turn in page] == [1, 2]
    assert await board.store.list_turns(board.id, "ana", limit=0) == []
    assert await board.store.list_turns(board.id, "nobody") == []


async def test_transcripts_of_two_members_never_share_a_turn(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    both = [board.store.record_turn(ref, "user", ref.name) for _ in range(10) for ref in (ana, ben)]
    await asyncio.gather(*both)
    for name in ("ana", "ben"):
        turns = await board.store.list_turns(board.id, name)
        assert [(turn.seq, turn.content) for turn in turns] == [(number, name) for number in range(1, 11)]


# -- calls ---------------------------------------------------------------------------------


async def record_calls(board: Board, by: MemberRef, *names: str) -> None:
    calls = [NewCall(call_id=name, name="bash", arguments={"command": f"echo {name}"}) for name in names]
    await board.store.record_turn(by, "assistant", "calling", calls=calls)


async def test_a_call_is_queued_with_its_turn_started_and_finished(board: Board) -> None:
    ana = await board.teammate("ana")
    await record_calls(board, ana, "c1", "c2")
    queued = await board.store.list_calls(board.id, "ana")
    assert [(call.call_id, call.state, call.position, call.turn_seq) for call in queued] == [
        ("c1", CallState.QUEUED, 0, 1),
        ("c2", CallState.QUEUED, 1, 1),
    ]
    assert queued[0].arguments == {"command": "echo c1"}
    board.clock.advance(1)
    started = await board.store.start_call(ana, "c1")
    assert (started.state, started.started_at) == (CallState.STARTED, board.clock.now())
    board.clock.advance(1)
    finished = await board.store.finish_call(ana, "c1", "hello", is_error=True)
    assert (finished.state, finished.result, finished.is_error) == (CallState.FINISHED, "hello", True)
    assert finished.finished_at == board.clock.now()
    assert [call.call_id for call in await board.store.list_calls(board.id, "ana", open_only=True)] == ["c2"]
    last = (await board.store.list_turns(board.id, "ana"))[-1]
    assert last.kind == "tool_result"
    assert last.content == {"call_id": "c1", "name": "bash", "text": "hello", "is_error": True}


async def test_a_call_may_be_started_with_its_turn(board: Board) -> None:
    ana = await board.teammate("ana")
    calls = [NewCall(call_id="c1", name="bash", arguments={"command": "ls"}, is_started=True)]
    calls += [NewCall(call_id="c2", name="bash")]
    async with board.recording() as seen:
        await board.store.record_turn(ana, "assistant", "calling", calls=calls)
    assert [event.data for event in seen if event.kind == EventKind.TOOL_CALL_STARTED] == [
        {"call": "c1", "tool": "bash", "about": "ls"}
    ]
    first, second = await board.store.list_calls(board.id, "ana", open_only=True)
    assert (first.state, first.started_at, first.incarnation) == (
        CallState.STARTED,
        board.clock.now(),
        ana.incarnation,
    )
    assert (second.state, second.started_at) == (CallState.QUEUED, None)
    with pytest.raises(Conflict):
        await board.store.start_call(ana, "c1")
    assert (await board.store.finish_call(ana, "c1", "a.py")).state is CallState.FINISHED


async def test_a_call_is_started_once(board: Board) -> None:
    ana = await board.teammate("ana")
    await record_calls(board, ana, "c1")
    verbs = [board.store.start_call(ana, "c1") for _ in range(4)]
    outcomes = await asyncio.gather(*verbs, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3


async def test_a_finished_call_is_never_repeated(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.open_call(ana, "c1")
    first = await board.store.finish_call(ana, "c1", "once")
    async with board.recording() as seen:
        assert await board.store.finish_call(ana, "c1", "twice") == first
    assert seen == []
    with pytest.raises(Conflict):
        await board.store.start_call(ana, "c1")
    assert len(await board.store.list_turns(board.id, "ana")) == 2


async def test_a_queued_call_may_be_finished_without_ever_running(board: Board) -> None:
    """A missing argument, an unknown tool: an error result, never a dead member."""
    ana = await board.teammate("ana")
    await record_calls(board, ana, "c1")
    finished = await board.store.finish_call(ana, "c1", "no such tool", is_error=True)
    assert (finished.state, finished.started_at) == (CallState.FINISHED, None)


async def test_a_call_id_is_used_once(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await record_calls(board, ana, "c1")
    with pytest.raises(Conflict):
        await record_calls(board, ana, "c1")
    with pytest.raises(Conflict):
        await record_calls(board, ana, "c2", "c2")
    assert len(await board.store.list_turns(board.id, "ana")) == 1, "the turn of a refused call is not stored"
    await record_calls(board, ben, "c1")
    with pytest.raises(NotFound):
        await board.store.start_call(ana, "c2")
    with pytest.raises(NotFound):
        await board.store.finish_call(ana, "c9", "?")


async def test_after_a_kill_started_calls_are_interrupted_and_queued_ones_run(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await record_calls(board, ana, "done", "cut", "waiting")
    await store.start_call(ana, "done")
    await store.finish_call(ana, "done", "ok")
    await store.start_call(ana, "cut")
    await store.lapse_worker(board.worker.id, renewals_seen=None)
    fresh = await store.register_worker(slots=1)
    again = await board.host("ana", worker=fresh)
    [interrupted] = await store.interrupt_calls(again)
    assert (interrupted.call_id, interrupted.state) == ("cut", CallState.INTERRUPTED)
    assert (interrupted.result, interrupted.is_error) == (INTERRUPTED_TEXT, True)
    assert await store.interrupt_calls(again) == []
    await store.start_call(again, "waiting")
    assert await store.interrupt_calls(again) == [], "what this incarnation started is its own"
    await store.finish_call(again, "waiting", "ran")
    states = {call.call_id: call.state for call in await store.list_calls(board.id, "ana")}
    assert states == {
        "done": CallState.FINISHED,
        "cut": CallState.INTERRUPTED,
        "waiting": CallState.FINISHED,
    }
    results = [
        turn.content["call_id"] for turn in await store.list_turns(board.id, "ana") if turn.kind == "tool_result"
    ]
    assert results == ["done", "cut", "waiting"]
    with pytest.raises(Conflict):
        await store.finish_call(again, "cut", "after all")


# -- the end of a phase --------------------------------------------------------------------


async def test_the_end_of_a_phase_is_one_step(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.set_member_counters(ana, {"turns": 7, "reminded": True})
    async with board.recording() as seen:
        member = await board.store.end_phase(
            ana, why="no_tool_use", result="The API is done.", counters={"turns": 0, "reminded": None}
        )
    assert (member.status, member.status_reason) == (MemberStatus.IDLE, "no_tool_use")
    assert member.counters == {"turns": 0}
    assert await board.member("ana") == member
    [message] = await board.inbox("lead")
    assert (message.type, message.sender, message.origin) == (MessageType.RESULT, "ana", Origin.AGENT)
    assert "The API is done." in message.content
    assert "no_tool_use" in message.content
    ended = next(event for event in seen if event.kind == EventKind.PHASE_ENDED)
    assert (ended.actor, ended.data["why"]) == ("ana", "no_tool_use")


async def test_results_always_reach_the_lead(board: Board) -> None:
    ana = await board.teammate("ana")
    for number in range(3):
        await board.store.end_phase(ana, why="no_tool_use", result=f"result {number}")
        await board.store.set_member_status(ana, MemberStatus.WORKING)
    assert [m.content for m in await board.inbox("lead")] == [f"[no_tool_use] result {n}" for n in range(3)]


async def test_a_phase_without_words_sends_nothing(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.end_phase(ana, why="idle_tool", result=" \n")
    assert await board.inbox("lead") == []


async def test_the_result_of_a_task_does_not_wake_the_lead_but_one_that_belongs_to_none_does(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.set_member_counters(ana, {"task": 1})
    await board.store.end_phase(ana, why="no_tool_use", result="#1 is done", counters={"task": None})
    await board.store.end_phase(ana, why="no_tool_use", result="what you asked")
    await board.store.end_phase(ana, why="idle_tool", result="#2 waits", counters={"task": 2})
    assert [(m.content[-4:], m.wakes) for m in await board.inbox("lead")] == [
        ("done", False),
        ("sked", True),
        ("aits", False),
    ]


async def test_the_lead_reports_to_nobody(board: Board) -> None:
    await board.store.want_member(board.user, "lead")
    lead = await board.host("lead")
    await board.store.end_phase(lead, why="no_tool_use", result="Migration complete.")
    assert await board.inbox("lead") == []
    assert (await board.member("lead")).status is MemberStatus.IDLE


async def test_a_phase_may_end_in_waiting(board: Board) -> None:
    ana = await board.teammate("ana")
    member = await board.store.end_phase(ana, why="awaiting_messages", status=MemberStatus.WAITING)
    assert (member.status, member.status_reason) == (MemberStatus.WAITING, "awaiting_messages")


async def test_memory_is_recorded_in_the_log(board: Board) -> None:
    ana = await board.teammate("ana")
    async with board.recording() as seen:
        await board.open_call(ana, "c1")
        await board.store.finish_call(ana, "c1", "ok")
    assert [event.kind for event in seen] == [
        EventKind.TURN_RECORDED,
        EventKind.TOOL_CALL_STARTED,
        EventKind.TURN_RECORDED,
        EventKind.TOOL_CALL_FINISHED,
    ]
    assert {event.actor for event in seen} == {"ana"}
