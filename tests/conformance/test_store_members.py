"""Members: spawned, joined, hosted, at rest, and brought back with their memory."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import USER, Autonomy, MemberKind, MemberRef, MemberStatus
from bullpen.domain.message import Origin
from bullpen.domain.request import RequestKind, RequestStatus
from bullpen.domain.task import TaskStatus
from bullpen.errors import Conflict, LeaseLost, NotAllowed, NotFound, UsageError
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

# -- spawning ------------------------------------------------------------------------------


async def test_spawning_writes_a_row_that_says_wanted(board: Board) -> None:
    spawned = await board.store.spawn_member(
        board.lead,
        "Ana",
        role="back end",
        prompt="be quick",
        model="scripted:x",
        autonomy=Autonomy.ASSIGNED,
        plan_required=True,
        workspace="/tmp/ana",
    )
    member = spawned.member
    assert spawned.outcome == "created"
    assert (member.name, member.kind, member.status) == ("Ana", MemberKind.TEAMMATE, MemberStatus.WANTED)
    assert (member.role, member.prompt, member.model) == ("back end", "be quick", "scripted:x")
    assert (member.autonomy, member.plan_required, member.workspace) == (Autonomy.ASSIGNED, True, "/tmp/ana")
    assert (member.incarnation, member.worker_id) == (0, None)
    assert await board.member("ana") == member


async def test_a_model_without_a_name_is_no_model(board: Board) -> None:
    spawned = await board.store.spawn_member(board.lead, "ana", model="")
    assert spawned.member.model is None
    assert (await board.store.get_member(board.id, "ana")).model is None


async def test_members_are_listed_in_the_order_in_which_they_came(board: Board) -> None:
    for name in ("zoe", "Ana", "max"):
        await board.teammate(name)
    names = [member.name for member in await board.store.list_members(board.id)]
    assert names == ["lead", "user", "zoe", "Ana", "max"]


async def test_names_are_one_regardless_of_case(board: Board) -> None:
    await board.store.spawn_member(board.lead, "ana")
    spawned = await board.store.spawn_member(board.lead, "ANA")
    assert spawned.outcome != "created"
    names = {member.name for member in await board.store.list_members(board.id)}
    assert names == {"lead", "user", "ana"}


async def test_only_the_lead_or_the_human_spawns(board: Board) -> None:
    ana = await board.teammate("ana")
    with pytest.raises(NotAllowed):
        await board.store.spawn_member(ana, "ben")
    with pytest.raises(NotAllowed):
        await board.store.want_member(ana, "lead")
    with pytest.raises(NotFound):
        await board.member("ben")


async def test_a_team_has_room_for_so_many_teammates_and_no_more(board: Board) -> None:
    store = board.store
    await store.change_team(board.lead, settings={"max_teammates": 2})
    ana = await board.teammate("ana")
    await board.teammate("ben")
    with pytest.raises(Conflict):
        await store.spawn_member(board.lead, "cat")
    await store.shut_down_member(ana)
    await store.spawn_member(board.lead, "cat")
    # The one who left comes back only if there is room again.
    with pytest.raises(Conflict):
        await store.spawn_member(board.lead, "ana")
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN


async def test_two_who_spawn_at_the_same_moment_do_not_exceed_the_room(board: Board) -> None:
    await board.store.change_team(board.lead, settings={"max_teammates": 3})
    verbs = [board.store.spawn_member(board.lead, f"m{number}") for number in range(8)]
    outcomes = await asyncio.gather(*verbs, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 5
    assert len(await board.store.list_members(board.id)) == 5


@pytest.mark.parametrize("nonsense", ["many", None, [], float("inf"), True, -3])
async def test_a_setting_that_is_no_number_does_not_break_spawning(board: Board, nonsense: object) -> None:
    await board.store.change_team(board.lead, settings={"max_teammates": nonsense, "takeover_seconds": nonsense})
    await board.store.spawn_member(board.lead, "ana")


async def test_respawning_an_idle_name_starts_no_second_loop(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    spawned = await board.store.spawn_member(board.lead, "Ana", prompt="also do this")
    assert spawned.outcome == "delivered"
    assert spawned.member.ref == ana
    assert [message.content for message in await board.inbox("ana")] == ["also do this"]
    assert await board.store.host_member(board.worker.id) is None


async def test_respawning_a_working_name_queues_the_prompt_as_mail(board: Board) -> None:
    ana = await board.teammate("ana")
    spawned = await board.store.spawn_member(board.lead, "ana", prompt="also do this")
    assert (spawned.outcome, spawned.member.ref) == ("queued", ana)
    [message] = await board.inbox("ana")
    assert (message.sender, message.content) == ("lead", "also do this")
    await board.store.record_turn(ana, "assistant", "my incarnation is still the one")


async def test_who_lives_keeps_its_role_and_the_log_says_so(board: Board) -> None:
    await board.teammate("ana", role="backend")
    async with board.recording() as seen:
        spawned = await board.store.spawn_member(board.lead, "ana", role="tester", prompt="also do this")
    facts = [event.data for event in seen if event.kind == EventKind.MEMBER_SPAWNED]
    assert spawned.member.role == "backend"
    assert facts == [{"member": "ana", "role": "backend", "outcome": "queued"}]


async def test_a_name_that_was_shut_down_comes_back_with_its_memory(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana", role="backend", prompt="old")
    await store.record_turn(ana, "user", "remember this")
    await store.shut_down_member(ana)
    spawned = await store.spawn_member(board.lead, "ana", prompt="new")
    assert spawned.outcome == "revived"
    assert (spawned.member.role, spawned.member.prompt) == ("backend", "new")
    again = await board.host("ana")
    assert again.incarnation > ana.incarnation
    assert [turn.content for turn in await store.list_turns(board.id, "ana")] == ["remember this"]


async def test_who_comes_back_may_be_told_to_claim_nothing_by_itself(board: Board) -> None:
    await board.timed_out_teammate("ana")
    spawned = await board.store.spawn_member(board.lead, "ana", autonomy=Autonomy.ASSIGNED)
    assert (spawned.outcome, spawned.member.autonomy) == ("revived", Autonomy.ASSIGNED)


async def test_a_prompt_for_one_who_lives_says_whose_it_is(board: Board) -> None:
    await board.teammate("ana")
    for by in (board.lead, board.user):
        await board.store.spawn_member(by, "ana", prompt="also do this")
    assert [(message.sender, message.origin) for message in await board.inbox("ana")] == [
        ("lead", Origin.AGENT),
        ("user", Origin.HUMAN),
    ]


async def test_spawning_with_a_task_of_another_does_nothing(board: Board) -> None:
    await board.teammate("ben")
    task = await board.task(owner="ben")
    with pytest.raises(Conflict):
        await board.store.spawn_member(board.lead, "ana", task_id=task.id)
    assert (await board.get(task.id)).owner == "ben"
    with pytest.raises(NotFound):
        await board.member("ana")


async def test_who_is_shutting_down_is_not_spawned_again_until_it_has(board: Board) -> None:
    await board.teammate("ana")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    with pytest.raises(Conflict):
        await board.store.spawn_member(board.lead, "ana")


async def test_a_plan_gate_that_is_asked_for_stands_when_a_member_is_spawned_again(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana", plan_required=True)
    plan = await store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
    await store.answer_request(board.lead, plan.id, approve=True)
    assert (await board.member("ana")).plan_digest == plan.digest
    await store.spawn_member(board.lead, "ana", plan_required=True)
    member = await board.member("ana")
    assert (member.plan_required, member.plan_digest) == (True, None)


async def test_who_was_not_gated_is_not_when_it_is_spawned_again_without_a_word_of_a_plan(board: Board) -> None:
    await board.teammate("ana")
    spawned = await board.store.spawn_member(board.lead, "ana")
    assert not spawned.member.plan_required


async def test_spawning_with_a_task_assigns_it(board: Board) -> None:
    store = board.store
    task = await board.task()
    async with board.recording() as seen:
        await store.spawn_member(board.lead, "ana", task_id=task.id)
    assigned = next(event for event in seen if event.kind == EventKind.TASK_ASSIGNED)
    assert (assigned.actor, assigned.data["owner"]) == ("lead", "ana")
    assert (await board.get(task.id)).owner == "ana"
    ana = await board.host("ana")
    await board.task("another, which is older to nobody")
    claimed = await store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == task.id


async def test_spawning_with_a_task_that_is_not_free_does_nothing(board: Board) -> None:
    ben = await board.teammate("ben")
    task = await board.claimed(ben)
    with pytest.raises(Conflict):
        await board.store.spawn_member(board.lead, "ana", task_id=task.id)
    with pytest.raises(NotFound):
        await board.store.spawn_member(board.lead, "ana", task_id=99)
    with pytest.raises(NotFound):
        await board.member("ana")


# -- joining -------------------------------------------------------------------------------


async def test_an_external_member_joins_as_working(board: Board) -> None:
    member = await board.store.join_member(board.worker.id, board.id, "cat", role="tester")
    assert (member.kind, member.status, member.incarnation) == (MemberKind.EXTERNAL, MemberStatus.WORKING, 1)
    assert (member.role, member.worker_id) == ("tester", board.worker.id)


async def test_one_who_left_joins_again_as_the_next_incarnation(board: Board) -> None:
    cat = await board.external("cat", role="tester")
    await board.store.shut_down_member(cat)
    again = await board.store.join_member(board.worker.id, board.id, "CAT")
    assert (again.name, again.role, again.status) == ("cat", "tester", MemberStatus.WORKING)
    assert again.incarnation > cat.incarnation
    with pytest.raises(LeaseLost):
        await board.store.send(cat, "lead", "I am the old one")


async def test_a_name_that_is_in_use_cannot_be_joined(board: Board) -> None:
    await board.external("cat")
    other = await board.store.register_worker()
    with pytest.raises(Conflict):
        await board.store.join_member(other.id, board.id, "cat")


async def test_a_name_is_free_once_its_worker_was_declared_dead(board: Board) -> None:
    other = await board.store.register_worker()
    cat = await board.external("cat", worker=other)
    await board.store.lapse_worker(other.id, renewals_seen=None)
    again = await board.external("cat")
    assert again.incarnation > cat.incarnation


async def test_a_teammate_cannot_be_joined_and_an_external_member_not_spawned(board: Board) -> None:
    await board.store.spawn_member(board.lead, "ana")
    await board.external("cat")
    with pytest.raises(Conflict):
        await board.store.join_member(board.worker.id, board.id, "ana")
    with pytest.raises(UsageError):
        await board.store.spawn_member(board.lead, "cat")
    with pytest.raises(UsageError):
        await board.store.want_member(board.lead, "cat")


async def test_one_of_many_who_join_under_one_name_wins(board: Board) -> None:
    verbs = [board.store.join_member(board.worker.id, board.id, "cat") for _ in range(6)]
    outcomes = await asyncio.gather(*verbs, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 5


async def test_joining_an_unknown_team_or_by_an_unknown_worker_is_not_found(board: Board) -> None:
    with pytest.raises(NotFound):
        await board.store.join_member(board.worker.id, 99, "cat")
    with pytest.raises(NotFound):
        await board.store.join_member(99, board.id, "cat")


# -- hosting -------------------------------------------------------------------------------


async def test_the_longest_wanted_of_a_team_is_hosted_first(board: Board) -> None:
    for name in ("zoe", "ana", "moe"):
        board.clock.advance(1)
        await board.store.spawn_member(board.lead, name)
    hosted = [await board.store.host_member(board.worker.id, team_id=board.id) for _ in range(3)]
    assert [member.name for member in hosted if member is not None] == ["zoe", "ana", "moe"]


async def test_the_longest_wanted_is_hosted_first(board: Board) -> None:
    for name in ("zoe", "ana"):
        await board.store.spawn_member(board.lead, name)
        board.clock.advance(1)
    hosted = [await board.store.host_member(board.worker.id) for _ in range(3)]
    assert [member.name if member else None for member in hosted] == ["zoe", "ana", None]
    zoe = hosted[0]
    assert zoe is not None
    assert (zoe.status, zoe.incarnation, zoe.worker_id) == (MemberStatus.WORKING, 1, board.worker.id)


async def test_a_worker_hosts_only_members_of_the_team_it_asks_for(board: Board) -> None:
    other = await board.store.create_team("other")
    await board.store.spawn_member(board.lead, "ana")
    assert await board.store.host_member(board.worker.id, team_id=other.id) is None
    assert await board.store.host_member(board.worker.id, team_id=board.id) is not None


async def test_a_worker_takes_no_more_than_it_has_slots(board: Board) -> None:
    small = await board.store.register_worker(slots=1)
    await board.external("cat", worker=small)
    for name in ("ana", "ben"):
        await board.store.spawn_member(board.lead, name)
    first = await board.store.host_member(small.id)
    assert first is not None, "an external member takes no slot"
    assert await board.store.host_member(small.id) is None
    await board.store.shut_down_member(first.ref)
    assert await board.store.host_member(small.id) is not None
    none = await board.store.register_worker(slots=0)
    assert await board.store.host_member(none.id) is None


async def test_a_lead_finds_room_where_its_teammates_hold_every_slot(board: Board) -> None:
    small = await board.store.register_worker(slots=1)
    await board.store.spawn_member(board.lead, "ana")
    await board.store.spawn_member(board.lead, "ben")
    assert await board.store.host_member(small.id) is not None
    await board.store.want_member(board.user, "lead")
    lead = await board.store.host_member(small.id)
    assert lead is not None
    assert lead.name == "lead"
    assert await board.store.host_member(small.id) is None, "ben has no room"


async def test_each_wanted_member_is_hosted_once_however_many_workers_try(
    board: Board, open_another: OpenAnother
) -> None:
    other = await open_another()
    theirs = await other.register_worker(slots=100)
    for number in range(10):
        await board.store.spawn_member(board.lead, f"m{number}")
    verbs = [board.store.host_member(board.worker.id) for _ in range(10)]
    verbs += [other.host_member(theirs.id) for _ in range(10)]
    hosted = [member for member in await asyncio.gather(*verbs) if member is not None]
    assert sorted(member.name for member in hosted) == [f"m{number}" for number in range(10)]
    assert {member.incarnation for member in hosted} == {1}


async def test_the_lead_is_hosted_when_it_is_wanted(board: Board) -> None:
    wanted = await board.store.want_member(board.user, "lead")
    assert wanted.status is MemberStatus.WANTED
    lead = await board.host("lead")
    assert await board.store.want_member(board.user, "lead") == await board.member("lead")
    with pytest.raises(LeaseLost):
        await board.store.create_task(board.lead, "by an old lead")
    await board.store.create_task(lead, "by the hosted one")


async def test_wanting_one_who_is_up_or_wanted_changes_nothing(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.store.spawn_member(board.lead, "ben")
    async with board.recording() as seen:
        assert (await board.store.want_member(board.lead, "ana")).ref == ana
        assert (await board.store.want_member(board.lead, "ben")).status is MemberStatus.WANTED
    assert seen == []
    with pytest.raises(NotFound):
        await board.store.want_member(board.lead, "nobody")
    with pytest.raises(UsageError):
        await board.store.want_member(board.lead, "user")


async def test_a_loop_that_is_over_writes_nothing_once_its_member_is_wanted_again(board: Board) -> None:
    ana = await board.timed_out_teammate("ana")
    await board.store.send(board.user, "ana", "come back")
    assert (await board.member("ana")).status is MemberStatus.WANTED
    with pytest.raises(LeaseLost):
        await board.store.set_member_status(ana, MemberStatus.WORKING)
    with pytest.raises(LeaseLost):
        await board.store.record_turn(ana, "assistant", "I was gone")
    assert await board.host("ana")


async def test_a_lead_that_is_over_writes_nothing_once_it_is_wanted_again(board: Board) -> None:
    """One that nobody hosts may write, for whoever leads from outside: so its incarnation ends here."""
    await board.store.want_member(board.user, "lead")
    old = await board.host("lead")
    await board.store.shut_down_member(old)
    await board.store.want_member(board.user, "lead")
    with pytest.raises(LeaseLost):
        await board.store.record_turn(old, "assistant", "I was gone")
    assert await board.host("lead")


# -- status --------------------------------------------------------------------------------


async def test_a_member_changes_its_own_status(board: Board) -> None:
    ana = await board.teammate("ana")
    board.clock.advance(5)
    for status in (MemberStatus.IDLE, MemberStatus.WAITING, MemberStatus.WORKING):
        member = await board.store.set_member_status(ana, status, reason="because")
        assert (member.status, member.status_reason, member.status_at) == (status, "because", board.clock.now())
        assert await board.member("ana") == member


async def test_a_status_write_never_erases_a_shutdown(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    request = await store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await store.answer_request(ana, request.id, approve=True)
    for status in (MemberStatus.WORKING, MemberStatus.IDLE, MemberStatus.WAITING):
        with pytest.raises(Conflict):
            await store.set_member_status(ana, status)
    assert (await board.member("ana")).status is MemberStatus.STOPPING
    assert (await store.shut_down_member(ana)).status is MemberStatus.SHUTDOWN
    with pytest.raises(LeaseLost):
        await store.set_member_status(ana, MemberStatus.WORKING)
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN


async def test_the_end_of_a_phase_does_not_erase_a_shutdown(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.answer_request(ana, request.id, approve=True)
    member = await board.store.end_phase(ana, why="no_tool_use", result="done")
    assert member.status is MemberStatus.STOPPING


@pytest.mark.parametrize("status", [MemberStatus.WANTED, MemberStatus.SHUTDOWN])
async def test_a_member_neither_wants_nor_ends_itself_by_a_status(board: Board, status: MemberStatus) -> None:
    """It would keep its worker, its task and its open request: there are verbs for that."""
    ana = await board.teammate("ana")
    with pytest.raises(UsageError):
        await board.store.set_member_status(ana, status)
    with pytest.raises(UsageError):
        await board.store.end_phase(ana, why="error", status=status)
    assert (await board.member("ana")).status is MemberStatus.WORKING


async def test_counters_are_merged_and_none_removes_one(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.set_member_counters(ana, {"turns": 3, "reminded": True})
    member = await board.store.set_member_counters(ana, {"turns": 4, "reminded": None, "task": 7})
    assert member.counters == {"turns": 4, "task": 7}
    assert (await board.member("ana")).counters == member.counters


# -- leaving -------------------------------------------------------------------------------


async def test_leaving_gives_the_task_back(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    member = await board.store.shut_down_member(ana, reason="finished")
    assert (member.status, member.status_reason, member.worker_id) == (MemberStatus.SHUTDOWN, "finished", None)
    back = await board.get(task.id)
    assert (back.status, back.owner, back.handovers[-1].by) == (TaskStatus.PENDING, None, "ana")
    with pytest.raises(LeaseLost):
        await board.store.complete_task(ana, task.id)


async def test_leaving_answers_the_open_shutdown_request(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    member = await board.store.shut_down_member(ana)
    assert member.status_reason == "asked"
    closed = await board.store.get_request(board.id, request.id)
    assert (closed.status, closed.approved) == (RequestStatus.ANSWERED, True)
    assert [message.request_id for message in await board.inbox("lead")] == [request.id]


async def test_leaving_withdraws_what_the_member_had_asked(board: Board) -> None:
    """Else the run would wait for ever for an answer that nobody needs."""
    store = board.store
    ana = await board.teammate("ana")
    plan = await store.open_request(ana, RequestKind.PLAN, "lead", content="a plan")
    permission = await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
    await store.shut_down_member(ana)
    for request in (plan, permission):
        assert (await store.get_request(board.id, request.id)).status is RequestStatus.CANCELLED


async def test_a_lead_that_leaves_does_not_take_its_shutdown_requests_along(board: Board) -> None:
    await board.store.want_member(board.user, "lead")
    lead = await board.host("lead")
    await board.teammate("ana")
    request = await board.store.open_request(lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=30)
    await board.store.shut_down_member(lead)
    assert (await board.store.get_request(board.id, request.id)).status is RequestStatus.OPEN


async def test_the_human_cannot_be_shut_down(board: Board) -> None:
    with pytest.raises(NotAllowed):
        await board.store.shut_down_member(board.user)
    with pytest.raises(UsageError):
        await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "user")


async def test_the_human_cannot_be_released_and_keeps_its_incarnation(board: Board) -> None:
    with pytest.raises(NotAllowed):
        await board.store.release_member(board.user, note="crashed")
    assert (await board.member("user")).incarnation == 0


async def test_a_loop_that_crashed_is_released_like_a_lapse(board: Board) -> None:
    """In a living worker: the slot that it leaves is free for it, so its task waits for it."""
    only = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=only)
    task = await board.claimed(ana)
    member = await board.store.release_member(ana, note="KeyError: 'name'")
    assert (member.status, member.worker_id) == (MemberStatus.WANTED, None)
    assert member.incarnation == ana.incarnation + 1
    reserved = await board.get(task.id)
    assert (reserved.status, reserved.owner) == (TaskStatus.IN_PROGRESS, "ana")
    assert reserved.reserved_until is not None
    assert any("KeyError" in message.content for message in await board.inbox("lead"))
    again = await board.host("ana", worker=only)
    assert (await board.get(task.id)).reserved_until is None
    await board.store.complete_task(again, task.id)


async def test_a_member_whose_worker_is_about_to_leave_goes_on_elsewhere_with_its_task(board: Board) -> None:
    leaving, other = await board.store.register_worker(slots=1), await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=leaving)
    task = await board.claimed(ana)
    member = await board.store.rest_member(ana)
    assert (member.status, member.worker_id, member.incarnation) == (MemberStatus.WANTED, None, ana.incarnation + 1)
    reserved = await board.get(task.id)
    assert (reserved.status, reserved.owner) == (TaskStatus.IN_PROGRESS, "ana")
    assert await board.inbox("lead") == [], "nothing went wrong: nobody need be told"
    again = await board.host("ana", worker=other)
    await board.store.complete_task(again, task.id)


async def test_a_lead_that_nobody_hosts_is_left_as_it_is(board: Board) -> None:
    before = await board.member("lead")
    assert await board.store.rest_member(board.lead) == before


async def test_an_external_member_that_is_released_rests(board: Board) -> None:
    cat = await board.external("cat")
    task = await board.claimed(cat)
    member = await board.store.release_member(cat, note="crashed")
    assert member.status is MemberStatus.SHUTDOWN
    assert (await board.get(task.id)).owner is None


# -- the last look -------------------------------------------------------------------------


async def test_the_last_look_ends_who_has_nothing(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    assert await board.store.leave_if_nothing(ana) is None
    member = await board.member("ana")
    assert (member.status, member.status_reason) == (MemberStatus.SHUTDOWN, "timeout")


async def test_the_last_look_finds_mail(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.store.send(board.user, "ana", "wait")
    assert await board.store.leave_if_nothing(ana) == "mail"
    assert (await board.member("ana")).status is MemberStatus.IDLE


async def test_mail_that_does_not_wake_keeps_nobody(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.store.notify(board.id, "ana", "by the way", wakes=False)
    assert await board.store.leave_if_nothing(ana) is None


async def test_the_last_look_finds_a_shutdown(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    assert await board.store.leave_if_nothing(ana) == "shutdown"


async def test_the_idle_clock_stands_while_a_task_could_become_the_members(board: Board) -> None:
    """The seeds' frontend waits for #4 however long the backend needs."""
    ana = await board.idle_teammate("ana", role="frontend")
    ben = await board.teammate("ben", role="backend")
    api = await board.claimed(ben, "the API", role="backend")
    page = await board.task("the page", role="frontend", blocked_by=[api.id])
    assert await board.store.leave_if_nothing(ana) == "task"
    await board.store.complete_task(ben, api.id)
    assert await board.store.leave_if_nothing(ana) == "task"
    await board.store.claim_task(ana, page.id)
    assert await board.store.leave_if_nothing(ana) == "task"
    await board.store.complete_task(ana, page.id)
    assert await board.store.leave_if_nothing(ana) is None


