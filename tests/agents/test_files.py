"""Who touches what, in whole teams: tasks that touch the same files are kept apart, and a write elsewhere is shown."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.providers.scripted import Step
from tests.agents.stage import Recorder, calls, facts, newest_of, results
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


async def test_two_teammates_leave_each_others_files_alone_while_there_is_other_work(
    tmp_path: Path, store_url: str
) -> None:
    rest = Step(say="Noted.", repeat=True)
    model = Recorder({"ana": [done(), rest], "ben": [done(), "Done.", done(), rest]})
    hold = model.hold("ana", 1)
    async with troupe(model, tmp_path, store=store_url, settings=settings(**LONG_IDLE)) as team:
        for subject, files in (("one", "src/**"), ("two", "src/a.py"), ("three", "docs")):
            await team.create_task(subject, files=[files])
        await team.spawn("ana", prompt="Work.")
        async with hosted(team):
            await hold.reached()
            await team.spawn("ben", prompt="Work.")
            await until(team, EventKind.TASK_CLAIMED, task=3, owner="ben")
            # Nothing else is there then: work goes on, and he is told.
            await until(team, EventKind.TASK_CLAIMED, task=2, owner="ben")
            hold.release()
            await until(team, EventKind.TASK_COMPLETED, task=1)
            await until(team, EventKind.TASK_COMPLETED, task=2)
        [passed] = await facts(team, EventKind.TASK_PASSED_OVER)
        [claimed] = await facts(team, EventKind.TASK_CLAIMED, task=2)
    assert (passed.actor, passed.data["task"], passed.data["instead"], passed.data["owner"]) == ("ben", 2, 3, "ana")
    assert claimed.data["overlaps"] == [1]
    first, second = model.of("ben")[0], model.of("ben")[2]
    assert "Files: docs" in newest_of(first)
    assert "files overlap with #1 of ana" in newest_of(second)


async def test_a_write_outside_of_a_tasks_files_is_made_and_shown_once_for_each_path(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("old")
    write = calls(
        ("write_file", {"path": "src/deep/in.txt", "content": "1"}),
        ("write_file", {"path": "outside.txt", "content": "1"}),
        ("write_file", {"path": "outside.txt", "content": "2"}),
        ("read_file", {"path": "other.txt"}),
        ("edit_file", {"path": "other.txt", "old_text": "old", "new_text": "new"}),
    )
    model = Recorder({"ana": [write, done(), Step(say="Noted.", repeat=True)]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Stay inside", files=["src"])
        await team.spawn("ana", prompt="Work.")
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
        shown = await facts(team, EventKind.FILE_WRITTEN_OUTSIDE)
        inside, first, again, _, edited, _ = await results(team, "ana")
    assert [event.data for event in shown] == [
        {"task": 1, "path": path, "member": "ana"} for path in ("outside.txt", "other.txt")
    ]
    assert "not among the files" not in inside
    assert "outside.txt: not among the files of #1 (src)" in first
    assert "not among the files" not in again
    assert "not among the files" in edited
    assert (tmp_path / "outside.txt").read_text() == "2"
    assert (tmp_path / "other.txt").read_text() == "new"


async def test_a_task_without_files_and_work_without_a_task_are_shown_nowhere(tmp_path: Path) -> None:
    model = Recorder(
        {
            "ana": [call("write_file", path="a", content="1"), done(), Step(say="Noted.", repeat=True)],
            "ben": [call("write_file", path="b", content="1"), Step(say="Noted.", repeat=True)],
        }
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Anything")
        await team.create_task("Not theirs", files=["c"], role="nobody")
        await team.spawn("ana", prompt="Work.")
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
            await team.spawn("ben", role="other", prompt="Work.")
            await until(team, EventKind.PHASE_ENDED, member="ben")
        assert await facts(team, EventKind.FILE_WRITTEN_OUTSIDE) == []
