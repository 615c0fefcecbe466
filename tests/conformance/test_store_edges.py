"""Dependencies: blocked is what waits for an unfinished blocker, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import random

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.graph import has_cycle
from bullpen.domain.member import MemberRef
from bullpen.domain.task import RELEASES_DEPENDENTS, TaskChanges, TaskStatus
from bullpen.errors import AlreadyClaimed, Conflict, CycleRefused, NotAllowed, NotFound
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother


async def check_counts(board: Board) -> None:
    """What every store must keep: the counter is the number of unfinished blockers, both ends know each edge."""
    listed = [task for status in TaskStatus for task in await board.store.list_tasks(board.id, status=status)]
    tasks = {task.id: task for task in listed}
    for task in tasks.values():
        unfinished = [number for number in task.blocked_by if tasks[number].status not in RELEASES_DEPENDENTS]
        assert task.open_blockers == len(unfinished), task
        assert all(task.id in tasks[number].blocks for number in task.blocked_by)
        assert all(task.id in tasks[number].blocked_by for number in task.blocks)
    assert not has_cycle({task.id: task.blocked_by for task in tasks.values()})


async def test_a_blocked_task_is_not_claimed(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana, "first")
    await board.task("second", blocked_by=[1])
    assert await board.store.claim_next_task(ben) is None
    with pytest.raises(AlreadyClaimed, match="blocked"):
        await board.store.claim_task(ben, 2)
    await check_counts(board)


async def test_completing_the_last_blocker_frees_its_dependents(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.tasks(2)
    await board.task("third", blocked_by=[1, 2])
    await board.store.complete_task(board.lead, 1)
    assert (await board.get(3)).open_blockers == 1
    await board.store.claim_task(ana, 2)
    assert await board.store.claim_next_task(ben) is None
    async with board.recording() as seen:
        await board.store.complete_task(ana, 2)
    unblocked = next(event for event in seen if event.kind == EventKind.TASK_UNBLOCKED)
    assert (unblocked.data["task"], unblocked.actor) == (3, "ana")
    claimed = await board.store.claim_next_task(ben)
    assert claimed is not None
    assert (claimed.id, claimed.blocked_by) == (3, (1, 2)), "edges are kept"
    await check_counts(board)


async def test_deleting_a_blocker_frees_its_dependents(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task("first")
    await board.task("second", blocked_by=[1])
    await board.store.delete_task(board.user, 1)
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 2
    await check_counts(board)


async def test_a_failed_blocker_keeps_its_dependents_until_it_is_retried_or_deleted(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task("first")
    await board.task("second", blocked_by=[1])
    await board.store.fail_task(board.lead, 1)
    assert await board.store.claim_next_task(ana) is None
    await board.store.retry_task(board.lead, 1)
    await check_counts(board)
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 1
    await board.store.fail_task(ana, 1)
    await board.store.delete_task(board.lead, 1)
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 2
    await check_counts(board)


async def test_a_completed_blocker_blocks_nothing(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task("done")
    await board.store.complete_task(board.lead, 1)
    task = await board.task("second", blocked_by=[1])
    assert (task.blocked_by, task.open_blockers) == ((1,), 0)
    await board.task("third")
    await board.store.update_task(board.lead, 3, TaskChanges(add_blocked_by=(1,)))
    assert (await board.get(3)).open_blockers == 0
    # Deleting what was done already must not count it a second time.
    await board.store.delete_task(board.lead, 1)
    await check_counts(board)
    assert await board.store.claim_next_task(ana) is not None


async def test_a_missing_or_deleted_blocker_is_refused(board: Board) -> None:
    await board.tasks(2)
    await board.store.delete_task(board.user, 1)
    for blocker in (1, 99):
        with pytest.raises(NotFound):
            await board.task(blocked_by=[blocker])
        with pytest.raises(NotFound):
            await board.store.update_task(board.user, 2, TaskChanges(add_blocked_by=(blocker,)))
        with pytest.raises(NotFound):
            await board.store.update_task(board.user, 2, TaskChanges(add_blocks=(blocker,)))
    assert (await board.get(2)).blocked_by == ()
    await check_counts(board)


async def test_a_task_cannot_block_itself(board: Board) -> None:
    await board.task()
    for changes in (TaskChanges(add_blocked_by=(1,)), TaskChanges(add_blocks=(1,))):
        with pytest.raises(CycleRefused):
            await board.store.update_task(board.user, 1, changes)
    await check_counts(board)


async def test_a_cycle_is_refused_and_shown(board: Board) -> None:
    await board.tasks(4)
    for dependent, blocker in ((2, 1), (3, 2), (4, 3)):
        await board.store.update_task(board.user, dependent, TaskChanges(add_blocked_by=(blocker,)))
    with pytest.raises(CycleRefused, match="#1 -> #4 -> #3 -> #2 -> #1"):
        await board.store.update_task(board.user, 1, TaskChanges(add_blocked_by=(4,)))
    with pytest.raises(CycleRefused):
        await board.store.update_task(board.user, 4, TaskChanges(add_blocks=(1,)))
    assert (await board.get(1)).blocked_by == ()
    await check_counts(board)


async def test_a_cycle_made_of_one_call_is_refused_whole(board: Board) -> None:
    await board.tasks(3)
    with pytest.raises(CycleRefused):
        await board.store.update_task(board.user, 2, TaskChanges(subject="x", add_blocked_by=(1, 3), add_blocks=(1,)))
    for number in (1, 2, 3):
        task = await board.get(number)
        assert (task.subject, task.blocked_by) == (f"task {number}", ())


async def test_two_halves_of_a_cycle_at_the_same_moment_are_not_both_added(
    board: Board, open_another: OpenAnother
) -> None:
    other = await open_another()
    for _ in range(10):
        one, two = await board.tasks(2)
        outcomes = await asyncio.gather(
            board.store.update_task(board.user, one.id, TaskChanges(add_blocked_by=(two.id,))),
            other.update_task(board.user, two.id, TaskChanges(add_blocked_by=(one.id,))),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["CycleRefused", "Task"]
    await check_counts(board)


async def test_adding_blocks_mirrors_adding_blocked_by(board: Board) -> None:
    await board.tasks(3)
    await board.store.update_task(board.user, 1, TaskChanges(add_blocks=(2, 3)))
    assert (await board.get(1)).blocks == (2, 3)
    assert ((await board.get(2)).blocked_by, (await board.get(3)).blocked_by) == ((1,), (1,))
    await check_counts(board)


async def test_each_task_whose_blockers_changed_is_in_the_log(board: Board) -> None:
    await board.tasks(3)
    async with board.recording() as seen:
        await board.store.update_task(board.user, 2, TaskChanges(add_blocked_by=(1,), add_blocks=(3,)))
        await board.store.update_task(board.user, 2, TaskChanges(add_blocked_by=(1,)))
        await board.store.update_task(board.user, 2, TaskChanges(remove_blocked_by=(1,)))
    assert [(event.kind, event.data) for event in seen] == [
        (EventKind.TASK_CHANGED, {"task": number, "fields": ["blocked_by"], "blocked_by": blockers})
        for number, blockers in ((2, [1]), (3, [2]), (2, []))
    ]


async def test_an_edge_is_counted_once_however_often_it_is_added(board: Board) -> None:
    await board.tasks(2)
    for changes in (TaskChanges(add_blocked_by=(1, 1)), TaskChanges(add_blocked_by=(1,))):
        assert (await board.store.update_task(board.user, 2, changes)).open_blockers == 1
    await board.store.update_task(board.user, 1, TaskChanges(add_blocks=(2,)))
    await check_counts(board)


async def test_removing_an_edge_frees_the_dependent(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task("first", owner="user")
    await board.task("second", blocked_by=[1])
    freed = await board.store.update_task(board.user, 2, TaskChanges(remove_blocked_by=(1, 1, 77)))
    assert (freed.blocked_by, freed.open_blockers) == ((), 0)
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 2
    await check_counts(board)


@pytest.mark.parametrize("end", ["complete_task", "delete_task", "fail_task"])
async def test_removing_the_edge_to_a_finished_blocker_counts_right(board: Board, end: str) -> None:
    await board.tasks(2)
    await board.task("third", blocked_by=[1, 2])
    await getattr(board.store, end)(board.user, 1)
    await board.store.update_task(board.user, 3, TaskChanges(remove_blocked_by=(1,)))
    assert (await board.get(3)).open_blockers == 1
    await check_counts(board)


async def test_only_a_pending_task_is_made_to_wait(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.task("another")
    with pytest.raises(Conflict):
        await board.store.update_task(board.lead, 1, TaskChanges(add_blocked_by=(2,)))
    await check_counts(board)


async def test_nobody_holds_back_the_tasks_of_others(board: Board) -> None:
    """`addBlocks` changes the other task: it takes the rights to change that one."""
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("ana's", by=ana)
    await board.task("ben's", by=ben)
    with pytest.raises(NotAllowed):
        await board.store.update_task(ana, 1, TaskChanges(add_blocks=(2,)))
    await board.store.update_task(ana, 1, TaskChanges(add_blocked_by=(2,)))
    assert (await board.get(2)).blocked_by == ()


async def test_a_dependent_added_while_its_blocker_completes_never_waits_for_ever(
    board: Board, open_another: OpenAnother
) -> None:
    """255 tasks were blocked for ever in 6 s before blockers were held."""
    other = await open_another()
    for _ in range(15):
        blocker = await board.task("blocker")
        _, dependent = await asyncio.gather(
            board.store.complete_task(board.lead, blocker.id),
            other.create_task(board.user, "dependent", blocked_by=[blocker.id]),
        )
        assert (await board.get(dependent.id)).open_blockers == 0
    await check_counts(board)


async def test_an_edge_added_while_its_blocker_ends_is_counted_right(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    chance = random.Random(3)
    for _ in range(10):
        one, two, three = await board.tasks(3)
        end = chance.choice([board.store.complete_task, board.store.delete_task, board.store.fail_task])
        await asyncio.gather(
            end(board.lead, one.id),
            other.update_task(board.user, three.id, TaskChanges(add_blocked_by=(one.id, two.id))),
            board.store.complete_task(board.user, two.id),
            return_exceptions=True,
        )
        await check_counts(board)


async def test_a_chain_is_worked_off_in_order(board: Board) -> None:
    store = board.store
    await board.task("1")
    for number in range(2, 8):
        await board.task(f"{number}", blocked_by=[number - 1])
    workers: list[MemberRef] = [await board.teammate(name) for name in ("ana", "ben", "cat")]
    order: list[int] = []
    while True:
        claims = {ref: await store.claim_next_task(ref) for ref in workers}
        held = [(ref, task) for ref, task in claims.items() if task is not None]
        if not held:
            break
        [(ref, task)] = held
        order.append(task.id)
        await store.complete_task(ref, task.id)
    assert order == [1, 2, 3, 4, 5, 6, 7]
