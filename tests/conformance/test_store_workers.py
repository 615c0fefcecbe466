"""Workers: life proved by renewals, death declared once and in one transaction, and the fence that follows from it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bullpen.domain.background import BackgroundKind
from bullpen.domain.budget import Settlement
from bullpen.domain.event import EventKind
from bullpen.domain.member import Liveness, MemberRef, MemberStatus, team_label
from bullpen.domain.prompt import Usage
from bullpen.domain.request import RequestKind, RequestStatus
from bullpen.domain.submission import Work
from bullpen.domain.task import CheckRun, Evidence, TaskChanges, TaskStatus
from bullpen.domain.transcript import NewCall
from bullpen.errors import Conflict, LeaseLost, NotFound, UsageError
from bullpen.store import Store
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

# -- life ----------------------------------------------------------------------------------


async def test_a_worker_is_entered_and_renewed_by_count(store: Store) -> None:
    worker = await store.register_worker(slots=3, labels=["gpu", "fast"], lease_seconds=7.5)
    assert (worker.slots, worker.labels, worker.lease_seconds, worker.renewals) == (3, ("gpu", "fast"), 7.5, 0)
    for expected in (1, 2, 3):
        assert (await store.renew_worker(worker.id)).renewals == expected
    assert [(found.id, found.renewals) for found in await store.list_workers()] == [(worker.id, 3)]


@pytest.mark.parametrize(
    "how", [{"slots": -1}, {"lease_seconds": 0}, {"lease_seconds": float("nan")}, {"slots": 2**70}]
)
async def test_a_worker_without_sense_is_refused(store: Store, how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await store.register_worker(**how)
    assert await store.list_workers() == []


async def test_an_unknown_worker_cannot_renew(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.renew_worker(99)
    assert await store.lapse_worker(99, renewals_seen=None) == []


async def test_a_living_worker_is_alive_to_every_observer(store: Store, open_another: OpenAnother) -> None:
    worker = await store.register_worker()
    other = await open_another()
    [seen] = await other.list_workers()
    assert seen == worker
    assert await store.probe_worker(worker) is Liveness.ALIVE
    assert await store.probe_workers([worker, worker]) == [Liveness.ALIVE, Liveness.ALIVE]
    assert await store.probe_workers([]) == []
    assert await other.probe_worker(seen) is not Liveness.DEAD


async def test_only_a_worker_of_this_store_that_is_up_proves_its_life(store: Store, open_another: OpenAnother) -> None:
    worker = await store.register_worker()
    assert store.proves_life(worker.id)
    assert not (await open_another()).proves_life(worker.id)
    await store.stop_worker(worker.id)
    assert not store.proves_life(worker.id)


async def test_a_worker_that_stopped_is_listed_only_if_asked_for(store: Store) -> None:
    worker = await store.register_worker()
    await store.stop_worker(worker.id)
    assert await store.list_workers() == []
    [stopped] = await store.list_workers(include_stopped=True)
    assert (stopped.id, stopped.stopped_at is not None) == (worker.id, True)
    with pytest.raises(LeaseLost):
        await store.renew_worker(worker.id)
    with pytest.raises(LeaseLost):
        await store.host_member(worker.id)


async def test_closing_the_store_stops_its_workers(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    theirs = await other.register_worker(slots=5)
    ana = await board.teammate("ana", worker=theirs)
    await other.__aexit__(None, None, None)
    assert [worker.id for worker in await board.store.list_workers()] == [board.worker.id]
    assert (await board.member("ana")).status is MemberStatus.WANTED
    with pytest.raises(LeaseLost):
        await board.store.record_turn(ana, "assistant", "my worker has left")
    await other.__aenter__()


async def test_stopping_in_good_order_leaves_the_tasks_reserved(board: Board) -> None:
    """Whoever comes next goes on with them, even if nobody could host the members just now."""
    store = board.store
    only = await store.register_worker(slots=5)
    await store.stop_worker(board.worker.id)
    ana = await board.teammate("ana", worker=only)
    cat = await board.external("cat", worker=only)
    task, other = await board.claimed(ana), await board.claimed(cat)
    members = await store.stop_worker(only.id)
    assert {member.name: member.status for member in members} == {
        "ana": MemberStatus.WANTED,
        "cat": MemberStatus.SHUTDOWN,
    }
    reserved = await board.get(task.id)
    assert (reserved.status, reserved.owner) == (TaskStatus.IN_PROGRESS, "ana")
    assert (await board.get(other.id)).status is TaskStatus.PENDING
    fresh = await store.register_worker(slots=5)
    again = await board.host("ana", worker=fresh)
    assert (await board.get(task.id)).reserved_until is None
    await store.complete_task(again, task.id)


# -- labels --------------------------------------------------------------------------------


async def test_only_a_worker_with_all_its_labels_hosts_a_member(board: Board) -> None:
    store = board.store
    plain = await store.register_worker(slots=5)
    half = await store.register_worker(slots=5, labels=["gpu"])
    full = await store.register_worker(slots=5, labels=["linux", "gpu", "fast"])
    spawned = await store.spawn_member(board.user, "ana", labels=["linux", "GPU", "gpu"])
    assert spawned.member.labels == ("gpu", "linux")
    for worker in (plain, half):
        assert await store.host_member(worker.id) is None
        assert await store.host_member(worker.id, team_id=board.id) is None
    hosted = await store.host_member(full.id)
    assert hosted is not None
    assert (hosted.name, hosted.labels) == ("ana", ("gpu", "linux"))
    assert await board.member("ana") == hosted


async def test_who_asks_for_no_label_is_hosted_past_one_who_waits_for_its_own(board: Board) -> None:
    store = board.store
    await store.spawn_member(board.user, "ana", labels=["gpu"])
    board.clock.advance(1)
    await store.spawn_member(board.user, "ben")
    plain = await store.register_worker(slots=5, labels=["linux"])
    assert (await board.host("ben", worker=plain)).name == "ben"
    assert await store.host_member(plain.id) is None


async def test_a_member_that_comes_back_may_ask_for_other_labels(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await store.shut_down_member(ana)
    assert (await store.spawn_member(board.user, "ana", labels=["gpu"])).member.labels == ("gpu",)
    assert await store.host_member(board.worker.id) is None


@pytest.mark.parametrize("label", ["", "a b", "team=3", "ä", "x" * 64])
async def test_what_is_no_label_is_refused(board: Board, label: str) -> None:
    with pytest.raises(UsageError, match="label"):
        await board.store.spawn_member(board.user, "ana", labels=[label])


async def test_a_task_is_reserved_only_where_a_worker_has_what_its_owner_asks_for(board: Board) -> None:
    store = board.store
    doomed = await store.register_worker(slots=5, labels=["gpu"])
    ana = await board.teammate("ana", worker=doomed, labels=["gpu"])
    ben = await board.teammate("ben", worker=doomed)
    of_ana, of_ben = await board.claimed(ana), await board.claimed(ben)
    await store.lapse_worker(doomed.id, renewals_seen=None)
    assert (await board.get(of_ana.id)).status is TaskStatus.PENDING, "nobody could go on with it"
    assert (await board.get(of_ben.id)).owner == "ben"
    assert (await store.get_snapshot(board.id)).unhostable == {"ana"}


# -- lapse ---------------------------------------------------------------------------------


async def test_a_lapse_is_one_transaction_over_all_members(board: Board) -> None:
    store = board.store
    doomed = await store.register_worker(slots=10)
    refs = [await board.teammate(name, worker=doomed) for name in ("ana", "ben")]
    cat = await board.external("cat", worker=doomed)
    tasks = [await board.claimed(ref, f"{ref.name}'s") for ref in (*refs, cat)]
    lapsed = await store.lapse_worker(doomed.id, renewals_seen=doomed.renewals)
    assert [(member.name, member.status) for member in sorted(lapsed, key=lambda member: member.name)] == [
        ("ana", MemberStatus.WANTED),
        ("ben", MemberStatus.WANTED),
        ("cat", MemberStatus.SHUTDOWN),
    ]
    for ref in (*refs, cat):
        member = await board.member(ref.name)
        assert member == next(one for one in lapsed if one.name == ref.name), "returned as they are stored"
        assert (member.incarnation, member.worker_id) == (ref.incarnation + 1, None)
    stored = [await board.get(task.id) for task in tasks]
    assert [(task.status, task.owner) for task in stored] == [
        (TaskStatus.IN_PROGRESS, "ana"),
        (TaskStatus.IN_PROGRESS, "ben"),
        (TaskStatus.PENDING, None),
    ]
    assert any("died" in message.content for message in await board.inbox("lead"))
    with pytest.raises(LeaseLost):
        await store.renew_worker(doomed.id)


async def test_a_worker_is_lapsed_once(board: Board) -> None:
    ana = await board.teammate("ana")
    verbs = [board.store.lapse_worker(board.worker.id, renewals_seen=0) for _ in range(5)]
    outcomes = sorted(len(members) for members in await asyncio.gather(*verbs))
    assert outcomes == [0, 0, 0, 0, 1]
    assert (await board.member("ana")).incarnation == ana.incarnation + 1
    over = await board.store.list_workers(include_stopped=True)
    assert await board.store.stop_worker(board.worker.id) == []
    assert await board.store.list_workers(include_stopped=True) == over, "it says how it ended first"


async def test_a_worker_that_renewed_meanwhile_is_not_lapsed(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.renew_worker(board.worker.id)
    assert await board.store.lapse_worker(board.worker.id, renewals_seen=0) == []
    await board.store.record_turn(ana, "assistant", "still here")


async def test_a_dead_owner_does_not_keep_its_task(board: Board) -> None:
    """Nobody has a free slot: the task goes back to the board at once, with a note."""
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    back = await board.get(task.id)
    assert (back.status, back.owner, back.reserved_until) == (TaskStatus.PENDING, None, None)
    assert (back.handovers[-1].by, back.handovers[-1].at) == ("ana", board.clock.now())
    ben = await board.store.register_worker(slots=0)
    cat = await board.external("cat", worker=ben)
    claimed = await board.store.claim_next_task(cat)
    assert claimed is not None
    assert claimed.id == task.id


async def test_a_task_waits_for_its_owner_while_some_worker_can_host_it(board: Board) -> None:
    store = board.store
    doomed = await store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    ben = await board.teammate("ben")
    task = await board.claimed(ana)
    await store.lapse_worker(doomed.id, renewals_seen=None)
    assert await store.claim_next_task(ben) is None, "reserved"
    again = await board.host("ana")
    assert (await board.get(task.id)).reserved_until is None
    done = await store.complete_task(again, task.id, result="went on")
    assert done.status is TaskStatus.COMPLETED


async def test_a_reservation_that_ran_out_hands_the_task_back(board: Board) -> None:
    store = board.store
    await store.change_team(board.lead, settings={"takeover_seconds": 10})
    doomed = await store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    task = await board.claimed(ana)
    await store.lapse_worker(doomed.id, renewals_seen=None)
    reserved = await board.get(task.id)
    assert reserved.reserved_until is not None
    event = await board.wait_for(EventKind.TASK_RESERVED, task=task.id, owner="ana")
    assert event.data["until"] == reserved.reserved_until.isoformat()
    board.clock.advance(9)
    assert await store.hand_back_tasks() == []
    board.clock.advance(2)
    [back] = await store.hand_back_tasks()
    assert back == await board.get(task.id)
    assert (back.status, back.owner, back.reserved_until) == (TaskStatus.PENDING, None, None)
    assert "ana" in back.handovers[-1].note
    assert any(f"#{task.id}" in message.content for message in await board.inbox("lead"))
    assert await store.hand_back_tasks() == []


async def test_a_reservation_does_not_run_out_while_nobody_could_have_taken_its_owner_over(board: Board) -> None:
    """Ctrl-C, and `resume` the next day: another team's worker could not, and one that comes now has its time."""
    store = board.store
    await store.change_team(board.lead, settings={"takeover_seconds": 10})
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await store.stop_worker(board.worker.id)
    await store.register_worker(slots=5, labels=[team_label(board.id + 1)])
    board.clock.advance(86_400)
    assert await store.hand_back_tasks() == []
    fresh = await store.register_worker(slots=5)
    board.clock.advance(9)
    assert await store.hand_back_tasks() == []
    again = await board.host("ana", worker=fresh)
    assert (await board.get(task.id)).owner == "ana"
    await store.complete_task(again, task.id)


