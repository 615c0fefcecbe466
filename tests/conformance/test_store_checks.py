"""Verified done: a task with a check is completed when the check has passed, and only for what was checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef
from bullpen.domain.task import CheckRun, Evidence, Task, TaskChanges, TaskStatus
from bullpen.errors import CheckRequired, Conflict, NotAllowed, UsageError
from tests.conformance.board import Board

PASSED = Evidence(command="make test", exit_code=0, tail="12 passed", seconds=1.5, commit="abc123")
FAILED = Evidence(command="make test", exit_code=2, tail="1 failed")


@pytest.fixture
async def ana(board: Board) -> MemberRef:
    """With task #1 in progress, which has a check."""
    ref = await board.teammate("ana")
    await board.claimed(ref, check=" make test ")
    return ref


async def start(board: Board, by: MemberRef) -> CheckRun:
    run = await board.store.start_check(by, 1)
    assert run is not None
    return run


async def test_a_task_with_a_check_is_not_simply_completed(board: Board, ana: MemberRef) -> None:
    for by in (ana, board.lead, board.user):
        with pytest.raises(CheckRequired):
            await board.store.complete_task(by, 1, result="trust me")
    for by in (ana, board.lead):
        with pytest.raises(NotAllowed):
            await board.store.complete_task(by, 1, unverified=True)
    assert (await board.get(1)).status is TaskStatus.IN_PROGRESS


async def test_only_the_human_passes_a_check_over_and_the_event_says_so(board: Board, ana: MemberRef) -> None:
    async with board.recording() as seen:
        done = await board.store.complete_task(board.user, 1, unverified=True)
    assert done.status is TaskStatus.COMPLETED
    completed = next(event for event in seen if event.kind == EventKind.TASK_COMPLETED)
    assert completed.data["unverified"] is True


async def test_while_its_check_runs_a_task_is_verifying_and_still_the_owners(board: Board, ana: MemberRef) -> None:
    run = await start(board, ana)
    assert (run.task_id, run.attempt, run.check) == (1, 1, "make test")
    task = await board.get(1)
    assert (task.status, task.owner, task.verifying, task.attempt) == (TaskStatus.IN_PROGRESS, "ana", True, 1)


async def test_a_check_that_passed_completes_the_task(board: Board, ana: MemberRef) -> None:
    await board.task("waits", blocked_by=[1])
    done = await board.store.finish_check(ana, await start(board, ana), PASSED, result="all green")
    assert (done.status, done.verifying, done.result) == (TaskStatus.COMPLETED, False, "all green")
    evidence = done.evidence
    assert evidence is not None
    assert (evidence.command, evidence.exit_code, evidence.tail) == ("make test", 0, "12 passed")
    assert (evidence.seconds, evidence.commit, evidence.checked_at) == (1.5, "abc123", board.clock.now())
    assert await board.get(1) == done
    assert (await board.get(2)).open_blockers == 0


async def test_a_check_that_failed_leaves_the_task_with_its_owner(board: Board, ana: MemberRef) -> None:
    task = await board.store.finish_check(ana, await start(board, ana), FAILED, result="all green")
    assert (task.status, task.owner, task.verifying) == (TaskStatus.IN_PROGRESS, "ana", False)
    assert (task.evidence.tail if task.evidence else None) == "1 failed"
    assert task.result is None
    done = await board.store.finish_check(ana, await start(board, ana), PASSED)
    assert (done.status, done.attempt) == (TaskStatus.COMPLETED, 2)


async def test_a_task_without_a_check_has_nothing_to_run(board: Board) -> None:
    ben = await board.teammate("ben")
    await board.claimed(ben)
    assert await board.store.start_check(ben, 1) is None
    assert not (await board.get(1)).verifying


async def test_only_the_owner_or_the_lead_checks(board: Board, ana: MemberRef) -> None:
    ben = await board.teammate("ben")
    with pytest.raises(NotAllowed):
        await board.store.start_check(ben, 1)
    run = await start(board, ana)
    with pytest.raises(NotAllowed):
        await board.store.finish_check(ben, run, PASSED)
    assert (await board.store.finish_check(board.lead, run, PASSED)).status is TaskStatus.COMPLETED


MOVES: dict[str, Callable[[Board, MemberRef], Awaitable[object]]] = {
    "another attempt began": lambda board, ana: board.store.start_check(ana, 1),
    "the check was changed": lambda board, ana: board.store.update_task(board.lead, 1, TaskChanges(check="make all")),
    "the check was removed": lambda board, ana: board.store.update_task(board.lead, 1, TaskChanges(check=None)),
    "it was released": lambda board, ana: board.store.release_task(ana, 1),
    "it was given away": lambda board, ana: board.store.update_task(board.lead, 1, TaskChanges(owner="user")),
    "it failed": lambda board, ana: board.store.fail_task(ana, 1),
    "it was deleted": lambda board, ana: board.store.delete_task(board.lead, 1),
    "it was completed": lambda board, ana: board.store.complete_task(board.user, 1, unverified=True),
    "its owner left": lambda board, ana: board.store.shut_down_member(ana),
    "its owner crashed": lambda board, ana: board.store.release_member(ana, note="crashed"),
}


