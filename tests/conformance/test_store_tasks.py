"""Tasks: their numbers, their fields, who may take which step, and what is told to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef
from bullpen.domain.message import MessageType
from bullpen.domain.task import Task, TaskChanges, TaskStatus
from bullpen.errors import Conflict, NotAllowed, NotFound, UsageError
from bullpen.store import Store
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother

# -- creating and reading ------------------------------------------------------------------


async def test_a_task_keeps_what_it_was_created_with(board: Board) -> None:
    await board.store.spawn_member(board.lead, "ana", role="back-end")
    blocker = await board.task("first")
    task = await board.store.create_task(
        board.lead,
        "  Design \n the   schema ",
        description="in SDL",
        active_form="Designing",
        blocked_by=[blocker.id, blocker.id],
        role="Back End",
        check="make test",
        owner="ANA",
    )
    assert (task.id, task.subject, task.description) == (2, "Design the schema", "in SDL")
    assert (task.active_form, task.role, task.check) == ("Designing", "Back End", "make test")
    assert (task.owner, task.created_by, task.status) == ("ana", "lead", TaskStatus.PENDING)
    assert (task.blocked_by, task.open_blockers, task.attempt, task.verifying) == ((1,), 1, 0, False)
    assert (task.created_at, task.updated_at, task.claimed_at) == (board.clock.now(), board.clock.now(), None)
    assert await board.get(2) == task
    assert (await board.get(1)).blocks == (2,)


async def test_numbers_begin_at_one_in_each_team(board: Board) -> None:
    other = await board.store.create_team("other")
    assert [task.id for task in await board.tasks(3)] == [1, 2, 3]
    assert (await board.store.create_task(MemberRef(other.id, "lead", 0), "first there")).id == 1


async def test_a_number_is_never_used_again(board: Board) -> None:
    await board.tasks(3)
    await board.store.delete_task(board.user, 3)
    assert (await board.task()).id == 4
    assert (await board.get(3)).status is TaskStatus.DELETED


async def test_many_who_create_at_once_get_numbers_of_their_own(board: Board, open_another: OpenAnother) -> None:
    other = await open_another()
    verbs = [store.create_task(board.user, f"task {n}") for n in range(10) for store in (board.store, other)]
    tasks = await asyncio.gather(*verbs)
    assert sorted(task.id for task in tasks) == list(range(1, 21))


async def test_a_task_that_is_refused_uses_up_no_number(board: Board) -> None:
    for blocked_by in ([99], [1]):
        with pytest.raises(NotFound):
            await board.task(blocked_by=blocked_by)
    with pytest.raises(UsageError):
        await board.task("  \n ")
    with pytest.raises(NotFound):
        await board.task(owner="nobody")
    assert (await board.task()).id == 1


async def test_tasks_are_ordered_by_number_not_as_text(board: Board) -> None:
    await board.tasks(12)
    assert [task.id for task in await board.store.list_tasks(board.id)] == list(range(1, 13))
    ana = await board.teammate("ana")
    order = []
    while (task := await board.store.claim_next_task(ana)) is not None:
        order.append(task.id)
        await board.store.complete_task(ana, task.id)
    assert order == list(range(1, 13))


async def test_tasks_are_listed_by_status_owner_and_page(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    await board.tasks(6)
    await store.claim_task(ana, 2)
    await store.complete_task(ana, 2)
    await store.claim_task(ana, 4)
    await store.update_task(board.user, 5, TaskChanges(owner="ana"))
    await store.delete_task(board.user, 6)

    async def ids(**how: object) -> list[int]:
        return [task.id for task in await store.list_tasks(board.id, **how)]  # type: ignore[arg-type]

    assert await ids() == [1, 2, 3, 4, 5]
    assert await ids(status=TaskStatus.PENDING) == [1, 3, 5]
    assert await ids(owner="ANA") == [2, 4, 5]
    assert await ids(owner="ana", status=TaskStatus.IN_PROGRESS) == [4]
    assert await ids(status=TaskStatus.DELETED) == [6]
    assert await ids(after_id=1, limit=2) == [2, 3]
    assert await ids(limit=0) == []
    assert await ids(owner="nobody") == []


async def test_an_unknown_task_is_not_found(board: Board) -> None:
    for number in (0, 1, -1, 99):
        with pytest.raises(NotFound):
            await board.get(number)


async def test_a_role_that_nobody_has_is_reported_to_the_creator(board: Board) -> None:
    ana = await board.teammate("ana", role="backend")
    await board.task("fine", role="Backend", by=ana)
    assert await board.inbox("ana") == []
    await board.task("odd", role="designer", by=ana)
    [notice] = await board.inbox("ana")
    assert (notice.type, notice.wakes) == (MessageType.NOTICE, False)
    assert "designer" in notice.content
    await board.store.update_task(ana, 1, TaskChanges(role="poet"))
    assert "poet" in (await board.inbox("ana"))[-1].content


# -- changing ------------------------------------------------------------------------------


async def test_fields_are_changed_one_by_one(board: Board) -> None:
    await board.task("old", description="old", role="backend", check="true")
    board.clock.advance(5)
    changed = await board.store.update_task(board.lead, 1, TaskChanges(subject="new", role=None, check=None))
    assert (changed.subject, changed.description, changed.role, changed.check) == ("new", "old", None, None)
    assert changed.updated_at == board.clock.now()
    assert await board.get(1) == changed


async def test_changing_nothing_is_no_event(board: Board) -> None:
    task = await board.task()
    async with board.recording() as seen:
        assert await board.store.update_task(board.user, 1, TaskChanges()) == task
    assert seen == []


async def test_a_subject_cannot_be_emptied(board: Board) -> None:
    await board.task("kept")
    with pytest.raises(UsageError):
        await board.store.update_task(board.user, 1, TaskChanges(subject=" "))
    assert (await board.get(1)).subject == "kept"


async def test_a_teammate_changes_only_what_is_its_own(board: Board) -> None:
    store = board.store
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("ana's", by=ana)
    await board.claimed(ben, "the lead's, held by ben")
    with pytest.raises(NotAllowed):
        await store.update_task(ben, 1, TaskChanges(description="mine now"))
    with pytest.raises(NotAllowed):
        await store.update_task(ana, 2, TaskChanges(description="mine now"))
    await store.update_task(ana, 1, TaskChanges(description="as its creator", role="x", owner="ben"))
    await store.update_task(ben, 2, TaskChanges(description="as its owner"))
    for changes in (TaskChanges(role="x"), TaskChanges(check=None), TaskChanges(owner="ana")):
        with pytest.raises(NotAllowed):
            await store.update_task(ben, 2, changes)
    await store.claim_task(ben, 2)
    await store.complete_task(ben, 2)
    await store.claim_task(ben, 1)
    with pytest.raises(NotAllowed):
        await store.update_task(ana, 1, TaskChanges(check=None))
    with pytest.raises(NotAllowed):
        await store.update_task(ana, 1, TaskChanges(owner="ana"))


async def test_a_deleted_task_is_not_changed(board: Board) -> None:
    await board.task()
    await board.store.delete_task(board.user, 1)
    with pytest.raises(Conflict):
        await board.store.update_task(board.user, 1, TaskChanges(subject="alive?"))


async def test_assigning_makes_it_the_owners_next(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.tasks(3)
    assigned = await board.store.update_task(board.user, 3, TaskChanges(owner="Ana"))
    assert (assigned.status, assigned.owner) == (TaskStatus.PENDING, "ana")
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 3


async def test_an_assignment_can_be_taken_back(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task(owner="ana")
    assert await board.store.claim_next_task(ben) is None
    await board.store.update_task(board.user, 1, TaskChanges(owner=None))
    assert await board.store.claim_next_task(ben) is not None
    assert await board.store.claim_next_task(ana) is None


async def test_a_task_in_progress_is_given_to_another_and_the_old_owner_is_told(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana, check="true")
    await board.store.start_check(ana, 1)
    given = await board.store.update_task(board.lead, 1, TaskChanges(owner="ben"))
    assert (given.status, given.owner, given.verifying) == (TaskStatus.PENDING, "ben", False)
    assert "ben" in (await board.inbox("ana"))[-1].content
    claimed = await board.store.claim_next_task(ben)
    assert claimed is not None
    with pytest.raises(NotAllowed):
        await board.store.fail_task(ana, 1)


async def test_a_task_that_is_reserved_for_its_owner_is_given_to_another(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana)
    await board.store.rest_member(ana)
    given = await board.store.update_task(board.lead, 1, TaskChanges(owner="ben"))
    assert (given.status, given.owner, given.reserved_until) == (TaskStatus.PENDING, "ben", None)
    assert await board.store.claim_next_task(ben) is not None


async def test_a_task_in_progress_is_taken_from_its_owner(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    taken = await board.store.update_task(board.lead, 1, TaskChanges(owner=None))
    assert (taken.status, taken.owner) == (TaskStatus.PENDING, None)
    assert taken.handovers[-1].by == "ana"
    assert len(await board.inbox("ana")) == 1


async def test_giving_it_to_who_has_it_changes_nothing(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    assert await board.store.update_task(board.lead, 1, TaskChanges(owner="ANA")) == task
    assert await board.inbox("ana") == []


@pytest.mark.parametrize("end", ["complete_task", "fail_task"])
async def test_a_finished_task_is_given_to_nobody(board: Board, end: str) -> None:
    await board.teammate("ana")
    await board.task()
    await getattr(board.store, end)(board.lead, 1)
    with pytest.raises(Conflict):
        await board.store.update_task(board.lead, 1, TaskChanges(owner="ana"))


async def test_an_owner_must_be_a_member(board: Board) -> None:
    await board.task()
    with pytest.raises(NotFound):
        await board.store.update_task(board.user, 1, TaskChanges(owner="nobody"))


# -- finishing -----------------------------------------------------------------------------


async def test_the_owner_completes_with_a_result(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    done = await board.store.complete_task(ana, 1, result="schema.graphql, checked with make")
    assert (done.status, done.owner) == (TaskStatus.COMPLETED, "ana")
    assert (done.result, done.finished_at) == ("schema.graphql, checked with make", board.clock.now())
    assert await board.get(1) == done


async def test_completing_what_one_has_completed_returns_it(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    done = await board.store.complete_task(ana, 1, result="first")
    async with board.recording() as seen:
        assert await board.store.complete_task(ana, 1, result="second") == done
    assert seen == []


async def test_only_the_owner_or_the_lead_completes_fails_or_releases(board: Board) -> None:
    store = board.store
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana)
    verbs: list[Callable[..., Awaitable[object]]] = [
        store.complete_task,
        store.fail_task,
        store.release_task,
        store.start_check,
        store.delete_task,
    ]
    for verb in verbs:
        with pytest.raises(NotAllowed):
            await verb(ben, 1)
    assert (await board.get(1)).owner == "ana"
    done = await store.complete_task(board.lead, 1, result="the lead says so")
    assert (done.status, done.owner) == (TaskStatus.COMPLETED, "ana")
    assert "completed by lead" in (await board.inbox("ana"))[-1].content


async def test_what_is_pending_is_not_completed_by_a_teammate(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.task(owner="ana")
    await board.task("nobody's", by=ana)
    for number in (1, 2):
        with pytest.raises(NotAllowed):
            await board.store.complete_task(ana, number)


async def test_a_task_in_no_state_goes_where_it_may_not(board: Board) -> None:
    store = board.store
    await board.task()
    await store.complete_task(board.lead, 1)
    for verb in (store.fail_task, store.release_task, store.retry_task, store.complete_task):
        with pytest.raises(Conflict):
            await verb(board.user, 1)
    await store.delete_task(board.lead, 1)
    with pytest.raises(Conflict):
        await store.delete_task(board.user, 1)
    for verb in (store.complete_task, store.fail_task, store.release_task, store.retry_task):
        with pytest.raises(Conflict):
            await verb(board.user, 1)


async def test_failing_tells_the_lead_who_waits(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.task("waits", blocked_by=[1])
    failed = await board.store.fail_task(ana, 1, reason="no network")
    assert (failed.status, failed.result) == (TaskStatus.FAILED, "no network")
    [notice] = await board.inbox("lead")
    assert notice.wakes
    assert "no network" in notice.content
    assert "#2" in notice.content


async def test_failing_what_one_has_failed_returns_it(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    failed = await board.store.fail_task(ana, task.id, reason="no compiler")
    async with board.recording() as seen:
        assert await board.store.fail_task(ana, task.id, reason="again") == failed
    assert seen == []


async def test_a_lead_is_not_woken_by_what_it_failed_itself(board: Board) -> None:
    ana = await board.teammate("ana")
    for by in (board.lead, board.user, ana):
        await board.store.fail_task(by, (await board.claimed(ana)).id)
    assert [message.wakes for message in await board.inbox("lead")] == [False, True, True]


async def test_what_failed_is_retried_and_not_released(board: Board) -> None:
    task = await board.task()
    await board.store.fail_task(board.lead, task.id)
    with pytest.raises(Conflict):
        await board.store.release_task(board.lead, task.id)
    assert (await board.get(task.id)).status is TaskStatus.FAILED


async def test_what_somebody_works_on_is_not_retried(board: Board) -> None:
    ana = await board.teammate("ana")
    task = await board.claimed(ana)
    with pytest.raises(Conflict, match="only a failed task"):
        await board.store.retry_task(board.lead, task.id)
    assert await board.get(task.id) == task


async def test_what_was_nobodys_belongs_to_whoever_ends_it(board: Board) -> None:
    first, second = await board.tasks(2)
    assert (await board.store.complete_task(board.lead, first.id)).owner == "lead"
    assert (await board.store.fail_task(board.user, second.id)).owner == "user"


async def test_a_failed_task_is_tried_again_by_the_lead_alone(board: Board) -> None:
    store = board.store
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana)
    await store.fail_task(ana, 1, reason="no network")
    with pytest.raises(NotAllowed):
        await store.retry_task(ana, 1)
    with pytest.raises(Conflict):
        await store.claim_task(ben, 1)
    again = await store.retry_task(board.lead, 1, note="the network is back")
    assert (again.status, again.owner, again.finished_at) == (TaskStatus.PENDING, None, None)
    assert (again.handovers[-1].by, again.handovers[-1].note) == ("ana", "the network is back")
    await store.claim_task(ben, 1)
    done = await store.complete_task(ben, 1)
    assert done.result is None, "why it failed is not the result of the next attempt"


async def test_releasing_gives_it_back_with_a_note(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.claimed(ana)
    released = await board.store.release_task(ana, 1, note="half done, see branch ana/1")
    assert (released.status, released.owner, released.claimed_at) == (TaskStatus.PENDING, None, None)
    assert [(note.by, note.note) for note in released.handovers] == [("ana", "half done, see branch ana/1")]
    claimed = await board.store.claim_next_task(ben)
    assert claimed is not None
    assert claimed.handovers == released.handovers
    with pytest.raises(Conflict):
        await board.store.release_task(board.lead, (await board.task()).id)


async def test_a_task_that_is_taken_from_its_owner_tells_it_to_stop(board: Board) -> None:
    ana = await board.teammate("ana")
    store = board.store
    verbs: list[Callable[..., Awaitable[Task]]] = [
        store.release_task,
        store.fail_task,
        store.delete_task,
        store.complete_task,
    ]
    for verb in verbs:
        task = await board.claimed(ana)
        await verb(board.user, task.id)
        [notice] = [m for m in await board.inbox("ana") if f"#{task.id} " in m.content]
        assert notice.origin == "system"


async def test_only_the_creator_or_the_lead_deletes(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("ana's", by=ana)
    await board.claimed(ben, "the human's")
    with pytest.raises(NotAllowed):
        await board.store.delete_task(ben, 1)
    with pytest.raises(NotAllowed):
        await board.store.delete_task(ben, 2)
    deleted = await board.store.delete_task(ana, 1)
    assert deleted.status is TaskStatus.DELETED
    assert await board.get(1) == deleted
    assert (await board.store.delete_task(board.lead, 2)).status is TaskStatus.DELETED


async def test_a_task_deleted_under_its_owner_frees_its_hands(board: Board) -> None:
    ana = await board.teammate("ana")
    await board.claimed(ana)
    await board.store.delete_task(board.user, 1)
    await board.task()
    claimed = await board.store.claim_next_task(ana)
    assert claimed is not None
    assert claimed.id == 2


async def test_each_step_of_a_task_is_recorded(board: Board) -> None:
    store = board.store
    ana = await board.teammate("ana")
    async with board.recording() as seen:
        await board.task("one", check="true")
        await store.update_task(board.user, 1, TaskChanges(subject="two"))
        await store.update_task(board.user, 1, TaskChanges(owner="ana"))
        await store.claim_task(ana, 1)
        await store.start_check(ana, 1)
        await store.release_task(ana, 1)
        await store.fail_task(board.user, 1)
        await store.retry_task(board.user, 1)
        await store.complete_task(board.user, 1, unverified=True)
        await store.delete_task(board.user, 1)
    kinds = [EventKind(event.kind) for event in seen if event.kind.startswith("Task")]
    assert kinds == [
        EventKind.TASK_CREATED,
        EventKind.TASK_CHANGED,
        EventKind.TASK_ASSIGNED,
        EventKind.TASK_CLAIMED,
        EventKind.TASK_CHECK_STARTED,
        EventKind.TASK_RELEASED,
        EventKind.TASK_FAILED,
        EventKind.TASK_RETRIED,
        EventKind.TASK_COMPLETED,
        EventKind.TASK_DELETED,
    ]
    assert all(event.data["task"] == 1 for event in seen if event.kind.startswith("Task"))


async def test_a_reader_never_sees_half_a_change(store: Store, open_another: OpenAnother) -> None:
    """Subject and description are written together: so they are always read together."""
    other = await open_another()
    team = await store.create_team("crew")
    user = MemberRef(team.id, "user", 0)
    await store.create_task(user, "0", description="0")

    async def write() -> None:
        for number in range(1, 30):
            await store.update_task(user, 1, TaskChanges(subject=f"{number}", description=f"{number}" * 2000))

    async def look(reader: Store, writing: asyncio.Task[None]) -> None:
        while not writing.done():
            task = await reader.get_task(team.id, 1)
            assert task.description in (task.subject, task.subject * 2000)

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, look(other, writing), look(store, writing))
