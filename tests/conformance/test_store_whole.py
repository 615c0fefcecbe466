"""A team as a whole: a member cut off, a lead that goes on in its next team, and how a team stands."""

from __future__ import annotations

import pytest

from bullpen.domain.background import BackgroundKind
from bullpen.domain.budget import Settlement
from bullpen.domain.event import EventKind
from bullpen.domain.member import USER, Autonomy, Member, MemberRef, MemberStatus
from bullpen.domain.message import Origin
from bullpen.domain.prompt import Usage
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskChanges
from bullpen.domain.transcript import CallState, NewCall
from bullpen.errors import Conflict, LeaseLost, NotAllowed, NotFound, UsageError
from tests.conformance.board import BOUND_SECONDS, Board

# -- attend, prospects ----------------------------------------------------------------------------------


async def test_a_member_sees_itself_its_team_and_whether_mail_waits(board: Board) -> None:
    ana = await board.teammate("ana")
    now = await board.store.attend(ana)
    assert (now.member.ref, now.team.id, now.has_mail) == (ana, board.id, False)
    await board.store.send(board.user, "ana", "hello")
    assert (await board.store.attend(ana)).has_mail
    await board.store.take_mail(ana)
    assert not (await board.store.attend(ana)).has_mail


async def test_prospects_are_unfinished_tasks_that_could_become_the_members(board: Board) -> None:
    ana = await board.teammate("ana", role="tester")
    ben = await board.teammate("ben")
    store = board.store
    assert not await store.has_prospects(ana)
    await board.task("for others", role="backend")
    assert not await store.has_prospects(ana)
    blocked = await board.task("later", role="Tester", blocked_by=[1])
    assert await store.has_prospects(ana), "blocked, but it may be hers one day"
    await store.update_task(board.user, blocked.id, TaskChanges(owner="ben"))
    assert not await store.has_prospects(ana)
    assert await store.has_prospects(ben)
    await store.delete_task(board.user, blocked.id)
    assert not await store.has_prospects(ben)


async def test_who_takes_only_what_is_assigned_has_no_other_prospects(board: Board) -> None:
    ana = await board.teammate("ana", autonomy=Autonomy.ASSIGNED)
    await board.task()
    assert not await board.store.has_prospects(ana)
    await board.task(owner="ana")
    assert await board.store.has_prospects(ana)


# -- interrupt ------------------------------------------------------------------------------------------


async def test_an_interrupt_rings_and_brings_its_text_along(board: Board) -> None:
    ana = await board.teammate("ana")
    async with board.store.listen_member(ana) as bell:
        bell.clear()
        interrupted = await board.store.interrupt_member(board.user, "ANA", "not that file")
        assert await bell.wait(BOUND_SECONDS)
    assert interrupted.counters["interrupt"] == 1
    [message] = await board.inbox("ana")
    assert (message.content, message.origin, message.sender) == ("not that file", Origin.HUMAN, "user")
    async with board.store.listen_member(ana) as bell:
        bell.clear()
        again = await board.store.interrupt_member(board.lead, "ana")
        assert await bell.wait(BOUND_SECONDS), "it rings without a text, too"
    assert again.counters["interrupt"] == 2
    assert len(await board.inbox("ana")) == 1, "no text, no mail"
    assert (await board.kinds()).count(EventKind.MEMBER_INTERRUPTED) == 2


async def test_only_the_lead_and_the_human_interrupt(board: Board) -> None:
    ana, _ben = await board.teammate("ana"), await board.teammate("ben")
    with pytest.raises(NotAllowed):
        await board.store.interrupt_member(ana, "ben")
    with pytest.raises(NotFound):
        await board.store.interrupt_member(board.user, "nobody")
    with pytest.raises(UsageError):
        await board.store.interrupt_member(board.user, "user")


# -- the next team ----------------------------------------------------------------------------------------


async def hosted_lead(board: Board) -> MemberRef:
    await board.store.want_member(board.user, "lead")
    return await board.host("lead")


async def gone_on(board: Board, name: str = "next", goal: str = "") -> tuple[MemberRef, Member]:
    """The lead of a team that it has deleted, with one call open, in the next one."""
    lead = await hosted_lead(board)
    await board.store.record_turn(lead, "user", "do it")
    await board.store.record_turn(lead, "assistant", "…", calls=[NewCall(call_id="c1", name="TeamCreate")])
    await board.store.start_call(lead, "c1")
    await board.store.delete_team(lead)
    new = await board.store.succeed_team(lead, name, goal=goal, call_id="c1", result="here we are")
    return lead, new


async def test_a_lead_goes_on_in_its_next_team_with_its_memory(board: Board) -> None:
    _, new = await gone_on(board, goal="the next thing")
    team = await board.store.get_team(new.team_id)
    assert (team.name, team.goal, new.status) == ("next", "the next thing", MemberStatus.WORKING)
    assert new.worker_id == board.worker.id
    old_turns = await board.store.list_turns(board.id, "lead")
    turns = await board.store.list_turns(team.id, "lead")
    assert [(turn.seq, turn.kind, turn.content) for turn in turns] == [
        (turn.seq, turn.kind, turn.content) for turn in old_turns
    ]
    for team_id in (board.id, team.id):
        [call] = await board.store.list_calls(team_id, "lead")
        assert (call.state, call.result) == (CallState.FINISHED, "here we are")
    await board.store.record_turn(new.ref, "assistant", "I go on")


async def test_the_next_team_says_who_hosts_its_lead(board: Board) -> None:
    _, new = await gone_on(board)
    [event] = [one for one in await board.store.list_events(new.team_id) if one.kind == EventKind.MEMBER_HOSTED]
    assert (event.data["worker"], event.data["incarnation"]) == (board.worker.id, new.incarnation)