async def test_a_task_for_others_keeps_nobody(board: Board) -> None:
    ana = await board.idle_teammate("ana", role="frontend")
    await board.teammate("ben", role="backend")
    await board.task("backend work", role="backend")
    await board.task("ben's", owner="ben")
    assert await board.store.leave_if_nothing(ana) is None


async def test_who_claims_nothing_by_itself_waits_only_for_what_it_was_given(board: Board) -> None:
    ana = await board.idle_teammate("ana", autonomy=Autonomy.ASSIGNED)
    blocker = await board.task("for anyone")
    mine = await board.task("hers", owner="ana", blocked_by=[blocker.id])
    assert await board.store.leave_if_nothing(ana) == "task"
    await board.store.delete_task(board.user, mine.id)
    assert await board.store.leave_if_nothing(ana) is None


async def test_looking_for_work_takes_nothing(board: Board) -> None:
    store = board.store
    ana = await board.idle_teammate("ana", role="backend")
    assert await store.find_work(ana) is None
    task = await board.task(role="Backend")
    assert await store.find_work(ana) == "task"
    await store.send(board.user, "ana", "hello")
    assert await store.find_work(ana) == "mail"
    await store.take_mail(ana)
    await store.claim_task(ana, task.id)
    await board.task("another")
    assert await store.find_work(ana) is None, "her hands are full"
    await store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    assert await store.find_work(ana) == "shutdown"
    await store.shut_down_member(ana)
    with pytest.raises(LeaseLost):
        await store.find_work(ana)


