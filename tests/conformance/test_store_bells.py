"""Bells: whoever a change concerns is woken at once, nobody else is, and nothing is lost between look and sleep.

The safety net is out of the way (an hour): whatever is heard here was rung.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.member import Autonomy, MemberRef, MemberStatus, Worker
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskChanges, TaskStatus
from bullpen.errors import LeaseLost
from bullpen.store import Store
from bullpen.stores import open_store
from tests.conformance.board import BOUND_SECONDS, ROOM, Board
from tests.conformance.conftest import OpenAnother

# -- what wakes ----------------------------------------------------------------------------

CAUSES: dict[str, Callable[[Board, MemberRef], Awaitable[Any]]] = {
    "mail": lambda board, ana: board.store.send(board.user, "ana", "hello"),
    "a broadcast": lambda board, ana: board.store.send(board.user, None, "all", type=MessageType.BROADCAST),
    "a notice": lambda board, ana: board.store.notify(board.id, "ana", "look"),
    "a claimable task": lambda board, ana: board.task(),
    "a task of its role": lambda board, ana: board.task(role="Back End"),
    "an assigned task": lambda board, ana: board.task(role="frontend", owner="ana"),
    "an assignment": lambda board, ana: board.store.update_task(board.user, 1, TaskChanges(owner="ana")),
    "a role that changed": lambda board, ana: board.store.update_task(board.user, 1, TaskChanges(role="back_end")),
    "a blocker that completed": lambda board, ana: board.store.complete_task(board.user, 2),
    "a blocker that was deleted": lambda board, ana: board.store.delete_task(board.user, 2),
    "an edge that was removed": lambda board, ana: board.store.update_task(
        board.user, 3, TaskChanges(remove_blocked_by=(2,))
    ),
    "a task that was released": lambda board, ana: board.store.release_task(board.user, 2),
    "a task that is tried again": lambda board, ana: board.store.retry_task(board.user, 4),
    "a shutdown request": lambda board, ana: board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana"),
    "an answer": lambda board, ana: board.store.answer_request(board.lead, 1, approve=True),
    "its team's deletion": lambda board, ana: board.store.delete_team(board.user),
    "a prompt": lambda board, ana: board.store.spawn_member(board.lead, "ana", prompt="again"),
    "a prompt with a task": lambda board, ana: board.store.spawn_member(board.lead, "ana", task_id=1),
}


async def prepare(board: Board, worker: Worker) -> MemberRef:
    """ana idle with an open plan; #1 for another role, #2 the human's, #3 waiting for #2, #4 failed."""
    ana = await board.idle_teammate("ana", role="back-end", worker=worker)
    await board.task("1", role="frontend")
    await board.claimed(board.user, "2")
    await board.task("3", blocked_by=[2])
    await board.task("4")
    await board.store.fail_task(board.user, 4)
    await board.store.open_request(ana, RequestKind.PLAN, "lead", content="plan")
    return ana


@pytest.mark.parametrize("cause", CAUSES)
async def test_an_idle_member_is_woken_by(board: Board, cause: str) -> None:
    ana = await prepare(board, board.worker)
    async with board.listening([ana, await board.sentinel()]) as ears:
        await ears.settle()
        await CAUSES[cause](board, ana)
        assert await ears.heard("ana")


@pytest.mark.parametrize("cause", CAUSES)
async def test_an_idle_member_of_another_process_is_woken_by(
    board: Board, open_another: OpenAnother, cause: str
) -> None:
    other = await open_another()
    theirs = await other.register_worker(slots=10)
    ana = await prepare(board, theirs)
    async with board.listening([ana, await board.sentinel(worker=theirs)], store=other) as ears:
        await ears.settle()
        await CAUSES[cause](board, ana)
        assert await ears.heard("ana")


async def test_a_member_forced_out_is_woken_to_notice_it(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=1)
    async with board.listening([ana, await board.sentinel()]) as ears:
        board.clock.advance(2)
        await ears.settle()
        await board.store.expire_requests()
        assert await ears.heard("ana")


