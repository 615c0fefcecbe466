"""Who touches what: globs of a task are kept and shown, and claims leave aside what others are just changing."""

from __future__ import annotations

import pytest

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Autonomy, MemberRef
from bullpen.domain.task import TaskChanges, TaskStatus
from bullpen.errors import AlreadyClaimed, UsageError
from tests.conformance.board import Board
from tests.conformance.conftest import OpenAnother


async def claim(board: Board, by: MemberRef) -> int | None:
    task = await board.store.claim_next_task(by)
    return None if task is None else task.id


async def facts(board: Board, kind: EventKind) -> list[Event]:
    return [event for event in await board.events() if event.kind == kind]


# -- kept --------------------------------------------------------------------------------------------------------


async def test_the_files_of_a_task_are_kept_as_they_were_understood(board: Board, open_another: OpenAnother) -> None:
    task = await board.task(files=["./src/api/", "docs/{a,b}.md"])
    assert task.files == ("src/api/**", "docs/a.md", "docs/b.md")
    assert (await board.get(task.id)).files == task.files
    assert (await (await open_another()).get_task(board.id, task.id)).files == task.files
    assert (await board.task()).files == ()


async def test_files_are_changed_and_taken_away_like_other_fields(board: Board) -> None:
    task = await board.task()
    changed = await board.store.update_task(board.lead, task.id, TaskChanges(files=("src/*.py", "src/*.py")))
    assert changed.files == ("src/*.py",)
    assert [event.data["fields"] for event in await facts(board, EventKind.TASK_CHANGED)] == [["files"]]
    emptied = await board.store.update_task(board.lead, task.id, TaskChanges(files=()))
    assert emptied.files == ()
    assert (await board.get(task.id)).files == ()


async def test_a_task_whose_files_lie_outside_is_refused_and_takes_no_number(board: Board) -> None:
    with pytest.raises(UsageError, match="workspace"):
        await board.task(files=["../other"])
    task = await board.task(files=["here"])
    with pytest.raises(UsageError, match="workspace"):
        await board.store.update_task(board.lead, task.id, TaskChanges(files=("/etc/passwd",)))
    assert (await board.get(task.id)).files == ("here",)
    assert task.id == 1