# -- coming back ---------------------------------------------------------------------------


async def test_mail_revives_who_timed_out(board: Board) -> None:
    await board.timed_out_teammate("ana")
    [receipt] = await board.store.send(board.user, "ana", "one more thing")
    assert receipt.outcome == "revives"
    assert (await board.member("ana")).status is MemberStatus.WANTED
    ana = await board.host("ana")
    taken = await board.store.take_mail(ana)
    assert taken is not None
    assert [message.content for message in taken.messages] == ["one more thing"]


async def test_a_member_is_revived_once(board: Board) -> None:
    await board.timed_out_teammate("ana")
    verbs = [board.store.send(board.user, "ana", f"mail {number}") for number in range(5)]
    outcomes = sorted(receipt.outcome for receipts in await asyncio.gather(*verbs) for receipt in receipts)
    assert outcomes == ["queued"] * 4 + ["revives"]
    assert (await board.kinds()).count(EventKind.MEMBER_WANTED) == 1


async def test_a_task_revives_one_of_those_who_could_take_it(board: Board) -> None:
    await board.timed_out_teammate("ana", role="backend")
    await board.timed_out_teammate("ben", role="backend")
    await board.timed_out_teammate("cat", role="frontend")
    await board.task("the API", role="Backend")
    wanted = [m.name for m in await board.store.list_members(board.id) if m.status is MemberStatus.WANTED]
    assert wanted == ["ana"]