async def test_a_worker_that_came_later_has_its_time_and_no_more(board: Board) -> None:
    store = board.store
    await store.change_team(board.lead, settings={"takeover_seconds": 10})
    await board.claimed(await board.teammate("ana"))
    await store.stop_worker(board.worker.id)
    board.clock.advance(3600)
    await store.register_worker(slots=5)
    board.clock.advance(11)
    assert len(await store.hand_back_tasks()) == 1


async def test_a_reservation_runs_out_for_those_who_are_there_if_no_worker_can_host_its_owner(board: Board) -> None:
    store = board.store
    special = await store.register_worker(slots=1, labels=["gpu"])
    await board.claimed(await board.teammate("ana", worker=special, labels=["gpu"]))
    ben = await board.teammate("ben")
    await store.stop_worker(special.id)
    board.clock.advance(31)
    [back] = await store.hand_back_tasks()
    assert await store.claim_next_task(ben) is not None
    assert back.owner is None


async def test_a_reservation_runs_out_while_a_member_is_hosted_though_no_worker_takes_more(board: Board) -> None:
    """Nobody could host its owner, but an external member of the team could take the task."""
    store = board.store
    await board.claimed(await board.teammate("ana"))
    hosts_nobody = await store.register_worker(slots=0)
    await board.external("cat", worker=hosts_nobody)
    await store.stop_worker(board.worker.id)
    board.clock.advance(31)
    [back] = await store.hand_back_tasks()
    assert back.owner is None


