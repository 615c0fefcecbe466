"""The queue: work waits in the order in which it came, is taken one at a time, and completes its task once."""

from __future__ import annotations

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import USER, MemberRef, Worker
from bullpen.domain.submission import Submission, SubmissionState, Work
from bullpen.domain.task import Task, TaskStatus
from bullpen.errors import Conflict, LeaseLost
from tests.conformance.board import BOUND_SECONDS, Board

BASE, MADE, TRUNK = ("0" * 40, "a" * 40, "b" * 40)
WORK = Work(base=BASE, commit=MADE)


async def handed_in(board: Board, by: MemberRef, subject: str = "a task", **details: object) -> Task:
    """Claimed and done: its work waits in the queue."""
    task = await board.claimed(by, subject, **details)
    return await board.store.complete_task(by, task.id, result=f"made {subject}", work=WORK)


async def taken(board: Board, worker: Worker | None = None) -> Submission:
    found = await board.store.take_submission((worker or board.worker).id)
    assert found is not None
    return found


# -- into the queue ---------------------------------------------------------------------------------------------


async def test_completing_with_work_queues_it_and_leaves_the_task_in_progress_and_its_owners(board: Board) -> None:
    ana = await board.teammate("ana")
    async with board.recording() as seen:
        task = await handed_in(board, ana, "the form")
    assert (task.status, task.owner, task.submission, task.attempt) == (TaskStatus.IN_PROGRESS, "ana", 1, 1)
    assert task == await board.get(task.id)
    assert task.result is None
    [queued] = await board.store.list_submissions(board.id)
    assert await board.store.list_submissions(board.id, member="Ana") == [queued]
    assert await board.store.list_submissions(board.id, member="ben") == []
    assert queued == await board.store.get_submission(board.id, 1)
    assert (queued.member, queued.task_id, queued.attempt, queued.result) == ("ana", task.id, 1, "made the form")
    assert (queued.base, queued.commit, queued.state, queued.has_passed) == (BASE, MADE, SubmissionState.QUEUED, False)
    [event] = [event for event in seen if event.kind == EventKind.WORK_SUBMITTED]
    assert event.data == {"submission": 1, "task": task.id, "member": "ana", "commit": MADE}
    assert EventKind.TASK_COMPLETED not in [event.kind for event in seen]


async def test_an_integrated_submission_completes_its_task_and_releases_what_waited_for_it(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.idle_teammate("ben")
    first = await handed_in(board, ana)
    second = await board.task("next", blocked_by=[first.id])
    assert await board.store.claim_next_task(ben) is None
    async with board.listening([ana, ben]) as ears, board.recording() as seen:
        submission = await taken(board)
        assert (submission.state, submission.worker_id) == (SubmissionState.TAKEN, board.worker.id)
        done = await board.store.accept_submission(board.worker.id, board.id, submission.id, TRUNK)
        assert await ears.heard("ana")
        assert await ears.heard("ben")
    assert (done.state, done.integrated) == (SubmissionState.INTEGRATED, TRUNK)
    task = await board.get(first.id)
    assert (task.status, task.owner, task.result) == (TaskStatus.COMPLETED, "ana", "made a task")
    assert (task.submission, task.commit) == (None, TRUNK)
    assert [event.kind for event in seen if event.kind.startswith(("Work", "Task"))] == [
        EventKind.WORK_TAKEN,
        EventKind.WORK_INTEGRATED,
        EventKind.TASK_COMPLETED,
        EventKind.TASK_UNBLOCKED,
    ]
    claimed = await board.store.claim_next_task(ben)
    assert claimed is not None
    assert claimed.id == second.id


async def test_the_bell_rings_when_work_is_queued_and_when_its_team_has_none_taken_any_more(board: Board) -> None:
    async with board.store.listen_submissions() as bell:
        bell.clear()
        await board.store.submit_work(board.lead, WORK, result="by hand")
        assert await bell.wait(BOUND_SECONDS)
        bell.clear()
        submission = await taken(board)
        refused = await board.store.refuse_submission(board.worker.id, board.id, submission.id, "a conflict in x.py")
        assert await bell.wait(BOUND_SECONDS)
    assert (refused.state, refused.note) == (SubmissionState.REFUSED, "a conflict in x.py")


# -- who cannot, leaves it to others ------------------------------------------------------------------------------


async def test_what_a_worker_cannot_integrate_is_queued_again_in_its_place_and_rings(board: Board) -> None:
    first = await board.store.submit_work(board.lead, WORK, result="first")
    await board.store.submit_work(board.lead, WORK, result="second")
    other = await board.store.register_worker(slots=1)
    await taken(board)
    async with board.store.listen_submissions() as bell, board.recording() as seen:
        bell.clear()
        released = await board.store.release_submission(board.worker.id, board.id, first.id, "no such directory")
        assert await bell.wait(BOUND_SECONDS)
    assert (released.state, released.worker_id) == (SubmissionState.QUEUED, None)
    [event] = [event for event in seen if event.kind == EventKind.WORK_RELEASED]
    assert (event.data["worker"], event.data["why"]) == (board.worker.id, "no such directory")
    again = await board.store.release_submission(board.worker.id, board.id, first.id, "no such directory")
    assert again == released, "it is there already"
    assert (await taken(board, other)).id == first.id, "nothing has overtaken it"


async def test_only_who_has_taken_a_submission_releases_it_and_only_while_it_is_open(board: Board) -> None:
    other = await board.store.register_worker(slots=1)
    await board.store.submit_work(board.lead, WORK)
    submission = await taken(board)
    with pytest.raises(LeaseLost):
        await board.store.release_submission(other.id, board.id, submission.id, "not mine")
    await board.store.accept_submission(board.worker.id, board.id, submission.id, TRUNK)
    with pytest.raises(Conflict):
        await board.store.release_submission(board.worker.id, board.id, submission.id, "too late")


async def test_a_release_in_a_deleted_team_withdraws_what_nobody_is_to_integrate(board: Board) -> None:
    await board.store.submit_work(board.lead, WORK)
    submission = await taken(board)
    await board.store.delete_team(board.lead)
    released = await board.store.release_submission(board.worker.id, board.id, submission.id, "no such directory")
    assert released.state is SubmissionState.WITHDRAWN


async def test_nothing_is_taken_of_teams_that_a_worker_leaves_to_others(board: Board) -> None:
    store = board.store
    other = await store.create_team("other")
    await store.submit_work(board.lead, WORK)
    await store.submit_work(MemberRef(other.id, USER, 0), WORK)
    assert await store.take_submission(board.worker.id, team_id=board.id, except_teams=[board.id]) is None
    found = await store.take_submission(board.worker.id, except_teams=[board.id])
    assert found is not None
    assert found.team_id == other.id
    assert await store.take_submission(board.worker.id, except_teams=[other.id, board.id]) is None
    assert (await taken(board)).team_id == board.id