@pytest.mark.parametrize("status", [MemberStatus.WORKING, MemberStatus.WAITING, MemberStatus.WANTED])
async def test_a_task_that_somebody_up_can_take_revives_nobody(board: Board, status: MemberStatus) -> None:
    await board.timed_out_teammate("ana")
    ben = await board.teammate("ben")
    if status is MemberStatus.WANTED:
        await board.store.rest_member(ben)
    else:
        await board.store.set_member_status(ben, status)
    await board.task()
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN


async def test_a_task_given_to_one_who_timed_out_revives_it(board: Board) -> None:
    await board.timed_out_teammate("ana")
    await board.idle_teammate("ben")
    await board.task("hers", owner="ana")
    assert (await board.member("ana")).status is MemberStatus.WANTED


async def test_when_the_last_one_up_leaves_a_task_revives_who_timed_out(board: Board) -> None:
    """Not a stall, since a revivable member may claim it; so somebody has to revive it."""
    await board.timed_out_teammate("ana", role="backend")
    ben = await board.teammate("ben", role="backend")
    await board.task("nobody was revived for this", role="backend")
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN
    await board.store.shut_down_member(ben)
    assert (await board.member("ana")).status is MemberStatus.WANTED


async def test_when_the_last_one_up_is_asked_to_stop_a_task_revives_who_timed_out(board: Board) -> None:
    await board.timed_out_teammate("ana")
    await board.teammate("ben")
    await board.task()
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ben")
    assert (await board.member("ana")).status is MemberStatus.WANTED