@pytest.mark.parametrize("move", MOVES)
async def test_a_verdict_counts_no_more_when(board: Board, ana: MemberRef, move: str) -> None:
    run = await start(board, ana)
    await MOVES[move](board, ana)
    before = await board.get(1)
    with pytest.raises(Conflict):
        await board.store.finish_check(board.lead, run, PASSED)
    assert await board.get(1) == before


async def test_a_verdict_is_given_once(board: Board, ana: MemberRef) -> None:
    run = await start(board, ana)
    await board.store.finish_check(ana, run, FAILED)
    with pytest.raises(Conflict):
        await board.store.finish_check(ana, run, PASSED)


async def test_a_verdict_for_another_text_or_attempt_is_refused(board: Board, ana: MemberRef) -> None:
    run = await start(board, ana)
    for forged in (
        CheckRun(task_id=1, attempt=2, check=run.check),
        CheckRun(task_id=1, attempt=run.attempt, check="true"),
    ):
        with pytest.raises(Conflict):
            await board.store.finish_check(ana, forged, PASSED)
    with pytest.raises(UsageError):
        await board.store.finish_check(ana, run, Evidence(command="true", exit_code=0))
    assert (await board.get(1)).verifying


async def test_a_check_that_was_changed_there_and_back_is_void(board: Board, ana: MemberRef) -> None:
    run = await start(board, ana)
    for text in ("make lint", "make test"):
        changed = await board.store.update_task(board.lead, 1, TaskChanges(check=text))
        assert not changed.verifying
    with pytest.raises(Conflict):
        await board.store.finish_check(ana, run, PASSED)


ENDS: dict[str, Callable[[Board], Awaitable[Task]]] = {
    "fails": lambda board: board.store.fail_task(board.lead, 1),
    "is completed unverified": lambda board: board.store.complete_task(board.user, 1, unverified=True),
    "is deleted": lambda board: board.store.delete_task(board.lead, 1),
}


@pytest.mark.parametrize("end", ENDS)
async def test_nothing_verifies_a_task_that(board: Board, ana: MemberRef, end: str) -> None:
    await start(board, ana)
    ended = await ENDS[end](board)
    assert not ended.verifying
    assert await board.get(1) == ended


@pytest.mark.parametrize("end", ENDS)
async def test_nothing_is_reserved_of_a_task_that(board: Board, ana: MemberRef, end: str) -> None:
    await board.store.rest_member(ana)
    assert (await board.get(1)).reserved_until is not None
    ended = await ENDS[end](board)
    assert ended.reserved_until is None
    assert await board.get(1) == ended


async def test_changing_the_check_to_itself_does_not_void_it(board: Board, ana: MemberRef) -> None:
    run = await start(board, ana)
    await board.store.update_task(board.lead, 1, TaskChanges(check="make test", description="more"))
    assert (await board.store.finish_check(ana, run, PASSED)).status is TaskStatus.COMPLETED


async def test_checks_are_recorded(board: Board, ana: MemberRef) -> None:
    async with board.recording() as seen:
        await board.store.finish_check(ana, await start(board, ana), FAILED)
    started, finished = seen
    assert (started.kind, started.data["attempt"]) == (EventKind.TASK_CHECK_STARTED, 1)
    assert (finished.kind, finished.data["exit_code"]) == (EventKind.TASK_CHECK_FINISHED, 2)


async def test_who_ran_the_check_by_itself_completes_with_the_evidence_in_one_step(
    board: Board, ana: MemberRef
) -> None:
    store = board.store
    failed = await store.complete_checked_task(ana, 1, FAILED)
    assert (failed.status, failed.verifying, failed.attempt) == (TaskStatus.IN_PROGRESS, False, 1)
    assert failed.evidence is not None
    assert failed == await board.get(1)
    async with board.recording() as seen:
        done = await store.complete_checked_task(ana, 1, PASSED, result="all green")
    assert (done.status, done.result, done.attempt) == (TaskStatus.COMPLETED, "all green", 2)
    kinds = [EventKind.TASK_CHECK_STARTED, EventKind.TASK_CHECK_FINISHED, EventKind.TASK_COMPLETED]
    assert [event.kind for event in seen if event.kind in kinds] == kinds
    assert await store.complete_checked_task(ana, 1, PASSED) == done == await board.get(1)


@pytest.mark.parametrize("evidence", [PASSED, FAILED])
async def test_evidence_that_is_given_again_under_its_operation_id_is_no_other_attempt(
    board: Board, ana: MemberRef, evidence: Evidence
) -> None:
    first = await board.store.complete_checked_task(ana, 1, evidence, operation_id="it")
    async with board.recording() as seen:
        assert await board.store.complete_checked_task(ana, 1, evidence, operation_id="it") == first
    assert seen == []
    assert await board.get(1) == first


async def test_evidence_that_is_refused_leaves_nothing_verifying(board: Board, ana: MemberRef) -> None:
    unchecked = await board.task("without a check")
    for number, evidence in ((1, Evidence(command="true", exit_code=0)), (unchecked.id, PASSED)):
        before = await board.get(number)
        with pytest.raises(UsageError):
            await board.store.complete_checked_task(
                ana if number == 1 else board.lead, number, evidence, operation_id="it"
            )
        assert await board.get(number) == before
    ben = await board.teammate("ben")
    with pytest.raises(NotAllowed):
        await board.store.complete_checked_task(ben, 1, PASSED)
    assert (await board.store.complete_checked_task(ana, 1, PASSED, operation_id="it")).status is TaskStatus.COMPLETED