async def test_a_member_that_was_declared_dead_in_its_sleep_is_woken_to_notice_it(
    board: Board, open_another: OpenAnother
) -> None:
    """Its process was only frozen: nothing else would ever ring for an incarnation that is over."""
    ana, sentinel = await board.idle_teammate("ana"), await board.sentinel()
    other = await open_another()
    async with board.listening([ana, sentinel]) as ears:
        await ears.settle()
        await other.lapse_worker(board.worker.id, renewals_seen=None)
        assert await ears.heard("ana")
        with pytest.raises(LeaseLost):
            await board.store.find_work(ana)


async def test_a_bell_that_was_rung_before_its_listener_looked_is_not_lost(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    async with board.store.listen_member(ana) as bell:
        bell.clear()
        await board.store.send(board.user, "ana", "one")
        assert await bell.wait(BOUND_SECONDS)
        assert await bell.wait(BOUND_SECONDS), "it stays rung until it is cleared"
        bell.clear()
        assert not await bell.wait(0)


async def test_workers_hear_of_wanted_members(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    await other.register_worker(slots=1)
    async with board.store.listen_wanted() as here, other.listen_wanted() as there:
        await board.timed_out_teammate("ana")
        for cause in (
            board.store.spawn_member(board.lead, "ben"),
            board.store.send(board.user, "ana", "come back"),
            board.store.want_member(board.lead, "lead"),
        ):
            here.clear()
            there.clear()
            await cause
            assert await here.wait(BOUND_SECONDS)
            assert await there.wait(BOUND_SECONDS)


async def test_workers_hear_of_members_who_lost_their_host(board: Board) -> None:
    store = board.store
    doomed = await store.register_worker(slots=1)
    ana = await board.teammate("ana")
    await board.teammate("ben", worker=doomed)
    async with store.listen_wanted() as bell:
        for cause in (
            store.lapse_worker(doomed.id, renewals_seen=None),
            store.release_member(ana, note="crashed"),
        ):
            bell.clear()
            await cause
            assert await bell.wait(BOUND_SECONDS)
    assert {(await board.member(name)).status for name in ("ana", "ben")} == {MemberStatus.WANTED}


# -- only whom it concerns -----------------------------------------------------------------


async def idle_crowd(board: Board, count: int, **how: Any) -> list[MemberRef]:
    """Spawned and hosted in bulk: many, and all idle."""
    await asyncio.gather(*(board.store.spawn_member(board.user, f"m{n}", **how) for n in range(count)))
    hosted = await asyncio.gather(*(board.store.host_member(board.worker.id) for _ in range(count)))
    refs = [member.ref for member in hosted if member is not None]
    assert len(refs) == count
    await asyncio.gather(*(board.store.set_member_status(ref, MemberStatus.IDLE) for ref in refs))
    return refs


async def test_one_task_wakes_exactly_one_of_two_hundred_idle_members(board: Board) -> None:
    refs = await idle_crowd(board, 200)
    sentinel = await board.sentinel()
    async with board.listening([*refs, sentinel]) as ears:
        await ears.settle()
        await board.task()
        assert len(await ears.rung()) == 1


async def test_mail_wakes_its_recipient_alone(board: Board) -> None:
    refs = await idle_crowd(board, 20)
    sentinel = await board.sentinel()
    async with board.listening([*refs, sentinel]) as ears:
        await ears.settle()
        await board.store.send(board.user, "m7", "hello")
        assert await ears.rung() == {"m7"}


async def test_a_task_wakes_only_who_may_take_it(board: Board) -> None:
    refs = [
        await board.idle_teammate("ana", role="frontend"),
        await board.idle_teammate("ben", role="backend", autonomy=Autonomy.ASSIGNED),
        await board.teammate("busy", role="backend"),
        await board.idle_teammate("leaving", role="backend"),
        await board.idle_teammate("last", role="backend"),
        await board.sentinel(),
    ]
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "leaving")
    async with board.listening(refs) as ears:
        await ears.settle()
        await board.task(role="backend")
        assert await ears.rung() == {"last"}


async def test_an_idle_member_that_holds_a_task_does_not_swallow_the_ring(board: Board) -> None:
    """ana waits for mail, holding her task: she can take no other, so ben must be woken."""
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.set_member_status(ana, MemberStatus.IDLE)
    board.clock.advance(1)
    ben = await board.idle_teammate("ben")
    sentinel = await board.sentinel()
    async with board.listening([ana, ben, sentinel]) as ears:
        await ears.settle()
        await board.task("another")
        assert await ears.rung() == {"ben"}
    assert [ref.name for ref in await board.store.list_due_members(board.worker.id) if ref.name != "sentinel"] == [
        "ben"
    ]


async def test_an_idle_member_that_holds_a_task_is_no_reason_to_revive_nobody(board: Board) -> None:
    await board.timed_out_teammate("zoe")
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.set_member_status(ana, MemberStatus.IDLE)
    await board.task("another")
    assert (await board.member("zoe")).status is MemberStatus.WANTED


async def test_as_many_are_woken_as_become_claimable(board: Board) -> None:
    refs = await idle_crowd(board, 10)
    sentinel = await board.sentinel()
    await board.claimed(board.user, "blocker")
    for _ in range(3):
        await board.task(blocked_by=[1])
    async with board.listening([*refs, sentinel]) as ears:
        await ears.settle()
        await board.store.complete_task(board.user, 1)
        assert len(await ears.rung()) == 3


async def test_a_blocked_task_wakes_nobody(board: Board) -> None:
    refs = await idle_crowd(board, 3)
    sentinel = await board.sentinel()
    await board.claimed(board.user, "blocker")
    async with board.listening([*refs, sentinel]) as ears:
        await ears.settle()
        await board.task(blocked_by=[1])
        await board.task(owner="m1", blocked_by=[1])
        assert await ears.rung() == set()


async def test_mail_that_does_not_wake_wakes_nobody(board: Board) -> None:
    ana, sentinel = await board.idle_teammate("ana"), await board.sentinel()
    async with board.listening([ana, sentinel]) as ears:
        await ears.settle()
        await board.store.notify(board.id, "ana", "by the way", wakes=False)
        assert await ears.rung() == set()


# -- the baton -----------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "of_member"), [(None, None), (None, "back-end"), ("back-end", "back-end")])
async def test_who_claims_passes_the_baton(board: Board, role: str | None, of_member: str | None) -> None:
    """Three tasks ring the same one; each who claims wakes the next, until nothing is left."""
    refs = {ref.name: ref for ref in await idle_crowd(board, 5, role=of_member)}
    sentinel = await board.sentinel()
    async with board.listening([*refs.values(), sentinel]) as ears:
        await ears.settle()
        for number in range(1, 4):
            await board.task(f"task {number}", role=role)
        claimed: list[int] = []
        woken = await ears.rung()
        while woken:
            await ears.settle()
            for name in sorted(woken):
                task = await board.store.claim_next_task(refs[name])
                if task is not None:
                    claimed.append(task.id)
            woken = await ears.rung()
    assert claimed == [1, 2, 3]


async def test_who_claims_the_last_task_wakes_nobody(board: Board) -> None:
    refs = {ref.name: ref for ref in await idle_crowd(board, 2)}
    sentinel = await board.sentinel()
    async with board.listening([*refs.values(), sentinel]) as ears:
        await ears.settle()
        await board.task()
        [woken] = await ears.rung()
        await ears.settle()
        assert await board.store.claim_next_task(refs[woken]) is not None
        assert await ears.rung() == set()


async def test_who_is_asked_to_leave_passes_the_baton(board: Board) -> None:
    """The one that was woken for the task may claim nothing more: another must hear of it."""
    refs = await idle_crowd(board, 2)
    sentinel = await board.sentinel()
    async with board.listening([*refs, sentinel]) as ears:
        await ears.settle()
        await board.task()
        [chosen] = await ears.rung()
        [other] = {ref.name for ref in refs} - {chosen}
        await ears.settle()
        await board.store.open_request(board.lead, RequestKind.SHUTDOWN, chosen)
        assert await ears.rung() == {chosen, other}


async def test_who_is_to_stay_after_all_hears_of_what_came_meanwhile(board: Board) -> None:
    """Asked to shut down it claims nothing, so the task was offered to nobody."""
    ana, sentinel = await board.idle_teammate("ana"), await board.sentinel()
    async with board.listening([ana, sentinel]) as ears:
        request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
        await ears.settle()
        await board.task()
        assert await ears.rung() == set()
        await board.store.cancel_request(board.lead, request.id)
        assert await ears.rung() == {"ana"}
    assert await board.store.find_work(ana) == "task"


@pytest.mark.parametrize("role", [None, "back-end"])
async def test_who_leaves_passes_the_baton(board: Board, role: str | None) -> None:
    refs = {ref.name: ref for ref in await idle_crowd(board, 2, role="back-end")}
    sentinel = await board.sentinel()
    async with board.listening([*refs.values(), sentinel]) as ears:
        await ears.settle()
        await board.task(role=role)
        [chosen] = await ears.rung()
        [other] = set(refs) - {chosen}
        await ears.settle()
        await board.store.shut_down_member(refs[chosen])
        assert other in await ears.rung()


async def test_who_dies_passes_the_baton(board: Board) -> None:
    """ana was woken for the task, and her worker dies before she has looked."""
    doomed = await board.store.register_worker(slots=1)
    ana = await board.idle_teammate("ana", worker=doomed)
    ben, sentinel = await board.idle_teammate("ben"), await board.sentinel()
    async with board.listening([ana, ben, sentinel]) as ears:
        await ears.settle()
        await board.task()
        assert await ears.rung() == {"ana"}
        await board.store.lapse_worker(doomed.id, renewals_seen=None)
        assert "ben" in await ears.rung()


async def test_an_idle_owner_that_leaves_wakes_another_for_its_task(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.set_member_status(ana, MemberStatus.IDLE)
    ben, sentinel = await board.idle_teammate("ben"), await board.sentinel()
    async with board.listening([ana, ben, sentinel]) as ears:
        await ears.settle()
        await board.store.shut_down_member(ana, reason="error")
        assert "ben" in await ears.rung()


async def test_an_idle_owner_that_is_forced_out_wakes_another_for_its_task(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.set_member_status(ana, MemberStatus.IDLE)
    ben, sentinel = await board.idle_teammate("ben"), await board.sentinel()
    await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana", timeout_seconds=1)
    async with board.listening([ben, sentinel]) as ears:
        await ears.settle()
        board.clock.advance(2)
        await board.store.expire_requests()
        assert await ears.rung() == {"ben"}


async def test_a_crew_that_sleeps_on_bells_alone_drains_the_board(board: Board, open_another: OpenAnother) -> None:
    """Two processes, tasks that unblock each other, no safety net: every ring is needed, none may be lost."""
    other = await open_another()
    theirs = await other.register_worker(slots=10)
    total, done = 24, asyncio.Event()
    finished: list[int] = []

    async def work(store: Store, ref: MemberRef) -> None:
        async with store.listen_member(ref) as bell:
            while not done.is_set():
                bell.clear()
                task = await store.claim_next_task(ref)
                if task is None:
                    await store.set_member_status(ref, MemberStatus.IDLE)
                    # It is a claimer only once it is idle: look again before sleeping.
                    task = await store.claim_next_task(ref)
                if task is None:
                    await bell.wait()
                    continue
                await store.complete_task(ref, task.id)
                finished.append(task.id)
                if len(finished) == total:
                    done.set()

    crew = [(board.store, await board.teammate(f"a{n}")) for n in range(3)]
    crew += [(other, await board.teammate(f"b{n}", worker=theirs)) for n in range(3)]
    workers = [asyncio.create_task(work(store, ref)) for store, ref in crew]
    try:
        async with asyncio.timeout(4 * BOUND_SECONDS):
            for number in range(1, total + 1):
                await board.task(blocked_by=[] if number < 3 else [number - 2])
            await done.wait()
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(finished) == list(range(1, total + 1))


# -- look and sleep ------------------------------------------------------------------------


async def test_no_ring_is_lost_between_look_and_sleep(board: Board, open_another: OpenAnother) -> None:
    """Clear, look, sleep, in this order, against a sender that sends at any moment of it."""
    other = await open_another()
    theirs = await other.register_worker(slots=1)
    ana = await board.idle_teammate("ana", worker=theirs)
    rounds = 60
    taken = 0
    progress = asyncio.Event()
    async with asyncio.timeout(4 * BOUND_SECONDS), other.listen_member(ana) as bell:

        async def listen() -> None:
            nonlocal taken
            while taken < rounds:
                bell.clear()
                mail = await other.take_mail(ana)
                if mail is None:
                    await bell.wait()
                else:
                    taken += len(mail.messages)
                    progress.set()

        async def write() -> None:
            for number in range(rounds):
                await board.store.send(board.user, "ana", f"{number}")
                # Every other message meets a listener that has already taken the one before.
                while number % 2 and taken < number:
                    progress.clear()
                    await progress.wait()

        await asyncio.gather(listen(), write())
    assert taken == rounds


async def test_mail_that_arrives_at_the_last_look_is_found_or_revives(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    for number in range(25):
        ana = await board.idle_teammate(f"ana{number}")
        left, [receipt] = await asyncio.gather(
            other.leave_if_nothing(ana), board.store.send(board.user, ana.name, "just in time")
        )
        status = (await board.member(ana.name)).status
        assert (left, receipt.outcome, status) in [
            ("mail", "queued", MemberStatus.IDLE),
            (None, "revives", MemberStatus.WANTED),
        ]
        if left is None:
            await board.host(ana.name)


async def test_a_task_that_arrives_at_the_last_look_is_found_or_revives(
    board: Board, open_another: OpenAnother
) -> None:
    other = await open_another()
    for number in range(25):
        role = f"role{number}"
        ana = await board.idle_teammate(f"ana{number}", role=role)
        async with board.store.listen_member(ana) as bell:
            bell.clear()
            left, _ = await asyncio.gather(other.leave_if_nothing(ana), board.task(role=role))
            status = (await board.member(ana.name)).status
            if left is None:
                assert status is MemberStatus.WANTED
                await board.host(ana.name)
            else:
                assert (left, status) == ("task", MemberStatus.IDLE)
                assert await bell.wait(BOUND_SECONDS)


async def test_a_task_that_is_unblocked_at_the_last_look_is_never_swallowed(
    board: Board, open_another: OpenAnother
) -> None:
    """The blocker completes, is given to her, or is released, just when she leaves."""
    other = await open_another()
    await board.claimed(board.user, "blocker")
    for number in range(12):
        role = f"role{number}"
        ana = await board.idle_teammate(f"ana{number}", role=role)
        task = await board.task(role="nobody")
        left, _ = await asyncio.gather(
            other.leave_if_nothing(ana),
            board.store.update_task(board.user, task.id, TaskChanges(role=role)),
        )
        status = (await board.member(ana.name)).status
        assert (left, status) in [("task", MemberStatus.IDLE), (None, MemberStatus.WANTED)]
        if left is None:
            await board.host(ana.name)


async def test_a_shutdown_at_the_last_look_is_answered_whoever_comes_first(
    board: Board, open_another: OpenAnother
) -> None:
    other = await open_another()
    for number in range(10):
        ana = await board.idle_teammate(f"ana{number}")
        left, request = await asyncio.gather(
            other.leave_if_nothing(ana), board.store.open_request(board.lead, RequestKind.SHUTDOWN, ana.name)
        )
        if left is None:
            assert request.approved is True
        else:
            assert left == "shutdown"
            await board.store.shut_down_member(ana)
        assert (await board.store.get_request(board.id, request.id)).approved is True
        assert (await board.member(ana.name)).status is MemberStatus.SHUTDOWN


async def test_a_leaving_crew_never_strands_a_task(board: Board, open_another: OpenAnother) -> None:
    """Everybody leaves while tasks arrive: in the end each task has somebody who is up or wanted."""
    other = await open_another()
    refs = [await board.idle_teammate(f"m{n}") for n in range(6)]
    for _ in range(4):
        verbs: list[Awaitable[Any]] = [(board.store, other)[n % 2].leave_if_nothing(ref) for n, ref in enumerate(refs)]
        verbs.insert(3, board.task())
        await asyncio.gather(*verbs, return_exceptions=True)
        members = await board.store.list_members(board.id)
        alive = [m for m in members if m.status in (MemberStatus.IDLE, MemberStatus.WANTED) and m.name.startswith("m")]
        assert alive, "the task has nobody"
        for task in await board.store.list_tasks(board.id, status=TaskStatus.PENDING):
            await board.store.delete_task(board.user, task.id)
        refs = []
        for member in alive:
            ref = member.ref if member.status is MemberStatus.IDLE else await board.host(member.name)
            if member.status is MemberStatus.WANTED:
                await board.store.set_member_status(ref, MemberStatus.IDLE)
            refs.append(ref)


# -- the safety net ------------------------------------------------------------------------


async def test_the_due_are_those_for_whom_something_waits(board: Board) -> None:
    store = board.store
    ana = await board.idle_teammate("ana", role="a")
    ben = await board.idle_teammate("ben", role="b")
    cat = await board.idle_teammate("cat", role="c")
    await board.idle_teammate("dan", role="d")
    eva = await board.teammate("eva")
    await store.set_member_status(eva, MemberStatus.WAITING)
    other = await store.register_worker(slots=1)
    await board.idle_teammate("elsewhere", worker=other)
    assert await store.list_due_members(board.worker.id) == []
    await store.send(board.user, "ana", "mail")
    await board.task(role="b")
    await board.task(owner="cat")
    await store.notify(board.id, "dan", "by the way", wakes=False)
    await store.send(board.user, "eva", "an answer")
    await store.send(board.user, "elsewhere", "not ours")
    due = await store.list_due_members(board.worker.id)
    assert sorted(due, key=lambda ref: ref.name) == [ana, ben, cat, eva]


async def test_the_safety_net_makes_no_stampede(board: Board) -> None:
    await idle_crowd(board, 20)
    await board.tasks(2)
    assert len(await board.store.list_due_members(board.worker.id)) == 2


async def test_a_lost_ring_costs_one_interval_of_the_safety_net(store_url: str, clock: FakeClock) -> None:
    async with open_store(store_url, clock=clock, poll_interval_seconds=0.02) as store:
        team = await store.create_team("crew", settings=ROOM)
        board = Board(store, team, await store.register_worker(slots=10), clock)
        ana, ben = await board.idle_teammate("ana"), await board.idle_teammate("ben", role="x")
        # Rung before anybody listens: as if the ring had been lost.
        await store.send(board.user, "ana", "mail")
        await board.task(role="x")
        async with store.listen_member(ana) as hers, store.listen_member(ben) as his:
            assert await hers.wait(BOUND_SECONDS)
            assert await his.wait(BOUND_SECONDS)
        await store.spawn_member(board.lead, "cat")
        async with store.listen_wanted() as bell:
            assert await bell.wait(BOUND_SECONDS)
        await board.task(role="nobody")
        async with store.listen_events(team.id) as bell:
            assert await bell.wait(BOUND_SECONDS)


# -- a listener ----------------------------------------------------------------------------


async def test_who_is_busy_is_called_when_it_rings_and_at_once_if_it_has_rung(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    async with board.store.listen_member(ana) as bell:
        bell.clear()
        called = asyncio.Event()
        with bell.call(called.set):
            assert not called.is_set()
            await board.store.send(board.user, "ana", "hello")
            await asyncio.wait_for(called.wait(), BOUND_SECONDS)
        called.clear()
        with bell.call(called.set):
            assert called.is_set(), "it has rung, and nobody has looked since"
        bell.clear()
        called.clear()
        await board.store.send(board.user, "ana", "hello again")
        assert await bell.wait(BOUND_SECONDS)
        assert not called.is_set(), "nobody is called who has gone"