async def test_a_task_that_was_taken_over_is_not_handed_back(board: Board) -> None:
    doomed = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    await board.claimed(ana)
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    await board.host("ana")
    board.clock.advance(3600)
    assert await board.store.hand_back_tasks() == []


@pytest.mark.parametrize("nonsense", ["soon", None, float("inf"), -5, True])
async def test_a_setting_that_is_no_number_keeps_nobody_from_dying(board: Board, nonsense: object) -> None:
    await board.store.change_team(board.lead, settings={"takeover_seconds": nonsense})
    doomed = await board.store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    await board.claimed(ana)
    assert len(await board.store.lapse_worker(doomed.id, renewals_seen=None)) == 1


async def test_a_lapse_voids_the_checks_that_were_running(board: Board) -> None:
    store = board.store
    doomed = await store.register_worker(slots=1)
    ana = await board.teammate("ana", worker=doomed)
    task = await board.claimed(ana, check="make test")
    run = await store.start_check(ana, task.id)
    assert run is not None
    await store.lapse_worker(doomed.id, renewals_seen=None)
    assert not (await board.get(task.id)).verifying
    again = await board.host("ana")
    with pytest.raises(Conflict):
        await store.finish_check(again, run, Evidence(command="make test", exit_code=0))
    assert (await board.get(task.id)).status is TaskStatus.IN_PROGRESS


