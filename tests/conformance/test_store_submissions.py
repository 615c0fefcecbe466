"""The queue: work waits in the order in which it came, is taken one at a time, and completes its task once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import USER, MemberRef, Worker
from bullpen.domain.submission import Submission, SubmissionState, Work
from bullpen.domain.task import Evidence, Task, TaskChanges, TaskStatus
from bullpen.errors import AlreadyClaimed, Conflict, LeaseLost, UsageError
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


async def test_work_names_whole_commits(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    for work in (Work(base=BASE, commit="abc"), Work(base="HEAD", commit=MADE)):
        with pytest.raises(UsageError):
            await board.store.submit_work(board.lead, work)
        with pytest.raises(UsageError):
            await board.store.complete_task(ana, task.id, work=work)
    assert await board.store.list_submissions(board.id) == []


async def test_completing_what_waits_to_be_integrated_returns_it_unchanged(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await handed_in(board, ana)
    async with board.recording() as seen:
        assert await board.store.complete_task(ana, task.id, result="again", work=WORK) == task
        assert await board.store.complete_task(ana, task.id, result="again") == task
        assert await board.store.start_check(ana, task.id) is None
    assert seen == []
    with pytest.raises(AlreadyClaimed):
        await board.store.claim_next_task(ana)


async def test_a_check_that_passed_queues_the_work_and_counts_for_the_commit_that_was_checked(board: Board) -> None:
    for name, commit, has_passed in (("ana", MADE, True), ("ben", TRUNK, False)):
        member = await board.teammate(name)
        task = await board.claimed(member, check="true")
        run = await board.store.start_check(member, task.id)
        assert run is not None
        passed = Evidence(command="true", exit_code=0, commit=commit)
        waiting = await board.store.finish_check(member, run, passed, work=WORK)
        assert (waiting.status, waiting.verifying) == (TaskStatus.IN_PROGRESS, False)
        assert await board.store.start_check(member, task.id) is None, "there is nothing left to check"
        assert await board.store.complete_checked_task(member, task.id, passed) == waiting
        [queued] = await board.store.list_submissions(board.id, member=name)
        assert queued.has_passed is has_passed


async def test_only_the_human_completes_at_once_what_waits_to_be_integrated(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await handed_in(board, ana)
    assert (await board.store.complete_task(board.lead, task.id)).status is TaskStatus.IN_PROGRESS
    done = await board.store.complete_task(board.user, task.id, result="good enough")
    assert (done.status, done.submission) == (TaskStatus.COMPLETED, None)
    assert (await board.store.get_submission(board.id, 1)).state is SubmissionState.WITHDRAWN
    assert await board.store.take_submission(board.worker.id) is None


async def test_the_lead_hands_in_what_a_teammate_works_on_or_what_nobody_does_with_free_hands(board: Board) -> None:
    ana = await board.teammate("ana")
    hers, first, second = await board.claimed(ana), await board.task(), await board.task()
    assert (await board.store.complete_task(board.lead, hers.id, work=WORK)).owner == "ana"
    assert any("stop working" in message.content for message in await board.inbox("ana"))
    async with board.recording() as seen:
        assert (await board.store.complete_task(board.lead, first.id, work=WORK)).owner == "lead"
    claimed = next(event for event in seen if event.kind == EventKind.TASK_CLAIMED)
    assert (claimed.data["task"], claimed.data["owner"]) == (first.id, "lead")
    with pytest.raises(AlreadyClaimed):
        await board.store.complete_task(board.lead, second.id, work=WORK)
    assert len(await board.store.list_submissions(board.id)) == 2


async def test_what_is_handed_in_is_reserved_no_longer(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await board.store.rest_member(ana)
    assert (await board.store.complete_task(board.lead, task.id, work=WORK)).reserved_until is None
    board.clock.advance(3600)
    assert await board.store.hand_back_tasks() == []


WITHDRAWS: dict[str, Callable[[Board, int], Awaitable[Any]]] = {
    "failing it": lambda board, task: board.store.fail_task(board.lead, task),
    "releasing it": lambda board, task: board.store.release_task(board.lead, task),
    "deleting it": lambda board, task: board.store.delete_task(board.lead, task),
    "another owner": lambda board, task: board.store.update_task(board.lead, task, TaskChanges(owner="ben")),
    "no owner": lambda board, task: board.store.update_task(board.lead, task, TaskChanges(owner=None)),
}


@pytest.mark.parametrize("step", WITHDRAWS)
async def test_queued_work_on_a_task_is_withdrawn_by(board: Board, step: str) -> None:
    ana = await board.teammate("ana")
    await board.teammate("ben")
    task = await handed_in(board, ana)
    async with board.recording() as seen:
        await WITHDRAWS[step](board, task.id)
    withdrawn = await board.store.get_submission(board.id, 1)
    assert (withdrawn.state, withdrawn.ended_at) == (SubmissionState.WITHDRAWN, board.clock.now())
    [event] = [event for event in seen if event.kind == EventKind.WORK_WITHDRAWN]
    assert (event.data["submission"], event.data["task"]) == (1, task.id)
    assert (await board.get(task.id)).submission is None
    assert await board.store.take_submission(board.worker.id) is None


@pytest.mark.parametrize("step", WITHDRAWS)
async def test_while_work_on_a_task_is_being_integrated_a_conflict_is(board: Board, step: str) -> None:
    ana = await board.teammate("ana")
    await board.teammate("ben")
    task = await handed_in(board, ana)
    await taken(board)
    with pytest.raises(Conflict):
        await WITHDRAWS[step](board, task.id)
    assert await board.get(task.id) == task
    assert (await board.store.get_submission(board.id, 1)).state is SubmissionState.TAKEN


async def test_deleting_the_team_withdraws_what_is_queued_and_lets_what_is_taken_be_integrated(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    first, second = await handed_in(board, ana), await handed_in(board, ben)
    submission = await taken(board)
    await board.store.delete_team(board.lead)
    assert (await board.store.get_submission(board.id, 2)).state is SubmissionState.WITHDRAWN
    assert (await board.get(second.id)).submission is None
    await board.store.accept_submission(board.worker.id, board.id, submission.id, TRUNK)
    assert (await board.get(first.id)).status is TaskStatus.COMPLETED


# -- out of the queue -------------------------------------------------------------------------------------------


async def test_the_oldest_is_taken_and_of_each_team_one_at_a_time(board: Board) -> None:
    store = board.store
    other = await store.create_team("other")
    worker = await store.register_worker(slots=1)
    for by in (board.lead, board.lead, MemberRef(other.id, USER, 0)):
        board.clock.advance(1)
        await store.submit_work(by, WORK)
    assert [(found.team_id, found.id) for found in (await taken(board), await taken(board, worker))] == [
        (board.id, 1),
        (other.id, 1),
    ]
    assert await store.take_submission(worker.id) is None, "each team has one taken"
    assert await store.take_submission(worker.id, team_id=board.id) is None
    await store.accept_submission(board.worker.id, board.id, 1, TRUNK)
    assert (await taken(board, worker)).id == 2


async def test_who_hosts_nobody_takes_nothing_and_who_was_lapsed_is_told(board: Board) -> None:
    await board.store.submit_work(board.lead, WORK)
    hosts_nobody = await board.store.register_worker(slots=0)
    assert await board.store.take_submission(hosts_nobody.id) is None
    await board.store.lapse_worker(board.worker.id, renewals_seen=None)
    with pytest.raises(LeaseLost):
        await board.store.take_submission(board.worker.id)


@pytest.mark.parametrize("end", ["stopped", "lapsed"])
async def test_what_a_worker_had_taken_is_queued_again_when_it_has(board: Board, end: str) -> None:
    store = board.store
    doomed = await store.register_worker(slots=1)
    await store.submit_work(board.lead, WORK)
    submission = await taken(board, doomed)
    async with store.listen_submissions() as bell:
        bell.clear()
        if end == "stopped":
            await store.stop_worker(doomed.id)
        else:
            await store.lapse_worker(doomed.id, renewals_seen=None)
        assert await bell.wait(BOUND_SECONDS)
    with pytest.raises(LeaseLost):
        await store.accept_submission(doomed.id, board.id, submission.id, TRUNK)
    again = await taken(board)
    assert (again.id, again.worker_id) == (submission.id, board.worker.id)


async def test_only_who_has_taken_it_says_how_it_ends_and_once(board: Board) -> None:
    store = board.store
    other = await store.register_worker(slots=1)
    await store.submit_work(board.lead, WORK)
    await store.submit_work(board.lead, WORK)
    await taken(board)
    for verb in (
        store.accept_submission(other.id, board.id, 1, TRUNK),
        store.refuse_submission(other.id, board.id, 1, "a conflict"),
        store.accept_submission(board.worker.id, board.id, 2, TRUNK),
    ):
        with pytest.raises(LeaseLost):
            await verb
    with pytest.raises(UsageError):
        await store.accept_submission(board.worker.id, board.id, 1, "main")
    accepted = await store.accept_submission(board.worker.id, board.id, 1, TRUNK)
    await taken(board)
    refused = await store.refuse_submission(board.worker.id, board.id, 2, "a conflict")
    async with board.recording() as seen:
        assert await store.accept_submission(board.worker.id, board.id, 1, MADE) == accepted
        assert await store.refuse_submission(board.worker.id, board.id, 2, "again") == refused
        with pytest.raises(Conflict):
            await store.refuse_submission(board.worker.id, board.id, 1, "too late")
        with pytest.raises(Conflict):
            await store.accept_submission(board.worker.id, board.id, 2, TRUNK)
    assert seen == []


async def test_the_evidence_of_an_integration_is_kept_with_the_commit_of_the_trunk(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await handed_in(board, ana)
    await taken(board)
    evidence = Evidence(command="make test", exit_code=0, tail="ok", commit=MADE)
    await board.store.accept_submission(board.worker.id, board.id, 1, TRUNK, evidence=evidence)
    kept = (await board.get(task.id)).evidence
    assert kept is not None
    assert (kept.command, kept.tail, kept.commit, kept.checked_at) == ("make test", "ok", TRUNK, board.clock.now())


# -- what is refused --------------------------------------------------------------------------------------------


async def test_a_refusal_wakes_who_made_it_and_its_task_stays_its_owners(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await handed_in(board, ana)
    await taken(board)
    evidence = Evidence(command="make test", exit_code=1, tail="red")
    async with board.listening([ana]) as ears, board.recording() as seen:
        await board.store.refuse_submission(board.worker.id, board.id, 1, "the check is red", evidence=evidence)
        assert await ears.heard("ana")
    assert EventKind.WORK_REFUSED in [event.kind for event in seen]
    [message] = await board.inbox("ana")
    assert "the check is red" in message.content
    open_again = await board.get(task.id)
    assert (open_again.status, open_again.owner, open_again.submission) == (TaskStatus.IN_PROGRESS, "ana", None)
    assert open_again.evidence is not None
    assert open_again.evidence.tail == "red"
    assert (await board.store.complete_task(ana, task.id, work=WORK)).submission == 2


async def test_a_refusal_is_told_to_who_made_it_and_to_the_owner(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    await board.store.complete_task(board.lead, task.id, work=WORK)
    await taken(board)
    await board.store.refuse_submission(board.worker.id, board.id, 1, "a conflict in x.py")
    for name in ("ana", "lead"):
        assert any("a conflict in x.py" in message.content for message in await board.inbox(name))


async def test_a_refused_task_of_one_who_rests_returns_to_the_board_with_why(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    task = await handed_in(board, ana)
    await board.store.shut_down_member(ana)
    assert (await board.get(task.id)).owner == "ana", "only its integration is left"
    assert await board.store.claim_next_task(ben) is None
    await taken(board)
    await board.store.refuse_submission(board.worker.id, board.id, 1, "a conflict in x.py")
    back = await board.get(task.id)
    assert (back.status, back.owner) == (TaskStatus.PENDING, None)
    assert "a conflict in x.py" in back.handovers[-1].note
    claimed = await board.store.claim_next_task(ben)
    assert claimed is not None
    assert claimed.id == task.id


async def test_a_refused_task_of_one_whom_nobody_hosts_is_reserved_for_it(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await handed_in(board, ana)
    await board.store.rest_member(ana)
    assert (await board.get(task.id)).reserved_until is None
    await taken(board)
    await board.store.refuse_submission(board.worker.id, board.id, 1, "a conflict in x.py")
    held = await board.get(task.id)
    assert (held.status, held.owner) == (TaskStatus.IN_PROGRESS, "ana")
    assert held.reserved_until is not None


async def test_a_task_that_waits_to_be_integrated_stays_its_owners_when_that_one_dies(board: Board) -> None:
    """Neither reserved nor given back: nobody could host ana now, and somebody could host ben."""
    store = board.store
    integrator = await store.register_worker(slots=1, labels=["ben"])
    for name in ("ana", "ben"):
        doomed = await store.register_worker(slots=1, labels=[name])
        member = await board.teammate(name, worker=doomed, labels=[name])
        task = await handed_in(board, member)
        await store.lapse_worker(doomed.id, renewals_seen=None)
        assert await board.get(task.id) == task
        submission = await taken(board, integrator)
        await store.accept_submission(integrator.id, board.id, submission.id, TRUNK)
        done = await board.get(task.id)
        assert (done.status, done.owner) == (TaskStatus.COMPLETED, name)


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
