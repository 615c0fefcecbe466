"""Requests: one step out of open, by the one who was asked, bound to what was asked."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.message import MessageType, Origin
from bullpen.domain.request import PermissionScope, RequestKind, RequestStatus
from bullpen.domain.task import TaskStatus
from bullpen.errors import Conflict, LeaseLost, NotAllowed, NotFound, UsageError
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

# -- asking --------------------------------------------------------------------------------


async def test_a_request_is_asked_with_mail_that_carries_its_number(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(
        ana, RequestKind.PLAN, "LEAD", content="1. look 2. do", payload={"files": ["a.py"]}, timeout_seconds=60
    )
    assert (request.id, request.kind, request.status) == (1, RequestKind.PLAN, RequestStatus.OPEN)
    assert (request.asker, request.asked, request.content) == ("ana", "lead", "1. look 2. do")
    assert (request.payload, request.approved, request.closed_at) == ({"files": ["a.py"]}, None, None)
    assert request.digest
    assert request.open_until is not None
    assert (request.open_until - board.clock.now()).total_seconds() == 60
    [message] = await board.inbox("lead")
    assert (message.type, message.request_id) == (MessageType.PLAN_APPROVAL_REQUEST, request.id)
    assert (message.sender, message.content) == ("ana", "1. look 2. do")
    assert await board.store.get_request(board.id, 1) == request


async def test_requests_are_listed_by_status_and_by_whom_they_ask(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    plan = await store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
    permission = await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
    await store.answer_request(board.lead, plan.id, approve=True)
    assert [request.id for request in await store.list_requests(board.id)] == [plan.id, permission.id]
    [open_one] = await store.list_requests(board.id, status=RequestStatus.OPEN)
    assert open_one.id == permission.id
    assert [request.id for request in await store.list_requests(board.id, asked="USER")] == [permission.id]
    assert await store.list_requests(board.id, status=RequestStatus.OPEN, asked="lead") == []
    with pytest.raises(NotFound):
        await store.get_request(board.id, 99)


async def test_asking_nobody_is_an_error(board: Board) -> None:
    ana = await board.teammate("ana")
    for kind in (RequestKind.PLAN, RequestKind.PERMISSION):
        with pytest.raises(NotFound):
            await board.store.open_request(ana, kind, "nobody", content="?")
    with pytest.raises(NotFound):
        await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "nobody")


async def test_plans_and_permissions_are_decided_by_the_lead_or_the_human(board: Board) -> None:
    ana, _ = await board.teammate("ana"), await board.teammate("ben")
    for kind in (RequestKind.PLAN, RequestKind.PERMISSION):
        for asked in ("ben", "ana"):
            with pytest.raises(UsageError):
                await board.store.open_request(ana, kind, asked, content="you decide")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, -1.0])
async def test_a_timeout_that_makes_no_sense_is_refused(board: Board, seconds: float) -> None:
    ana = await board.teammate("ana")
    with pytest.raises(UsageError):
        await board.store.open_request(ana, RequestKind.PLAN, "lead", content="x", timeout_seconds=seconds)
    assert await board.store.list_requests(board.id) == []


# -- answering -----------------------------------------------------------------------------


async def test_a_plan_can_be_approved_and_opens_the_gate_for_exactly_that_plan(board: Board) -> None:
    ana = await board.teammate("ana", plan_required=True)
    plan = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="the plan")
    board.clock.advance(2)
    answered = await board.store.answer_request(board.lead, plan.id, approve=True, reason="good")
    assert (answered.status, answered.approved, answered.reason) == (RequestStatus.ANSWERED, True, "good")
    assert answered.closed_at == board.clock.now()
    assert await board.store.get_request(board.id, plan.id) == answered
    assert (await board.member("ana")).plan_digest == plan.digest
    [message] = await board.inbox("ana")
    assert (message.type, message.request_id) == (MessageType.PLAN_APPROVAL_RESPONSE, plan.id)
    assert "good" in message.content
    other = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="another plan")
    assert other.digest != plan.digest


async def test_a_rejected_plan_opens_nothing_and_a_new_one_may_follow(board: Board) -> None:
    ana = await board.teammate("ana", plan_required=True)
    plan = await board.store.open_request(ana, RequestKind.PLAN, "user", content="rm -rf")
    await board.store.answer_request(board.user, plan.id, approve=False, reason="no!")
    assert (await board.member("ana")).plan_digest is None
    [message] = await board.inbox("ana")
    assert message.origin is Origin.HUMAN
    better = await board.store.open_request(ana, RequestKind.PLAN, "user", content="git rm")
    await board.store.answer_request(board.user, better.id, approve=True)
    assert (await board.member("ana")).plan_digest == better.digest


async def test_only_the_one_asked_may_answer(board: Board) -> None:
    store = board.store
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    plan = await store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
    permission = await store.open_request(ana, RequestKind.PERMISSION, "user", content="may I?")
    shutdown = await store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    wrong: list[tuple[MemberRef, int]] = [
        (ana, plan.id),
        (ben, plan.id),
        (board.user, plan.id),
        (ana, permission.id),
        (board.lead, permission.id),
        (ben, shutdown.id),
        (board.lead, shutdown.id),
        (board.user, shutdown.id),
    ]
    for by, number in wrong:
        with pytest.raises(NotAllowed):
            await store.answer_request(by, number, approve=True)
    assert len(await store.list_requests(board.id, status=RequestStatus.OPEN)) == 3
    assert (await board.member("ana")).plan_digest is None


async def test_a_request_is_answered_once(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    ana = await board.teammate("ana")
    for _ in range(5):
        plan = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
        outcomes = await asyncio.gather(
            board.store.answer_request(board.lead, plan.id, approve=True),
            other.answer_request(board.lead, plan.id, approve=False),
            board.store.cancel_request(ana, plan.id),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "Conflict", "Request"]
        closings = [e for e in await board.events() if e.kind == EventKind.REQUEST_CLOSED]
        assert [e.data["request"] for e in closings].count(plan.id) == 1


async def test_a_new_plan_supersedes_the_old_one(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    theirs = await board.store.open_request(ben, RequestKind.PLAN, "lead", content="ben's")
    old = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="old")
    new = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="new")
    statuses = [(await board.store.get_request(board.id, number)).status for number in (theirs.id, old.id, new.id)]
    assert statuses == [RequestStatus.OPEN, RequestStatus.SUPERSEDED, RequestStatus.OPEN]
    with pytest.raises(Conflict):
        await board.store.answer_request(board.lead, old.id, approve=True)
    assert (await board.member("ana")).plan_digest is None


async def test_the_same_permission_is_asked_for_once(board: Board) -> None:
    ana = await board.teammate("ana")
    first, other, again = [
        await board.store.open_request(ana, RequestKind.PERMISSION, "user", content="bash", digest=digest)
        for digest in ("d1", "d2", "d1")
    ]
    open_ones = await board.store.list_requests(board.id, status=RequestStatus.OPEN)
    assert [request.id for request in open_ones] == [other.id, again.id]
    assert (await board.store.get_request(board.id, first.id)).status is RequestStatus.SUPERSEDED


async def test_a_permission_says_how_far_it_reaches(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(
        ana, RequestKind.PERMISSION, "user", content="git push", payload={"call_id": "c1"}, digest="d"
    )
    answered = await board.store.answer_request(board.user, request.id, approve=True, scope=PermissionScope.TEAM)
    assert answered.scope is PermissionScope.TEAM
    stored = await board.store.get_request(board.id, request.id)
    assert (stored.scope, stored.digest, stored.payload) == (PermissionScope.TEAM, "d", {"call_id": "c1"})


async def test_only_the_asker_or_the_lead_takes_a_request_back(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    one = await board.store.open_request(ana, RequestKind.PERMISSION, "user", content="1", digest="1")
    two = await board.store.open_request(ana, RequestKind.PERMISSION, "user", content="2", digest="2")
    with pytest.raises(NotAllowed):
        await board.store.cancel_request(ben, one.id)
    assert (await board.store.cancel_request(ana, one.id)).status is RequestStatus.CANCELLED
    assert (await board.store.cancel_request(board.lead, two.id)).status is RequestStatus.CANCELLED
    with pytest.raises(Conflict):
        await board.store.cancel_request(ana, one.id)


async def test_who_waits_for_an_answer_is_woken_when_its_request_is_taken_back(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="a plan")
    await board.store.set_member_status(ana, MemberStatus.WAITING)
    async with board.listening([ana]) as ears:
        await board.store.cancel_request(board.lead, request.id)
        assert await ears.heard("ana")


# -- deadlines -----------------------------------------------------------------------------


async def test_a_request_that_nobody_answers_expires_and_the_asker_is_told(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(ana, RequestKind.PERMISSION, "user", content="?", timeout_seconds=10)
    forever = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
    board.clock.advance(9)
    assert await board.store.expire_requests() == []
    board.clock.advance(2)
    [expired] = await board.store.expire_requests()
    assert (expired.id, expired.status, expired.approved) == (request.id, RequestStatus.EXPIRED, None)
    assert await board.store.expire_requests() == []
    with pytest.raises(Conflict):
        await board.store.answer_request(board.user, request.id, approve=True)
    [message] = await board.inbox("ana")
    assert message.request_id == request.id
    assert (await board.store.get_request(board.id, forever.id)).status is RequestStatus.OPEN


# -- shutdown ------------------------------------------------------------------------------


async def test_only_the_lead_or_the_human_asks_for_a_shutdown(board: Board) -> None:
    ana, _ = await board.teammate("ana"), await board.teammate("ben")
    with pytest.raises(NotAllowed):
        await board.store.open_request(ana, RequestKind.SHUTDOWN, "ben")
    with pytest.raises(NotAllowed):
        await board.store.open_request(ana, RequestKind.SHUTDOWN, "lead")
    assert (await board.member("ben")).shutdown_request_id is None


async def test_a_shutdown_is_bound_to_an_incarnation(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", content="thanks")
    assert request.incarnation == ana.incarnation
    assert (await board.member("ana")).shutdown_request_id == request.id
    [message] = await board.inbox("ana")
    assert (message.type, message.content) == (MessageType.SHUTDOWN_REQUEST, "thanks")


@pytest.mark.parametrize("end", ["leave", "answer", "cancel", "expire", "lapse"])
async def test_who_comes_back_does_not_read_a_shutdown_that_is_over(board: Board, end: str) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await store.send(board.lead, "ana", "before")
    request = await store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=30)
    await store.send(board.lead, "ana", "after")
    match end:
        case "leave":
            await store.shut_down_member(ana, reason="asked")
        case "answer":
            await store.answer_request(ana, request.id, approve=False, reason="not yet")
        case "cancel":
            await store.cancel_request(board.lead, request.id)
        case "expire":
            board.clock.advance(31)
            await store.expire_requests()
        case "lapse":
            await store.lapse_worker(board.worker.id, renewals_seen=None)
    waiting = await board.inbox("ana", undelivered_only=True)
    assert [message.content for message in waiting] == ["before", "after"]


async def test_a_yes_to_a_shutdown_leads_nowhere_but_out(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.answer_request(ana, request.id, approve=True, reason="bye")
    assert (await board.member("ana")).status is MemberStatus.STOPPING
    [message] = await board.inbox("lead")
    assert (message.type, message.request_id) == (MessageType.SHUTDOWN_RESPONSE, request.id)
    rested = await board.store.shut_down_member(ana)
    assert (rested.status, rested.status_reason, rested.shutdown_request_id) == (MemberStatus.SHUTDOWN, "asked", None)
    assert (await board.get(task.id)).status is TaskStatus.PENDING
    assert len(await board.inbox("lead")) == 1, "it was answered once"


async def test_a_yes_to_a_shutdown_is_in_the_log_as_a_status(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    async with board.recording() as seen:
        await board.store.answer_request(ana, request.id, approve=True)
    [changed] = [event for event in seen if event.kind == EventKind.MEMBER_STATUS_CHANGED]
    assert (changed.data["member"], changed.data["status"]) == ("ana", MemberStatus.STOPPING)


async def test_a_no_to_a_shutdown_is_reported_and_the_member_stays(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=30)
    answered = await board.store.answer_request(ana, request.id, approve=False, reason="one more test")
    assert answered.approved is False
    member = await board.member("ana")
    assert (member.status, member.shutdown_request_id) == (MemberStatus.WORKING, None)
    assert "one more test" in (await board.inbox("lead"))[-1].content
    board.clock.advance(60)
    assert await board.store.expire_requests() == []


async def test_asking_one_who_is_gone_answers_at_once(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.shut_down_member(ana)
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    assert (request.status, request.approved) == (RequestStatus.ANSWERED, True)
    assert await board.store.get_request(board.id, request.id) == request
    assert (await board.member("ana")).shutdown_request_id is None
    assert await board.store.list_requests(board.id, status=RequestStatus.OPEN) == []


async def test_asking_one_who_was_never_hosted_ends_it_at_once(board: Board) -> None:
    await board.store.spawn_member(board.lead, "ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    assert request.approved is True
    assert (await board.member("ana")).status is MemberStatus.SHUTDOWN
    assert await board.store.host_member(board.worker.id) is None


async def test_a_second_shutdown_request_supersedes_the_first(board: Board) -> None:
    ana = await board.teammate("ana")
    first = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=5)
    second = await board.store.open_request(board.user, RequestKind.SHUTDOWN, "ana", timeout_seconds=60)
    assert (await board.store.get_request(board.id, first.id)).status is RequestStatus.SUPERSEDED
    assert (await board.member("ana")).shutdown_request_id == second.id
    board.clock.advance(10)
    assert await board.store.expire_requests() == []
    with pytest.raises(Conflict):
        await board.store.answer_request(ana, first.id, approve=True)
    await board.store.answer_request(ana, second.id, approve=True)


async def test_the_deadline_of_a_shutdown_wins_over_a_running_call(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await board.open_call(ana)
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=30)
    board.clock.advance(31)
    [expired] = await board.store.expire_requests()
    assert expired.status is RequestStatus.EXPIRED
    member = await board.member("ana")
    assert (member.status, member.status_reason, member.worker_id) == (MemberStatus.SHUTDOWN, "forced", None)
    assert member.incarnation == ana.incarnation + 1
    assert (await board.get(task.id)).owner is None
    assert any("force" in message.content for message in await board.inbox("lead"))
    with pytest.raises(LeaseLost):
        await board.store.finish_call(ana, "call-1", "done at last")


async def test_the_deadline_of_a_shutdown_counts_until_who_said_yes_has_left(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    task = await board.claimed(ana)
    for ref in (ana, ben):
        request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, ref.name, timeout_seconds=30)
        await board.store.answer_request(ref, request.id, approve=True)
    await board.store.shut_down_member(ben)
    board.clock.advance(29)
    assert await board.store.expire_requests() == []
    board.clock.advance(2)
    [forced] = await board.store.expire_requests()
    assert (forced.asked, forced.status, forced.approved) == ("ana", RequestStatus.ANSWERED, True)
    member = await board.member("ana")
    assert (member.status, member.status_reason, member.worker_id) == (MemberStatus.SHUTDOWN, "forced", None)
    assert (await board.get(task.id)).owner is None
    assert "ana said yes, did not leave in time" in (await board.inbox("lead"))[-1].content
    with pytest.raises(LeaseLost):
        await board.store.shut_down_member(ana)
    assert await board.store.expire_requests() == []


async def test_a_yes_to_a_shutdown_without_a_deadline_is_not_forced(board: Board) -> None:
    ana = await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.answer_request(ana, request.id, approve=True)
    board.clock.advance(3600)
    assert await board.store.expire_requests() == []
    assert (await board.member("ana")).status is MemberStatus.STOPPING


async def test_a_deadline_does_not_force_the_next_incarnation(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=30)
    await board.store.shut_down_member(ana)
    await board.store.spawn_member(board.lead, "ana")
    again = await board.host("ana")
    board.clock.advance(60)
    assert await board.store.expire_requests() == []
    await board.store.record_turn(again, "assistant", "I am another one")


async def test_a_shutdown_put_to_an_earlier_incarnation_is_not_answered_by_the_next(board: Board) -> None:
    await board.teammate("ana")
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    await board.store.want_member(board.lead, "ana")
    fresh = await board.store.register_worker(slots=1)
    again = await board.host("ana", worker=fresh)
    with pytest.raises(Conflict):
        await board.store.answer_request(again, request.id, approve=True)
    assert (await board.member("ana")).status is MemberStatus.WORKING


async def test_no_request_stays_open_when_everyone_has_left(board: Board) -> None:
    store = board.store
    refs = [await board.teammate(name) for name in ("ana", "ben")]
    await store.open_request(refs[0], RequestKind.PLAN, "lead", content="plan")
    await store.open_request(refs[1], RequestKind.PERMISSION, "user", content="may I?")
    for ref in refs:
        await store.open_request(board.lead, RequestKind.SHUTDOWN, ref.name, timeout_seconds=10)
    await store.shut_down_member(refs[0])
    board.clock.advance(11)
    await store.expire_requests()
    assert await store.list_requests(board.id, status=RequestStatus.OPEN) == []


async def test_requests_are_recorded_when_they_open_and_when_they_close(board: Board) -> None:
    ana = await board.teammate("ana")
    async with board.recording() as seen:
        plan = await board.store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
        await board.store.answer_request(board.lead, plan.id, approve=True)
        await board.teammate("gone")
        gone = await board.member("gone")
        await board.store.shut_down_member(gone.ref)
        await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "gone")
    story = [(event.kind, event.data["request"]) for event in seen if event.kind.startswith("Request")]
    assert story == [
        (EventKind.REQUEST_OPENED, 1),
        (EventKind.REQUEST_CLOSED, 1),
        (EventKind.REQUEST_OPENED, 2),
        (EventKind.REQUEST_CLOSED, 2),
    ]