async def test_who_was_asked_to_stop_and_died_has_stopped(board: Board) -> None:
    store = board.store
    await board.teammate("ana")
    ben = await board.teammate("ben")
    asked = await store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    agreed = await store.open_request(board.lead, RequestKind.SHUTDOWN, "ben")
    await store.answer_request(ben, agreed.id, approve=True)
    await store.lapse_worker(board.worker.id, renewals_seen=None)
    for name in ("ana", "ben"):
        member = await board.member(name)
        assert (member.status, member.shutdown_request_id) == (MemberStatus.SHUTDOWN, None)
    assert (await store.get_request(board.id, asked.id)).status is RequestStatus.ANSWERED


async def test_questions_survive_the_death_of_who_asked(board: Board) -> None:
    ana = await board.teammate("ana")
    permission = await board.store.open_request(ana, RequestKind.PERMISSION, "user", content="rm -r build")
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    assert (await board.store.get_request(board.id, permission.id)).status is RequestStatus.OPEN


async def test_questions_of_who_does_not_come_back_end_with_it(board: Board) -> None:
    """An external member is at rest when its worker dies: nobody waits for the answer any more."""
    cat = await board.external("cat")
    permission = await board.store.open_request(cat, RequestKind.PERMISSION, "user", content="rm -r build")
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    assert (await board.store.get_request(board.id, permission.id)).status is RequestStatus.CANCELLED


async def test_the_idle_are_not_told_of_a_task_by_a_bell_that_died_with_the_worker(board: Board) -> None:
    """ana works and ben is idle in the worker that dies; cat is idle elsewhere and must be the one who is woken."""
    store = board.store
    doomed = await store.register_worker(slots=2)
    living = await store.register_worker(slots=2)
    await store.stop_worker(board.worker.id)
    ana = await board.teammate("ana", worker=doomed)
    await board.idle_teammate("ben", worker=doomed)
    board.clock.advance(1)
    cat = await board.idle_teammate("cat", worker=living)
    sentinel = await board.sentinel(worker=living)
    await board.claimed(ana)
    async with board.listening([cat, sentinel]) as ears:
        await store.lapse_worker(doomed.id, renewals_seen=None)
        assert await ears.heard("cat")