@pytest.mark.parametrize("what", ["mail", "an assigned task", "a task that only it could take"])
async def test_who_times_out_without_a_last_look_is_brought_back_by(board: Board, what: str) -> None:
    ana = await board.idle_teammate("ana")
    if what == "mail":
        await board.store.send(board.user, "ana", "hello")
    else:
        await board.task(owner="ana" if what == "an assigned task" else None)
    member = await board.store.shut_down_member(ana, reason="timeout")
    assert member == await board.member("ana")
    assert member.status is MemberStatus.WANTED


async def test_nobody_writes_for_a_member_that_no_worker_hosts(board: Board) -> None:
    """Its row can be read by anyone: that alone is no right to act for it."""
    await board.task()
    wanted = (await board.store.spawn_member(board.lead, "ana")).member
    with pytest.raises(LeaseLost):
        await board.store.claim_task(wanted.ref, 1)
    with pytest.raises(LeaseLost):
        await board.store.set_member_status(wanted.ref, MemberStatus.STOPPING)
    assert (await board.host("ana")).incarnation == wanted.incarnation + 1


async def test_a_holder_that_goes_idle_lets_another_be_revived(board: Board) -> None:
    """ben waits for mail, holding #1; nobody else is up for #2."""
    await board.timed_out_teammate("ana")
    ben = await board.teammate("ben")
    await board.tasks(2)
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN
    await board.store.claim_task(ben, 1)
    await board.store.end_phase(ben, why="awaiting_messages")
    assert (await board.member("ana")).status is MemberStatus.WANTED


