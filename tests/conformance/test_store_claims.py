"""Claiming: one atomic step that looks at everything again, one winner among all who try."""

from __future__ import annotations

import asyncio

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import Autonomy, MemberRef, MemberStatus
from bullpen.domain.request import RequestKind
from bullpen.domain.task import Evidence, TaskChanges, TaskStatus
from bullpen.errors import AlreadyClaimed, Conflict, NotFound, ShuttingDown
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother


async def claim(board: Board, by: MemberRef) -> int | None:
    task = await board.store.claim_next_task(by)
    return None if task is None else task.id


async def test_a_claim_makes_the_task_the_claimers(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task()
    board.clock.advance(5)
    task = await board.store.claim_next_task(ana)
    assert task is not None
    assert (task.status, task.owner, task.claimed_at) == (TaskStatus.IN_PROGRESS, "ana", board.clock.now())
    assert await board.get(1) == task


async def test_there_is_nothing_to_claim_on_an_empty_board(board: Board) -> None:
    ana = await board.teammate("ana")
    assert await claim(board, ana) is None
    with pytest.raises(NotFound):
        await board.store.claim_task(ana, 1)


async def test_what_is_assigned_comes_first_then_the_lowest_number(board: Board) -> None:
    ana = await board.teammate("ana", role="backend")
    await board.tasks(2)
    await board.task("3", role="frontend")
    await board.task("4", role="Backend")
    await board.task("5", owner="ana")
    await board.task("6", owner="ana", blocked_by=[1])
    order = []
    while (task := await board.store.claim_next_task(ana)) is not None:
        order.append(task.id)
        await board.store.complete_task(ana, task.id)
    assert order == [5, 1, 6, 2, 4]


@pytest.mark.parametrize(
    ("member", "task", "fits"),
    [
        (None, None, True),
        ("backend", None, True),
        ("backend", "Backend", True),
        ("back-end", "Back End", True),
        ("back_end", "back-end ", True),
        (None, "backend", False),
        ("frontend", "backend", False),
        ("backend", "", True),
        ("", "backend", False),
        ("STRASSE", "straße", True),
    ],
)
async def test_roles_are_compared_normalised(board: Board, member: str | None, task: str | None, fits: bool) -> None:
    ana = await board.teammate("ana", role=member)
    await board.task(role=task)
    if fits:
        assert await claim(board, ana) == 1
    else:
        assert await claim(board, ana) is None
        with pytest.raises(AlreadyClaimed):
            await board.store.claim_task(ana, 1)


async def test_an_assigned_task_is_its_owners_whatever_its_role(board: Board) -> None:
    """The lead gave it to her: both ways of claiming agree."""
    ana = await board.teammate("ana", role="frontend")
    await board.task(role="backend", owner="ana")
    assert await board.store.find_work(ana) == "task"
    assert (await board.store.claim_task(ana, 1)).owner == "ana"
    await board.store.update_task(board.lead, 1, TaskChanges(owner=None))
    await board.store.update_task(board.lead, 1, TaskChanges(owner="ana"))
    assert await claim(board, ana) == 1


async def test_a_claim_never_takes_what_is_owned(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana, "in progress")
    await board.task("assigned", owner="ana")
    assert await claim(board, ben) is None
    for number in (1, 2):
        with pytest.raises(AlreadyClaimed, match="ana"):
            await board.store.claim_task(ben, number)


async def test_a_claim_never_takes_a_completed_task(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.tasks(3)
    await board.store.complete_task(board.lead, 1)
    await board.store.fail_task(board.lead, 2)
    await board.store.delete_task(board.lead, 3)
    assert await claim(board, ana) is None
    for number, status in ((1, "completed"), (2, "failed"), (3, "deleted")):
        with pytest.raises(AlreadyClaimed, match=status):
            await board.store.claim_task(ana, number)


async def test_the_loser_of_a_claim_is_told_and_takes_another(board: Board) -> None:
    refs = [await board.teammate(name) for name in ("ana", "ben", "cat", "dan")]
    await board.tasks(4)
    outcomes = await asyncio.gather(*(board.store.claim_task(ref, 1) for ref in refs), return_exceptions=True)
    losers = [ref for ref, outcome in zip(refs, outcomes, strict=True) if isinstance(outcome, AlreadyClaimed)]
    assert len(losers) == 3
    assert all("take another" in str(outcome) for outcome in outcomes if isinstance(outcome, AlreadyClaimed))
    others = [await claim(board, ref) for ref in losers]
    assert sorted(number for number in others if number is not None) == [2, 3, 4]


async def test_no_task_is_claimed_twice_by_two_stores(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    refs = [await board.teammate(f"m{number}") for number in range(8)]
    await board.tasks(30)
    done: list[int] = []

    async def work(ref: MemberRef, number: int) -> None:
        store = (board.store, other)[number % 2]
        while (task := await store.claim_next_task(ref)) is not None:
            done.append(task.id)
            await store.complete_task(ref, task.id)

    await asyncio.gather(*(work(ref, number) for number, ref in enumerate(refs)))
    assert sorted(done) == list(range(1, 31))
    kinds = await board.kinds()
    assert kinds.count(EventKind.TASK_CLAIMED) == 30


async def test_one_task_in_progress_for_each_member(board: Board) -> None:
    """So one whose model fails cannot take every task."""
    ana = await board.teammate("ana")
    await board.tasks(3)
    assert await claim(board, ana) == 1
    with pytest.raises(AlreadyClaimed, match="#1"):
        await board.store.claim_next_task(ana)
    with pytest.raises(AlreadyClaimed, match="#1"):
        await board.store.claim_task(ana, 2)
    await board.store.release_task(ana, 1)
    assert await claim(board, ana) == 1


async def test_one_who_claims_many_times_at_once_gets_one(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    ana = await board.teammate("ana")
    await board.tasks(10)
    verbs = [store.claim_next_task(ana) for _ in range(5) for store in (board.store, other)]
    outcomes = await asyncio.gather(*verbs, return_exceptions=True)
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 9
    assert [task.id for task in await board.store.list_tasks(board.id, status=TaskStatus.IN_PROGRESS)] == [1]


async def test_claiming_what_one_holds_returns_it(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    async with board.recording() as seen:
        assert await board.store.claim_task(ana, task.id) == task
    assert seen == []


async def test_nobody_with_an_open_shutdown_claims(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task()
    request = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    for stopping in (False, True):
        if stopping:
            await board.store.answer_request(ana, request.id, approve=True)
        with pytest.raises(ShuttingDown):
            await board.store.claim_next_task(ana)
        with pytest.raises(ShuttingDown):
            await board.store.claim_task(ana, 1)
    assert (await board.get(1)).status is TaskStatus.PENDING


async def test_one_who_may_stay_claims_again(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.tasks(2)
    refused = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.answer_request(ana, refused.id, approve=False, reason="not yet")
    assert await claim(board, ana) == 1
    await board.store.complete_task(ana, 1)
    cancelled = await board.store.open_request(board.lead, RequestKind.SHUTDOWN, "ana")
    await board.store.cancel_request(board.lead, cancelled.id)
    assert await claim(board, ana) == 2


async def test_an_assigned_member_too_has_one_task_in_progress(board: Board) -> None:
    ana = await board.teammate("ana", autonomy=Autonomy.ASSIGNED)
    first, second = await board.task(owner="ana"), await board.task(owner="ana")
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == first.id
    with pytest.raises(AlreadyClaimed):
        await board.store.claim_next_task(ana)
    assert (await board.get(second.id)).status is TaskStatus.PENDING


async def test_an_assigned_member_claims_nothing_by_itself(board: Board) -> None:
    ana = await board.teammate("ana", autonomy=Autonomy.ASSIGNED)
    await board.tasks(2)
    await board.task("hers, but blocked", owner="ana", blocked_by=[1])
    assert await claim(board, ana) is None
    assert await board.store.find_work(ana) is None
    await board.task("hers", owner="ana")
    assert await claim(board, ana) == 4
    with pytest.raises(AlreadyClaimed):
        await board.store.claim_next_task(ana)
    await board.store.complete_task(ana, 4)
    assert (await board.store.claim_task(ana, 2)).owner == "ana", "told to, she may"


async def test_claiming_sets_an_idle_member_to_work(board: Board) -> None:
    ana = await board.idle_teammate("ana")
    await board.task()
    await claim(board, ana)
    assert (await board.member("ana")).status is MemberStatus.WORKING


async def test_a_reserved_task_is_claimed_by_nobody_else(board: Board) -> None:
    doomed = await board.store.register_worker(slots=1)
    ana, ben = await board.teammate("ana", worker=doomed), await board.teammate("ben")
    await board.claimed(ana)
    await board.store.lapse_worker(doomed.id, renewals_seen=None)
    assert await claim(board, ben) is None
    with pytest.raises(AlreadyClaimed):
        await board.store.claim_task(ben, 1)


async def test_the_human_and_the_lead_may_claim_too(board: Board) -> None:
    await board.tasks(2)
    assert await claim(board, board.user) == 1
    assert (await board.store.claim_task(board.lead, 2)).owner == "lead"


async def test_a_claim_and_an_assignment_cannot_both_win(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    ana, _ = await board.teammate("ana"), await board.teammate("ben")
    for _ in range(8):
        task = await board.task()
        await asyncio.gather(
            board.store.claim_task(ana, task.id),
            other.update_task(board.lead, task.id, TaskChanges(owner="ben")),
            return_exceptions=True,
        )
        stored = await board.get(task.id)
        # Whoever came second: an assignment takes it from its owner, a claim after it is refused.
        assert (stored.status, stored.owner) == (TaskStatus.PENDING, "ben")
        await board.store.delete_task(board.lead, task.id)


async def test_a_claim_and_a_deletion_cannot_both_win(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    ana = await board.teammate("ana")
    for _ in range(8):
        task = await board.task()
        outcomes = await asyncio.gather(
            other.claim_next_task(ana), board.store.delete_task(board.user, task.id), return_exceptions=True
        )
        assert not any(isinstance(outcome, BaseException) and not isinstance(outcome, Conflict) for outcome in outcomes)
        assert (await board.get(task.id)).status is TaskStatus.DELETED


async def test_a_stale_check_does_not_survive_a_claim(board: Board) -> None:
    """The lead checks a task that nobody has; ana claims it meanwhile: from there on it is her attempt."""
    ana = await board.teammate("ana")
    for number in (1, 2):
        await board.task(check="true")
        run = await board.store.start_check(board.lead, number)
        assert run is not None
        claimed = await board.store.claim_next_task(ana) if number == 1 else await board.store.claim_task(ana, number)
        assert claimed is not None
        assert not claimed.verifying
        assert not (await board.get(number)).verifying
        with pytest.raises(Conflict):
            await board.store.finish_check(board.lead, run, Evidence(command="true", exit_code=0))
        await board.store.fail_task(ana, number)