# -- the fence -----------------------------------------------------------------------------

RUN = CheckRun(task_id=1, attempt=1, check="true")
EVIDENCE = Evidence(command="true", exit_code=0)

FENCED: dict[str, Callable[[Store, MemberRef], Awaitable[Any]]] = {
    "change_team": lambda store, by: store.change_team(by, goal="mine"),
    "delete_team": lambda store, by: store.delete_team(by),
    "spawn_member": lambda store, by: store.spawn_member(by, "new"),
    "want_member": lambda store, by: store.want_member(by, "resting"),
    "set_member_status": lambda store, by: store.set_member_status(by, MemberStatus.IDLE),
    "set_member_counters": lambda store, by: store.set_member_counters(by, {"turns": 1}),
    "shut_down_member": lambda store, by: store.shut_down_member(by),
    "release_member": lambda store, by: store.release_member(by, note="crashed"),
    "rest_member": lambda store, by: store.rest_member(by),
    "leave_if_nothing": lambda store, by: store.leave_if_nothing(by),
    "find_work": lambda store, by: store.find_work(by),
    "create_task": lambda store, by: store.create_task(by, "mine"),
    "submit_work": lambda store, by: store.submit_work(by, Work(base="0" * 40, commit="a" * 40)),
    "update_task": lambda store, by: store.update_task(by, 1, TaskChanges(subject="mine")),
    "claim_next_task": lambda store, by: store.claim_next_task(by),
    "claim_task": lambda store, by: store.claim_task(by, 2),
    "start_check": lambda store, by: store.start_check(by, 1),
    "finish_check": lambda store, by: store.finish_check(by, RUN, EVIDENCE),
    "complete_checked_task": lambda store, by: store.complete_checked_task(by, 1, EVIDENCE),
    "complete_task": lambda store, by: store.complete_task(by, 1),
    "fail_task": lambda store, by: store.fail_task(by, 1),
    "release_task": lambda store, by: store.release_task(by, 1),
    "retry_task": lambda store, by: store.retry_task(by, 3),
    "delete_task": lambda store, by: store.delete_task(by, 1),
    "send": lambda store, by: store.send(by, "user", "still here"),
    "take_mail": lambda store, by: store.take_mail(by),
    "list_offered_mail": lambda store, by: store.list_offered_mail(by),
    "acknowledge_mail": lambda store, by: store.acknowledge_mail(by, [1, 2, 3]),
    "open_request": lambda store, by: store.open_request(by, RequestKind.SHUTDOWN, "ben"),
    "answer_request": lambda store, by: store.answer_request(by, 1, approve=True),
    "cancel_request": lambda store, by: store.cancel_request(by, 1),
    "record_turn": lambda store, by: store.record_turn(by, "assistant", "still here"),
    "start_call": lambda store, by: store.start_call(by, "queued"),
    "finish_call": lambda store, by: store.finish_call(by, "started", "done"),
    "interrupt_calls": lambda store, by: store.interrupt_calls(by),
    "end_phase": lambda store, by: store.end_phase(by, why="no_tool_use", result="done"),
    "attend": lambda store, by: store.attend(by),
    "has_prospects": lambda store, by: store.has_prospects(by),
    "start_background": lambda store, by: store.start_background(by, BackgroundKind.COMMAND, "make serve"),
    "finish_background": lambda store, by: store.finish_background(by, 1, exit_code=0),
    "lose_backgrounds": lambda store, by: store.lose_backgrounds(by),
    "reserve": lambda store, by: store.reserve(
        by, purpose="turn", provider_key="key", model="m", tokens=1, cost_usd=0.1
    ),
    "settle": lambda store, by: store.settle(by, Settlement(reservation_id=1, usage=Usage(), cost_usd=0.0)),
    "interrupt_member": lambda store, by: store.interrupt_member(by, "ben", "stop that"),
    "want_compaction": lambda store, by: store.want_compaction(by, "ben"),
    "succeed_team": lambda store, by: store.succeed_team(by, "next"),
    "record_event": lambda store, by: store.record_event(by, EventKind.HOOK_REFUSED, {"hook": "task_created"}),
}


