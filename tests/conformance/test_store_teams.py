"""Teams: one live team of a name, archived when deleted, and a new one of the same name is another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, MemberKind, MemberRef, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind, RequestStatus
from bullpen.domain.task import TaskStatus
from bullpen.errors import BullpenError, Conflict, LeaseLost, NotAllowed, NotFound, TeamDeleted, UsageError
from bullpen.store import Store
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother
from tests.conformance.test_store_workers import FENCED


async def test_a_team_has_its_lead_and_its_user_from_the_beginning(store: Store, clock: FakeClock) -> None:
    team = await store.create_team("Crew", goal="ship it", settings={"model": "scripted:x"})
    assert (team.name, team.goal, team.generation, team.settings) == ("Crew", "ship it", 1, {"model": "scripted:x"})
    assert (team.created_at, team.deleted_at) == (clock.now(), None)
    members = await store.list_members(team.id)
    assert [(member.name, member.kind) for member in members] == [("lead", MemberKind.LEAD), ("user", MemberKind.USER)]
    assert await store.get_team(team.id) == team


async def test_a_team_is_found_by_name_in_any_case(store: Store) -> None:
    team = await store.create_team("Crew")
    assert await store.find_team("cREW") == team
    assert await store.find_team("another") is None


async def test_two_live_teams_cannot_have_one_name(store: Store) -> None:
    await store.create_team("crew")
    with pytest.raises(Conflict):
        await store.create_team("CREW")
    assert len(await store.list_teams()) == 1


async def test_one_of_many_who_create_the_same_team_wins(store: Store) -> None:
    outcomes = await asyncio.gather(*(store.create_team("crew") for _ in range(10)), return_exceptions=True)
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if isinstance(outcome, BaseException))


async def test_one_of_two_stores_that_create_the_same_team_wins(store: Store, open_another: OpenAnother) -> None:
    other = await open_another()
    for number in range(5):
        both = (store.create_team(f"t{number}"), other.create_team(f"T{number}"))
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "Team"]
    assert len(await other.list_teams()) == 5


async def test_teams_are_listed_oldest_first_and_deleted_ones_only_if_asked_for(board: Board) -> None:
    store = board.store
    second = await store.create_team("abc")
    await store.delete_team(board.user)
    assert [team.id for team in await store.list_teams()] == [second.id]
    assert [team.id for team in await store.list_teams(include_deleted=True)] == [board.id, second.id]


async def test_an_unknown_team_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.get_team(4711)


async def test_teams_share_nothing(board: Board) -> None:
    store = board.store
    other = await store.create_team("other")
    task = await board.task("here")
    assert task.id == 1
    assert await store.list_tasks(other.id) == []
    with pytest.raises(NotFound):
        await store.get_task(other.id, 1)
    [receipt] = await store.send(board.user, "lead", "only here")
    assert await store.list_mail(other.id, "lead") == []
    with pytest.raises(NotFound):
        await store.get_message(other.id, receipt.message.id)


# -- changing ------------------------------------------------------------------------------


async def test_settings_are_merged_by_key(board: Board) -> None:
    changed = await board.store.change_team(board.lead, goal="better", settings={"model": "a:b"})
    assert changed.goal == "better"
    assert changed.settings == {**board.team.settings, "model": "a:b"}
    again = await board.store.change_team(board.lead, settings={"model": "c:d"})
    assert (again.goal, again.settings["model"]) == ("better", "c:d")
    assert await board.store.get_team(board.id) == again


async def test_changing_a_team_leaves_its_numbers_alone(board: Board) -> None:
    await board.tasks(3)
    await board.store.change_team(board.lead, goal="another")
    assert (await board.task()).id == 4


async def test_an_empty_team_can_be_renamed(board: Board) -> None:
    renamed = await board.store.change_team(board.lead, name="graphql")
    assert renamed.name == "graphql"
    assert await board.store.find_team("crew") is None
    assert await board.store.find_team("GraphQL") == renamed


async def test_a_name_that_a_deleted_team_had_is_of_the_next_generation(board: Board) -> None:
    old = await board.store.create_team("graphql")
    await board.store.delete_team(MemberRef(old.id, LEAD, 0))
    assert (await board.store.change_team(board.lead, name="GraphQL")).generation == 2


async def test_a_team_can_be_spelled_anew(board: Board) -> None:
    renamed = await board.store.change_team(board.lead, name="CREW")
    assert (renamed.name, renamed.generation) == ("CREW", 1)


async def test_a_team_with_work_keeps_its_name(board: Board) -> None:
    await board.task()
    with pytest.raises(Conflict):
        await board.store.change_team(board.lead, name="graphql")


async def test_a_team_with_teammates_keeps_its_name(board: Board) -> None:
    await board.store.spawn_member(board.lead, "ana")
    with pytest.raises(Conflict):
        await board.store.change_team(board.lead, name="graphql")


async def test_a_live_name_cannot_be_taken_by_renaming(board: Board) -> None:
    await board.store.create_team("graphql")
    with pytest.raises(Conflict):
        await board.store.change_team(board.lead, name="GRAPHQL")


async def test_only_the_lead_or_the_human_changes_or_deletes_the_team(board: Board) -> None:
    ana = await board.teammate("ana")
    cat = await board.external("cat")
    for member in (ana, cat):
        with pytest.raises(NotAllowed):
            await board.store.change_team(member, goal="mine")
        with pytest.raises(NotAllowed):
            await board.store.delete_team(member)
    assert (await board.store.get_team(board.id)).deleted_at is None


# -- deleting ------------------------------------------------------------------------------


async def test_a_deleted_team_stays_readable_and_its_name_is_free(board: Board) -> None:
    store = board.store
    task = await board.task("kept")
    await store.send(board.user, "lead", "kept too")
    deleted = await store.delete_team(board.lead)
    assert deleted.deleted_at == board.clock.now()
    assert await store.find_team("crew") is None
    assert await store.get_team(board.id) == deleted
    assert (await board.get(task.id)).subject == "kept"
    assert [message.content for message in await board.inbox("lead")] == ["kept too"]
    again = await store.create_team("crew")
    assert again.id != board.id
    assert again.generation == 2
    assert await store.list_tasks(again.id) == []


COMES_TO_REST = {
    *("set_member_status", "set_member_counters", "shut_down_member", "release_member", "rest_member"),
    *("leave_if_nothing", "find_work", "attend", "has_prospects", "release_task", "succeed_team"),
    *("take_mail", "list_offered_mail", "acknowledge_mail", "answer_request"),
    *("record_turn", "start_call", "finish_call", "interrupt_calls", "end_phase"),
    *("finish_background", "lose_backgrounds", "reserve", "settle"),
}
"""What lets the members of a deleted team come to rest, or only looks."""


@pytest.mark.parametrize("verb", sorted(FENCED.keys() - COMES_TO_REST))
async def test_a_deleted_team_is_noticed_by(board: Board, verb: str) -> None:
    await board.tasks(3)
    await board.store.delete_team(board.lead)
    before = await board.events()
    with pytest.raises(TeamDeleted):
        await FENCED[verb](board.store, board.lead)
    assert await board.events() == before


async def test_a_deleted_team_is_noticed_by_who_is_no_member_of_it(board: Board) -> None:
    await board.store.delete_team(board.lead)
    for verb in (
        board.store.notify(board.id, "lead", "late"),
        board.store.join_member(board.worker.id, board.id, "cat"),
    ):
        with pytest.raises(TeamDeleted):
            await verb


@pytest.mark.parametrize("verb", sorted(COMES_TO_REST))
async def test_the_deletion_of_its_team_keeps_no_member_from(board: Board, verb: str) -> None:
    """What else stands in the way of this verb, if anything does, is not that."""
    await board.store.delete_team(board.lead)
    try:
        await FENCED[verb](board.store, board.lead)
    except TeamDeleted:
        raise
    except BullpenError:
        return


async def test_deleting_asks_who_is_hosted_and_ends_who_is_not(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    cat = await board.external("cat")
    await store.spawn_member(board.lead, "ben")
    await store.delete_team(board.lead, deadline_seconds=30)
    for ref in (ana, cat):
        member = await board.member(ref.name)
        assert member.shutdown_request_id is not None
        assert member.is_up
        request = await store.get_request(board.id, member.shutdown_request_id)
        assert request.status is RequestStatus.OPEN
        assert [m.type for m in await board.inbox(ref.name)] == [MessageType.SHUTDOWN_REQUEST]
    assert (await board.member("ben")).status is MemberStatus.SHUTDOWN


async def test_the_members_of_a_deleted_team_come_to_rest(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await board.open_call(ana)
    await store.delete_team(board.lead)
    await store.finish_call(ana, "call-1", "ok")
    await store.record_turn(ana, "assistant", "bye")
    await store.take_mail(ana)
    await store.set_member_status(ana, MemberStatus.IDLE)
    request_id = (await board.member("ana")).shutdown_request_id
    assert request_id is not None
    await store.answer_request(ana, request_id, approve=True)
    rested = await store.shut_down_member(ana)
    assert (rested.status, rested.status_reason) == (MemberStatus.SHUTDOWN, "asked")
    assert (await board.get(task.id)).status is TaskStatus.PENDING


async def test_nobody_refuses_to_stop_when_the_team_is_deleted(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.delete_team(board.lead)
    request_id = (await board.member("ana")).shutdown_request_id
    assert request_id is not None
    with pytest.raises(TeamDeleted):
        await board.store.answer_request(ana, request_id, approve=False)
    board.clock.advance(31)
    await board.store.expire_requests()
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN


async def test_who_does_not_stop_in_time_is_forced(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.delete_team(board.lead, deadline_seconds=30)
    board.clock.advance(29)
    assert await board.store.expire_requests() == []
    board.clock.advance(2)
    assert [request.asked for request in await board.store.expire_requests()] == ["ana"]
    assert (await board.member("ana")).status_reason == "forced"
    with pytest.raises(LeaseLost):
        await board.store.record_turn(ana, "assistant", "too late")


async def test_deleting_cancels_what_was_open(board: Board) -> None:
    ana = await board.teammate("ana")
    plan = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="a plan")
    await board.store.delete_team(board.lead)
    assert (await board.store.get_request(board.id, plan.id)).status is RequestStatus.CANCELLED


async def test_deleting_gives_every_request_a_number_of_its_own(board: Board) -> None:
    for name in ("ana", "ben", "cat"):
        await board.teammate(name)
    deleted = await board.store.delete_team(board.lead)
    requests = await board.store.list_requests(board.id)
    assert [request.id for request in requests] == [1, 2, 3]
    assert deleted.next_request_id == 4
    assert (await board.store.get_team(board.id)).next_request_id == 4


async def test_nobody_becomes_wanted_in_a_deleted_team(board: Board) -> None:
    store = board.store
    ana = await board.timed_out_teammate("ana")
    ben = await board.teammate("ben")
    await board.claimed(ben, "ben's")
    await store.spawn_member(board.user, "cat")
    await board.task("cat's", owner="cat")
    await store.delete_team(board.lead)
    # Each of these would bring somebody back in a living team.
    await store.release_task(ben, 1, note="the team is gone")
    await store.end_phase(ben, why="no_tool_use", result="my last words")
    await store.lapse_worker(board.worker.id, renewals_seen=None)
    board.clock.advance(60)
    await store.expire_requests()
    await store.hand_back_tasks()
    statuses = {member.name: member.status for member in await store.list_members(board.id)}
    assert MemberStatus.WANTED not in statuses.values()
    assert statuses[ana.name] is MemberStatus.SHUTDOWN
    fresh = await store.register_worker(slots=10)
    assert await store.host_member(fresh.id) is None
    assert await store.host_member(fresh.id, team_id=board.id) is None


async def test_a_lead_that_was_wanted_rests_with_its_deleted_team(board: Board) -> None:
    await board.store.want_member(board.user, "lead")
    await board.store.delete_team(board.user)
    assert (await board.member("lead")).status is MemberStatus.SHUTDOWN


async def test_a_recreated_team_does_not_obey_the_old_shutdown_request(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await store.delete_team(board.lead, deadline_seconds=5)
    team = await store.create_team("crew", settings={"max_teammates": 5})
    again = Board(store, team, board.worker, board.clock)
    new_ana = await again.teammate("ana")
    assert await again.inbox("ana") == []
    assert (await again.member("ana")).shutdown_request_id is None
    board.clock.advance(60)
    expired = await store.expire_requests()
    assert [request.team_id for request in expired] == [board.id]
    assert (await again.member("ana")).status is MemberStatus.WORKING
    await again.task("for the new one")
    claimed = await store.claim_next_task(new_ana)
    assert claimed is not None
    with pytest.raises((LeaseLost, TeamDeleted)):
        await store.claim_next_task(ana)


async def test_a_team_that_is_deleted_while_others_work_on_it_is_deleted_once_and_whole(board: Board) -> None:
    store = board.store
    members = [await board.teammate(f"m{number}") for number in range(4)]
    await board.tasks(8)
    verbs: list[Coroutine[Any, Any, Any]] = [store.claim_next_task(ref) for ref in members]
    verbs += [store.send(ref, "lead", "hello") for ref in members]
    verbs += [store.delete_team(board.lead), store.delete_team(board.user)]
    random.Random(7).shuffle(verbs)
    outcomes = await asyncio.gather(*verbs, return_exceptions=True)
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, TeamDeleted), outcome
    assert (await board.kinds()).count(EventKind.TEAM_DELETED) == 1
    for ref in members:
        assert (await board.member(ref.name)).shutdown_request_id is not None


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, -1.0])
async def test_a_deadline_that_makes_no_sense_is_refused(board: Board, seconds: float) -> None:
    with pytest.raises(UsageError):
        await board.store.delete_team(board.lead, deadline_seconds=seconds)
    assert (await board.store.get_team(board.id)).deleted_at is None
