"""Ways in which the seeds' own code loses mail and tasks, as a whole team meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.task import TaskStatus
from bullpen.providers.scripted import Fault, Step
from tests.agents.stage import Recorder, calls, facts, mail_of, member, newest_of, play, results
from tests.support.troupe import call, done, hosted, settings, troupe, until, until_event

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


async def test_a_shutdown_request_among_other_mail_drops_none_of_it(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("bash", command="echo busy"), "All read."]})
    busy = model.hold("ana", 1)
    asking = settings(shutdown={"policy": "ask"}, **LONG_IDLE)
    async with troupe(model, tmp_path, settings=asking) as team:
        await team.spawn("ana", prompt="Be busy.")
        async with hosted(team):
            await busy.reached()
            await team.send("ana", "came before it")
            await team.shut_down("ana", reason="enough for today", timeout_seconds=3600)
            await team.send("ana", "came after it")
            busy.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
    seen = newest_of(model.of("ana")[1])
    order = [seen.index(text) for text in ("came before it", 'type="shutdown_request"', "came after it")]
    assert order == sorted(order)


async def test_a_torn_line_in_an_inbox_does_not_kill_its_reader(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("files")
    model = Recorder({"ana": ["Ready.", Step(say="Read.", repeat=True)]})
    async with troupe(model, tmp_path, store=f"files:{place}", settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.send("ana", "first")
            first = await until(team, EventKind.MESSAGE_DELIVERED)
            # Nobody else writes there just now.
            await until(team, EventKind.PHASE_ENDED, member="ana", after=first.position)
            [inbox] = place.rglob("ana_inbox.jsonl")
            with inbox.open("a") as file:
                file.write('{"type": "message", "sender": "lead", "con\n')
            await team.send("ana", "whole")
            await until(team, EventKind.MESSAGE_DELIVERED, after=first.position)
            await until(team, EventKind.MESSAGE_QUARANTINED)
            await until_event(team, lambda event: model.count("ana") >= 3)
            assert (await member(team, "ana")).is_up
        assert len(await facts(team, EventKind.MESSAGE_QUARANTINED)) == 1
    assert sum("whole" in newest_of(request) for request in model.of("ana")) == 1


async def test_mail_to_nobody_is_an_error_that_the_sender_reads(tmp_path: Path) -> None:
    script = {"lead": [call("SendMessage", recipient="nobody", content="Hello?"), "I see."]}
    async with troupe(script, tmp_path) as team:
        await play(team)
        [said] = await results(team, "lead")
        assert await facts(team, EventKind.MESSAGE_SENT, to="nobody") == []
    assert "there is no member 'nobody'" in said


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", "lead", "user", "x" * 65])
async def test_a_name_that_leads_outside_or_poses_makes_no_teammate_and_no_file(tmp_path: Path, name: str) -> None:
    script = {"lead": [call("Task", name=name, prompt="Work."), "I see."]}
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with troupe(script, workspace, store=f"files:{tmp_path}/state/store") as team:
        await play(team)
        assert [each.name for each in await team.list_members()] == ["lead", "user"]
        turns = await team.store.list_calls(team.id, "lead")
        assert all(made.is_error for made in turns)
    assert not list(tmp_path.rglob("*evil*"))


async def test_who_loses_a_claim_is_told_and_does_not_work_on_it(tmp_path: Path) -> None:
    model = Recorder(
        {
            "ana": [done(), "Finished."],
            "bea": [
                call("claim_task", taskId=1),
                call("TaskUpdate", taskId=1, status="completed", result="mine"),
                "I see.",
            ],
        }
    )
    hers = model.hold("ana", 1)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Hers")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await hers.reached()
            await team.spawn("bea", prompt="Take it too.")
            await until(team, EventKind.PHASE_ENDED, member="bea")
            task = await team.get_task(1)
            assert (task.status, task.owner) == (TaskStatus.IN_PROGRESS, "ana")
            claimed, completed = await results(team, "bea")
            hers.release()
            await until(team, EventKind.TASK_COMPLETED, task=1)
    assert "ana" in claimed
    assert "ana" in completed


async def test_nobody_updates_what_is_not_its_own_nor_to_a_status_that_does_not_exist(tmp_path: Path) -> None:
    meddling = calls(
        ("TaskUpdate", {"taskId": 1, "status": "deleted"}),
        ("TaskUpdate", {"taskId": 1, "status": "failed", "result": "no"}),
        ("TaskUpdate", {"taskId": 1, "subject": "Mine now"}),
        ("TaskUpdate", {"taskId": 1, "status": "almost done"}),
    )
    script = {"eve": [meddling, "I see."]}
    async with troupe(script, tmp_path, settings=settings(**LONG_IDLE)) as team:
        before = await team.create_task("Somebody's", role="backend")
        await team.spawn("eve", role="tester", prompt="Meddle.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="eve")
            said = await team.store.list_calls(team.id, "eve")
        assert await team.get_task(1) == before
    assert [made.is_error for made in said] == [True] * 4


async def test_in_a_model_outage_a_teammate_takes_one_task_and_gives_it_back(
    tmp_path: Path, short_delays: None
) -> None:
    outage = Step(say="Never said.", faults=(Fault(kind="overloaded", times=100),))
    model = Recorder({"ana": [outage]})
    async with troupe(model, tmp_path) as team:
        for number in range(5):
            await team.create_task(f"Part {number}")
        await team.spawn("ana", prompt="Take what is there.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "error"
        assert len(await facts(team, EventKind.TASK_CLAIMED)) == 1
        assert {(task.status, task.owner) for task in await team.list_tasks()} == {(TaskStatus.PENDING, None)}
        for to in ("lead", "user"):
            told = [mail for mail in await mail_of(team, to) if mail.type == "error"]
            assert len(told) == 1
            assert "ana cannot ask its model" in told[0].content