def test_every_verb_of_a_member_is_proved_to_be_fenced() -> None:
    verbs = {
        name
        for name, verb in inspect.getmembers(Store, inspect.iscoroutinefunction)
        if any("MemberRef" in str(parameter.annotation) for parameter in inspect.signature(verb).parameters.values())
    }
    assert verbs == set(FENCED), "a new verb needs a line in FENCED"


@pytest.mark.parametrize("verb", FENCED)
async def test_an_old_incarnation_is_refused_by(board: Board, verb: str) -> None:
    """Everything that the verb needs is there: only the fence stands in its way. So for members as for the lead."""
    store = board.store
    doomed = await store.register_worker(slots=2)
    await store.want_member(board.user, "lead")
    old_lead = await board.host("lead", worker=doomed)
    ben = await board.teammate("ben")
    await store.spawn_member(board.user, "resting")
    resting = await board.host("resting")
    await store.shut_down_member(resting)
    mine, _free, failed = await board.tasks(3)
    await store.update_task(board.user, mine.id, TaskChanges(check="true"))
    await store.claim_task(old_lead, mine.id)
    await store.start_check(old_lead, mine.id)
    await store.fail_task(board.user, failed.id)
    await store.open_request(ben, RequestKind.PLAN, "lead", content="a plan")
    calls = [NewCall(call_id="started", name="bash"), NewCall(call_id="queued", name="bash")]
    await store.record_turn(old_lead, "assistant", "…", calls=calls)
    await store.start_call(old_lead, "started")
    await store.start_background(old_lead, BackgroundKind.COMMAND, "make serve")
    await store.reserve(old_lead, purpose="turn", provider_key="key", model="m", tokens=1, cost_usd=0.1)
    await store.lapse_worker(doomed.id, renewals_seen=None)
    new_lead = await board.host("lead")
    before = await snapshot(board)

    with pytest.raises(LeaseLost):
        await FENCED[verb](store, old_lead)
    with pytest.raises(LeaseLost):
        await FENCED[verb](store, MemberRef(board.id, "lead", new_lead.incarnation + 1))
    with pytest.raises(NotFound):
        await FENCED[verb](store, MemberRef(board.id, "nobody", 1))
    with pytest.raises(NotFound):
        await FENCED[verb](store, MemberRef(99, "lead", 1))
    assert await snapshot(board) == before, "nothing was written"


async def snapshot(board: Board) -> Any:
    store = board.store
    return (
        await store.get_team(board.id),
        await store.list_members(board.id),
        await store.list_tasks(board.id),
        [await board.inbox(name) for name in ("lead", "user", "ben", "resting")],
        await store.list_requests(board.id),
        await store.list_turns(board.id, "lead"),
        await store.list_calls(board.id, "lead"),
        await store.list_backgrounds(board.id),
        await store.list_submissions(board.id),
        await store.list_accounts(board.id),
        await board.events(),
    )


async def test_a_member_that_has_shut_down_writes_nothing_more(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.shut_down_member(ana)
    for verb in ("send", "record_turn", "claim_next_task", "set_member_status", "take_mail", "end_phase"):
        with pytest.raises(LeaseLost):
            await FENCED[verb](board.store, ana)


async def test_the_human_is_never_fenced_out(board: Board) -> None:
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    await board.store.create_task(MemberRef(board.id, "user", 0), "still mine")
    with pytest.raises(LeaseLost):
        await board.store.create_task(MemberRef(board.id, "user", 1), "there is only one human")


async def test_a_lapse_is_recorded(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    async with board.recording() as seen:
        await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    kinds = [event.kind for event in seen]
    assert {EventKind.MEMBER_LAPSED, EventKind.TASK_RELEASED, EventKind.WORKER_LAPSED} <= set(kinds)
    lapsed = next(event for event in seen if event.kind == EventKind.MEMBER_LAPSED)
    assert (lapsed.data["member"], lapsed.actor) == ("ana", "system")
    released = next(event for event in seen if event.kind == EventKind.TASK_RELEASED)
    assert released.data == {"task": 1, "owner": "ana", "note": "its worker died"}


async def test_a_lead_is_not_told_of_its_own_death(board: Board) -> None:
    await board.store.want_member(board.user, "lead")
    await board.host("lead")
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    assert await board.inbox("lead") == []