async def test_whoever_has_or_made_a_task_says_its_files_and_nobody_else(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    task = await board.claimed(ana)
    await board.store.update_task(ana, task.id, TaskChanges(files=("a.py",)))
    with pytest.raises(UsageError, match="neither yours"):
        await board.store.update_task(ben, task.id, TaskChanges(files=("b.py",)))


# -- claims ------------------------------------------------------------------------------------------------------


async def test_a_claim_passes_over_what_touches_the_files_of_anothers_task_and_says_so(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("1", files=["src/api/*.py"])
    await board.task("2", files=["src/api/users.py"])
    await board.task("3", files=["src/**"])
    await board.task("4", files=["docs"])
    assert await claim(board, ana) == 1
    assert await claim(board, ben) == 4
    [event] = await facts(board, EventKind.TASK_PASSED_OVER)
    assert event.actor == "ben"
    assert event.data == {"task": 2, "overlaps": [1], "owner": "ana", "instead": 4, "also": [3]}


async def test_a_task_without_files_touches_nobodys(board: Board) -> None:
    ana, ben, cat = [await board.teammate(name) for name in ("ana", "ben", "cat")]
    await board.task("1", files=["**"])
    await board.task("2", files=["a"])
    await board.task("3")
    await board.task("4")
    assert await claim(board, ana) == 1
    assert await claim(board, ben) == 3
    assert await claim(board, cat) == 4


async def test_where_only_overlapping_tasks_are_there_work_goes_on_and_that_is_said(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("1", files=["a"])
    await board.task("2", files=["a/b"])
    await board.task("3", files=["a/c"])
    assert await claim(board, ana) == 1
    assert await claim(board, ben) == 2
    first, second = await facts(board, EventKind.TASK_CLAIMED)
    assert "overlaps" not in first.data
    assert second.data["overlaps"] == [1]
    assert await facts(board, EventKind.TASK_PASSED_OVER) == []


async def test_what_was_passed_over_comes_next_when_the_other_is_through(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    for files in ("a", "a", "b", "c"):
        await board.task(files=[files])
    assert [await claim(board, ana), await claim(board, ben)] == [1, 3]
    await board.store.complete_task(ana, 1)
    assert await claim(board, ana) == 2


async def test_what_is_assigned_comes_first_among_what_touches_nobodys_files(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben", role="tester")
    await board.task("1", files=["a"])
    await board.task("2", files=["a"], owner="ben")
    await board.task("3", files=["b"])
    await board.task("4", files=["c"], owner="ben")
    await board.task("5", files=["c"], role="tester")
    assert await claim(board, ana) == 1
    order = []
    while (task := await board.store.claim_next_task(ben)) is not None:
        order.append(task.id)
        await board.store.complete_task(ben, task.id)
    assert order == [4, 3, 5, 2]


async def test_roles_and_blockers_hold_as_everywhere(board: Board) -> None:
    ana = await board.teammate("ana", role="backend")
    await board.task("1", role="frontend", files=["a"])
    await board.task("2", files=["b"], blocked_by=[1])
    await board.task("3", files=["c"], owner="user")
    await board.task("4", files=["d"], role="Backend")
    assert await claim(board, ana) == 4
    with pytest.raises(AlreadyClaimed, match="in progress"):
        await board.store.claim_next_task(ana)
    await board.store.complete_task(ana, 4)
    assert await claim(board, ana) is None


async def test_who_takes_a_task_by_its_number_gets_it_whatever_it_touches(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.task("1", files=["a"])
    await board.task("2", files=["a"])
    await board.task("3")
    await claim(board, ana)
    task = await board.store.claim_task(ben, 2)
    assert (task.status, task.owner) == (TaskStatus.IN_PROGRESS, "ben")
    assert [event.data.get("overlaps") for event in await facts(board, EventKind.TASK_CLAIMED)] == [None, [1]]


async def test_who_claims_only_what_it_was_given_gets_it_whatever_it_touches(board: Board) -> None:
    ana = await board.teammate("ana")
    ben = await board.teammate("ben", autonomy=Autonomy.ASSIGNED)
    await board.task("1", files=["a"])
    await board.task("2", files=["a"], owner="ben")
    await claim(board, ana)
    assert await claim(board, ben) == 2


async def test_files_named_later_count_from_then_on(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    await board.tasks(3)
    assert await claim(board, ana) == 1
    assert await claim(board, ben) == 2
    await board.store.complete_task(ben, 2)
    await board.store.update_task(board.lead, 1, TaskChanges(files=("a",)))
    await board.store.update_task(board.lead, 3, TaskChanges(files=("a",)))
    await board.task("4")
    assert await claim(board, ben) == 4, "as it was before, 3 would have come first"


async def test_a_repeated_claim_returns_the_first_outcome(board: Board) -> None:
    ana, ben = await board.teammate("ana"), await board.teammate("ben")
    for files in ("a", "a", "b"):
        await board.task(files=[files])
    await claim(board, ana)
    taken = [await board.store.claim_next_task(ben, operation_id="once") for _ in range(2)]
    assert [task and task.id for task in taken] == [3, 3]


async def test_where_tasks_name_files_too_a_member_has_one_in_progress(board: Board) -> None:
    ana = await board.teammate("ana")
    first, second = await board.task(files=["a"]), await board.task(files=["b"])
    assert await claim(board, ana) == first.id
    with pytest.raises(AlreadyClaimed):
        await board.store.claim_next_task(ana)
    assert (await board.get(second.id)).status is TaskStatus.PENDING