async def test_what_the_lead_runs_just_now_it_runs_in_its_next_team_too_and_nothing_older(board: Board) -> None:
    doomed = await board.store.register_worker(slots=1)
    await board.store.want_member(board.user, "lead")
    first = await board.host("lead", worker=doomed)
    await board.open_call(first, "before the kill")
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    lead = await board.host("lead")
    await board.open_call(lead, "now")
    await board.store.delete_team(lead)
    new = await board.store.succeed_team(lead, "next")
    assert [call.call_id for call in await board.store.interrupt_calls(new.ref)] == ["before the kill"]
    assert (await board.store.finish_call(new.ref, "now", "done")).state is CallState.FINISHED


async def test_the_old_lead_rests_and_writes_nothing_more(board: Board) -> None:
    old, _ = await gone_on(board)
    assert (await board.member("lead")).status is MemberStatus.SHUTDOWN
    with pytest.raises(LeaseLost):
        await board.store.record_turn(old, "assistant", "still me?")


async def test_unread_words_of_the_human_are_waiting_in_the_next_team(board: Board) -> None:
    lead = await hosted_lead(board)
    [receipt] = await board.store.send(board.user, "lead", "and then the docs")
    await board.store.delete_team(lead)
    async with board.recording() as seen:
        new = await board.store.succeed_team(lead, "next")
    [message] = await board.store.list_mail(new.team_id, "lead", undelivered_only=True)
    assert (message.content, message.origin) == ("and then the docs", Origin.HUMAN)
    assert await board.inbox("lead", undelivered_only=True) == []
    delivered = [event.data["message"] for event in seen if event.kind == EventKind.MESSAGE_DELIVERED]
    assert delivered == [receipt.message.id], "in the log of the old team it waits no more"


async def test_a_lead_that_goes_on_is_not_rung_for_that(board: Board) -> None:
    """It would be cut off in the very call that takes it there."""
    lead = await hosted_lead(board)
    await board.store.delete_team(lead)
    async with board.store.listen_member(lead) as bell:
        bell.clear()
        new = await board.store.succeed_team(lead, "next")
        async with board.store.listen_member(new.ref) as later:
            await board.store.send(MemberRef(new.team_id, USER, 0), "lead", "are we there?")
            assert await later.wait(BOUND_SECONDS)
        assert not await bell.wait(0)


async def test_a_new_name_is_no_new_budget(board: Board) -> None:
    await board.store.change_team(board.user, settings={"budget": {"max_calls": 3}})
    lead = await hosted_lead(board)
    outcome = await board.store.reserve(lead, purpose="turn", provider_key="k", model="m", tokens=1, cost_usd=0.0)
    assert outcome.reservation is not None
    nothing = Settlement(reservation_id=outcome.reservation.id, usage=Usage(), cost_usd=0.0)
    await board.store.settle(lead, nothing)
    await board.store.delete_team(lead)
    new = await board.store.succeed_team(lead, "next")
    assert (await board.store.get_team(new.team_id)).settings["budget"]["max_calls"] == 2


async def test_only_a_deleted_team_is_followed_and_only_by_its_lead(board: Board) -> None:
    lead = await hosted_lead(board)
    ana = await board.teammate("ana")
    with pytest.raises(Conflict, match="lives"):
        await board.store.succeed_team(lead, "next")
    with pytest.raises(NotAllowed):
        await board.store.succeed_team(ana, "next")
    await board.store.create_team("taken")
    await board.store.delete_team(lead)
    with pytest.raises(Conflict):
        await board.store.succeed_team(lead, "TAKEN")
    assert (await board.member("lead")).status is MemberStatus.WORKING, "a refusal has changed nothing"
    assert (await board.store.succeed_team(lead, "next")).name == "lead"


# -- how it stands ------------------------------------------------------------------------------------------


async def test_a_snapshot_shows_members_tasks_requests_mail_and_what_runs(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await board.tasks(2)
    await store.claim_task(ana, 1)
    await store.delete_task(board.user, 2)
    await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
    await store.send(board.user, "ana", "hello")
    await store.start_background(ana, BackgroundKind.COMMAND, "make serve")
    seen = await store.get_snapshot(board.id)
    assert {member.name for member in seen.members} == {"lead", "user", "ana"}
    assert [task.id for task in seen.tasks] == [1]
    assert [request.asker for request in seen.requests] == ["ana"]
    assert "ana" in seen.mail_for
    assert (seen.running, seen.can_host, seen.question) == (1, True, None)
    with pytest.raises(NotFound):
        await store.get_snapshot(99)


async def test_a_check_that_runs_counts_as_running(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana, check="true")
    await board.store.start_check(ana, 1)
    assert (await board.store.get_snapshot(board.id)).running == 1
    board.clock.advance(3601)
    assert (await board.store.get_snapshot(board.id)).running == 0, "whoever ran it died without a word"


async def test_what_a_dead_host_ran_does_not_run(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.start_background(ana, BackgroundKind.COMMAND, "make serve")
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    seen = await board.store.get_snapshot(board.id)
    assert (seen.running, seen.can_host) == (0, False)


async def test_a_question_to_the_human_stands_until_it_is_answered(board: Board) -> None:
    lead = await hosted_lead(board)
    await board.store.send(lead, "user", "Which port?")
    question = (await board.store.get_snapshot(board.id)).question
    assert question is not None
    assert question.content == "Which port?"
    await board.store.send(board.user, "lead", "8080")
    assert (await board.store.get_snapshot(board.id)).question is None
    await board.store.send(lead, "user", "And which host?")
    question = (await board.store.get_snapshot(board.id)).question
    assert question is not None
    assert question.content == "And which host?", "what was said before it is no answer"