async def test_who_was_asked_to_stop_is_not_revived(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.shut_down_member(ana)
    [receipt] = await board.store.send(board.user, "ana", "are you there?")
    assert receipt.outcome == "kept"
    await board.task()
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN
    assert (await board.store.want_member(board.lead, "ana")).status is MemberStatus.WANTED


async def test_an_unknown_member_is_not_found(board: Board) -> None:
    with pytest.raises(NotFound):
        await board.store.get_member(board.id, "nobody")
    with pytest.raises(NotFound):
        await board.store.get_member(99, "lead")


async def test_a_crowd_is_hosted_at_once_but_not_beyond_the_slots(board: Board) -> None:
    store, team = board.store, board.team
    worker = await store.register_worker(slots=3)
    for number in range(5):
        await store.spawn_member(board.user, f"m{number}")
    hosted = await store.host_members(worker.id, team_id=team.id, limit=4)
    assert [member.name for member in hosted] == ["m0", "m1", "m2"]
    assert {(member.status, member.worker_id, member.incarnation) for member in hosted} == {
        (MemberStatus.WORKING, worker.id, 1)
    }
    assert await store.host_members(worker.id, limit=4) == []
    await store.want_member(board.user, "lead")
    assert [member.name for member in await store.host_members(worker.id, limit=4)] == ["lead"], "it takes no slot"
    assert [member.name for member in await store.host_members((await store.register_worker(slots=9)).id, limit=1)] == [
        "m3"
    ]


async def test_nobody_is_hosted_of_teams_that_a_worker_leaves_to_others(board: Board) -> None:
    store = board.store
    other = await store.create_team("other")
    worker = await store.register_worker(slots=9)
    await store.spawn_member(board.user, "ana")
    await store.spawn_member(MemberRef(other.id, USER, 0), "ben")
    assert await store.host_members(worker.id, team_id=board.id, except_teams=[board.id]) == []
    assert await store.host_members(worker.id, except_teams=[other.id, board.id], limit=4) == []
    assert [member.name for member in await store.host_members(worker.id, except_teams=[board.id], limit=4)] == ["ben"]
    assert (await board.member("ana")).status is MemberStatus.WANTED
    assert [member.name for member in await store.host_members(worker.id, limit=4)] == ["ana"]
