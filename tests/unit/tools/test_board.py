"""TaskCreate, TaskGet, TaskUpdate, TaskList, claim_task."""

from __future__ import annotations

import pytest

from bullpen.domain.task import TaskStatus
from bullpen.errors import AlreadyClaimed, NotAllowed, ToolError, UsageError
from bullpen.tools import toolbox_for
from bullpen.tools.board import CLAIM_TASK, TASK_CREATE, TASK_GET, TASK_LIST, TASK_UPDATE
from tests.unit.tools.conftest import MakeHands

pytestmark = pytest.mark.anyio


async def test_a_task_goes_from_creation_to_completion_with_what_its_blockers_left(hands: MakeHands) -> None:
    lead, ana = hands("lead"), hands("ana")
    assert await lead.text(TASK_CREATE, subject="schema", role="dev") == "created #1 [pending, role dev] schema"
    await lead.call(TASK_CREATE, subject="api", description="GET /users", blockedBy="#1")
    assert (await lead.text(TASK_LIST)).splitlines()[1] == "#2 [pending, blocked by #1] api"
    assert '<task id="1">' in await ana.text(CLAIM_TASK)
    await ana.call(TASK_UPDATE, taskId=1, status="completed", result="in schema.sql")
    handed = await ana.text(CLAIM_TASK)
    assert "GET /users" in handed
    assert '<result task="1" by="ana">in schema.sql</result>' in handed
    assert await ana.text(TASK_LIST, status="Completed", owner="ana") == "#1 [completed, owner ana, role dev] schema"
    assert "in schema.sql" in await ana.text(TASK_GET, taskId="#1")


async def test_the_older_way_to_claim_is_a_claim(hands: MakeHands) -> None:
    ana, ben = hands("ana"), hands("ben")
    await ana.call(TASK_CREATE, subject="x")
    box = toolbox_for("teammate")
    assert "owner ana" in (await ana.say(box, "task_update", task_id=1, owner="ana", status="in_progress")).text
    with pytest.raises(AlreadyClaimed, match="take another task"):
        await ben.call(CLAIM_TASK, taskId=1)
    with pytest.raises(NotAllowed):
        await ben.call(TASK_UPDATE, taskId=1, status="completed", result="stolen")


async def test_nothing_to_claim_says_to_end_the_turn(hands: MakeHands) -> None:
    assert "end your turn" in await hands().text(CLAIM_TASK)


async def test_a_repeated_creation_makes_one_task(hands: MakeHands) -> None:
    ana = hands()
    first = await ana.call(TASK_CREATE, subject="x")
    assert (await ana.repeat(TASK_CREATE, subject="x")).text == first.text
    assert len(await ana.store.list_tasks(ana.team.id)) == 1


async def test_failing_giving_back_retrying_and_deleting(hands: MakeHands) -> None:
    lead, ana = hands("lead"), hands("ana")
    await lead.call(TASK_CREATE, subject="x")
    await ana.call(CLAIM_TASK)
    await ana.call(TASK_UPDATE, taskId=1, status="pending", result="half done")
    assert (await ana.store.get_task(ana.team.id, 1)).handovers[0].note == "half done"
    await ana.call(CLAIM_TASK)
    await ana.call(TASK_UPDATE, taskId=1, status="failed", result="tried twice")
    await lead.call(TASK_UPDATE, taskId=1, status="pending")
    await lead.call(TASK_UPDATE, taskId=1, status="deleted")
    assert (await ana.store.get_task(ana.team.id, 1)).status is TaskStatus.DELETED


async def test_an_update_without_a_change_is_refused(hands: MakeHands) -> None:
    with pytest.raises(ToolError, match="without a change"):
        await hands().call(TASK_UPDATE, taskId=1)


# -- files


@pytest.mark.parametrize(
    "files",
    [
        ["src/{a,b}.py", "docs/"],
        "src/{a,b}.py, docs/",
        '["src/{a,b}.py", "docs/"]',
    ],
)
async def test_files_are_understood_however_a_model_writes_them(hands: MakeHands, files: str | list[str]) -> None:
    lead = hands("lead")
    await lead.call(TASK_CREATE, subject="x", files=files)
    assert (await lead.store.get_task(lead.team.id, 1)).files == ("src/a.py", "src/b.py", "docs/**")
    assert "files: src/a.py, src/b.py, docs/**" in await lead.text(TASK_GET, taskId=1)
    await lead.call(TASK_UPDATE, taskId=1, files="[a-c]*.py")
    assert (await lead.store.get_task(lead.team.id, 1)).files == ("[a-c]*.py",)
    await lead.call(TASK_UPDATE, taskId=1, files=[])
    assert (await lead.store.get_task(lead.team.id, 1)).files == ()


async def test_files_outside_of_the_workspace_are_refused_with_what_to_do(hands: MakeHands) -> None:
    with pytest.raises(UsageError, match="relative to it"):
        await hands("lead").call(TASK_CREATE, subject="x", files=["/etc"])


async def test_the_board_says_whose_files_a_task_touches_and_so_does_who_takes_it_all_the_same(
    hands: MakeHands,
) -> None:
    lead, ana, ben = hands("lead"), hands("ana"), hands("ben")
    for subject, files in (("one", "src/api"), ("two", "src/api/users.py"), ("three", "docs")):
        await lead.call(TASK_CREATE, subject=subject, files=files)
    assert "Files: src/api" in await ana.text(CLAIM_TASK)
    overlap = "files overlap with #1 of ana"
    assert (await lead.text(TASK_LIST)).splitlines()[1] == f"#2 [pending, {overlap}] two"
    assert (await lead.text(TASK_LIST, status="pending")).splitlines()[0] == f"#2 [pending, {overlap}] two"
    assert overlap in await lead.text(TASK_GET, taskId=2)
    assert overlap not in await ben.text(CLAIM_TASK)
    await ben.call(TASK_UPDATE, taskId=3, status="completed", result="done")
    assert f"Its {overlap}" in await ben.text(CLAIM_TASK, taskId=2)
    await ana.call(TASK_UPDATE, taskId=1, status="completed", result="done")
    assert overlap not in await lead.text(TASK_LIST)
