"""SPEC 2: the lead: what wakes it and what only comes along, when a run ends, and what a stall is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.message import MessageType
from bullpen.domain.task import TaskStatus
from bullpen.providers.scripted import Step
from bullpen.team import Outcome
from tests.agents.stage import Recorder, calls, mail_of, newest_of, play, play_led, seeing
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}
# A result that comes while it is being asked is read at once: then it is asked once more.
WAITING = Step(say="Waiting.", repeat=True)
SPLIT = calls(
    ("TaskCreate", {"subject": "First"}),
    ("TaskCreate", {"subject": "Second"}),
    ("Task", {"name": "ana", "prompt": "Take what is there."}),
)


async def test_results_of_tasks_and_idle_notices_do_not_wake_the_lead_and_come_along_with_what_does(
    tmp_path: Path, store_url: str
) -> None:
    model = Recorder(
        {
            "lead": [SPLIT, "Waiting.", seeing("All tasks are finished", "The goal is reached.")],
            "ana": [done(), "First is done.", done(), call("idle", reason="nothing more")],
        }
    )
    async with troupe(model, tmp_path, store=store_url) as team:
        report = await play_led(team, model, "ana")
    assert (report.outcome, report.text) == (Outcome.DONE, "The goal is reached.")
    assert model.count("lead") == 3
    last = newest_of(model.of("lead")[2])
    assert "All tasks are finished: 2 completed." in last
    assert "[no_tool_use] First is done." in last


async def test_a_result_that_belongs_to_no_task_wakes_the_lead(tmp_path: Path) -> None:
    model = Recorder(
        {
            "lead": [
                call("Task", name="ana", prompt="What is the answer?"),
                "Waiting.",
                seeing("It is 42.", "42, then."),
            ],
            "ana": ["It is 42."],
        }
    )
    async with troupe(model, tmp_path) as team:
        report = await play_led(team, model, "ana")
    assert (report.outcome, report.text) == (Outcome.DONE, "42, then.")
    assert "[no_tool_use] It is 42." in newest_of(model.of("lead")[2])


async def test_a_failed_task_wakes_the_lead_while_the_others_work(tmp_path: Path) -> None:
    fail = call("TaskUpdate", taskId=1, status="failed", result="no compiler")
    model = Recorder(
        {
            "lead": [
                calls(
                    ("TaskCreate", {"subject": "Compile", "role": "builder"}),
                    ("TaskCreate", {"subject": "Document", "role": "writer"}),
                    ("Task", {"name": "ana", "role": "builder", "prompt": "Build."}),
                    ("Task", {"name": "bea", "role": "writer", "prompt": "Write."}),
                ),
                "Waiting.",
                seeing("no compiler", call("TaskUpdate", taskId=1, status="deleted")),
                Step(say="Dropped it.", repeat=True),
                seeing("All tasks are finished", "Documented, not compiled."),
            ],
            "ana": [fail, "It cannot be done."],
            "bea": [done(), "Written."],
        }
    )
    held = model.hold("bea", 1)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        running = asyncio.create_task(play(team))
        deleted = await until(team, EventKind.TASK_DELETED, task=1)
        # What is finished while the lead still acts is no news to it.
        await until(team, EventKind.PHASE_ENDED, member="lead", after=deleted.position)
        held.release()
        report = await running
    assert (report.outcome, report.text) == (Outcome.DONE, "Documented, not compiled.")


async def test_what_wakes_the_lead_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough to write all of them on a busy machine.
    monkeypatch.setattr("bullpen.agent.loop.GATHERING_SECONDS", 5.0)
    model = Recorder({"lead": ["Ready.", "I have read it all."]})
    async with troupe(model, tmp_path) as team:
        await team.send("lead", "Be there.")
        await team.store.want_member(team._me, "lead")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="lead")
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="lead", status="idle")
            for number in range(20):
                await team.send("lead", f"Letter {number}.")
            await until(team, EventKind.PHASE_ENDED, after=first.position, member="lead")
    assert model.count("lead") == 2
    assert all(f"Letter {number}." in newest_of(model.of("lead")[1]) for number in range(20))


async def test_the_first_word_to_a_fresh_lead_is_not_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bullpen.agent.loop.GATHERING_SECONDS", 3600.0)
    async with troupe({"lead": ["Done."]}, tmp_path) as team:
        report = await play(team)
    assert report.text == "Done."


async def test_a_run_ends_only_when_nobody_works_any_more(tmp_path: Path) -> None:
    model = Recorder(
        {
            "lead": [SPLIT, "Waiting.", seeing("All tasks are finished", "The goal is reached.")],
            "ana": [done(), "One.", done(), call("bash", command="echo looking back"), "Two, and I looked back."],
        }
    )
    held = model.hold("ana", 5)
    async with troupe(model, tmp_path) as team:
        running = asyncio.create_task(play_led(team, model, "ana"))
        await held.reached()
        assert [task.status for task in await team.list_tasks()] == [TaskStatus.COMPLETED] * 2
        assert model.count("lead") == 2
        assert not running.done()
        held.release()
        report = await running
    assert report.outcome is Outcome.DONE
    assert "Two, and I looked back." in newest_of(model.of("lead")[2])


async def test_a_stall_is_told_once_with_who_waits_for_whom_and_ends_the_run_if_nothing_changes(tmp_path: Path) -> None:
    split = calls(
        ("TaskCreate", {"subject": "Paint", "role": "painter"}),
        ("TaskCreate", {"subject": "Frame", "blockedBy": [1]}),
        ("Task", {"name": "ana", "role": "builder", "prompt": "Build."}),
    )
    model = Recorder({"lead": [split, "Waiting.", seeing("The team has stalled", "I know of no painter.")]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        report = await play(team)
        told = [mail for mail in await mail_of(team, "lead") if "has stalled" in mail.content]
    assert report.outcome is Outcome.STALLED
    assert report.lines == (
        "#1 Paint: needs the role painter, which nobody has",
        "#2 Frame: blocked by #1",
    )
    assert not report.succeeded
    assert len(told) == 1
    assert model.count("lead") == 3
    assert model.count("ana") == 0


async def test_a_lead_that_acts_on_a_stall_goes_on(tmp_path: Path) -> None:
    split = calls(
        ("TaskCreate", {"subject": "Paint", "role": "painter"}),
        ("Task", {"name": "ana", "role": "builder", "prompt": "Build."}),
    )
    hire = call("Task", name="pia", role="painter", prompt="Paint.")
    model = Recorder(
        {
            "lead": [
                split,
                "Waiting.",
                seeing("The team has stalled", hire),
                "Hired one.",
                seeing("All tasks are finished", "Painted."),
            ],
            "pia": [done(), "Painted it."],
        }
    )
    held = model.hold("pia", 1)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        running = asyncio.create_task(play(team))
        await until(team, EventKind.PHASE_ENDED, member="lead", result="Hired one.")
        held.release()
        report = await running
        told = [mail for mail in await mail_of(team, "lead") if "has stalled" in mail.content]
    assert (report.outcome, report.text) == (Outcome.DONE, "Painted.")
    assert len(told) == 1


async def test_a_teammate_that_rests_with_its_task_is_a_stall_that_names_it(tmp_path: Path) -> None:
    model = Recorder(
        {
            "lead": [SPLIT, WAITING, seeing("The team has stalled", "So be it.")],
            "ana": [call("idle", reason="waiting for the key")],
        }
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        report = await play(team)
    assert report.outcome is Outcome.STALLED
    assert report.lines[0].startswith("#1 First: held by ana, who is idle")


async def test_a_blocker_that_failed_is_a_stall_that_names_it(tmp_path: Path) -> None:
    split = calls(
        ("TaskCreate", {"subject": "Compile"}),
        ("TaskCreate", {"subject": "Ship", "blockedBy": [1]}),
        ("Task", {"name": "ana", "prompt": "Take what is there."}),
    )
    model = Recorder(
        {
            "lead": [
                split,
                WAITING,
                seeing("no compiler", "I see."),
                seeing("The team has stalled", "It ends here."),
            ],
            "ana": [call("TaskUpdate", taskId=1, status="failed", result="no compiler"), "It cannot be done."],
        }
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        report = await play(team)
    assert report.outcome is Outcome.STALLED
    assert report.lines == ("#2 Ship: blocked by #1, which failed",)


async def test_the_death_of_a_worker_wakes_the_lead(tmp_path: Path) -> None:
    model = Recorder({"lead": ["Ready.", seeing("died; it hosted ana", "I wait for her.")], "ana": ["Back."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        elsewhere = await team.store.register_worker(slots=1, lease_seconds=3600)
        await team.spawn("ana", prompt="Be there.")
        await team.store.host_member(elsewhere.id, team_id=team.id)
        await team.send("lead", "Be there.")
        await team.store.want_member(team._me, "lead")
        async with hosted(team):
            ready = await until(team, EventKind.PHASE_ENDED, member="lead")
            await team.store.lapse_worker(elsewhere.id, renewals_seen=None)
            await until(team, EventKind.PHASE_ENDED, after=ready.position, member="lead", result="I wait for her.")
            await until(team, EventKind.PHASE_ENDED, member="ana", result="Back.")


async def test_a_message_to_the_lead_is_answered_by_a_woken_lead(tmp_path: Path) -> None:
    ask = call("SendMessage", recipient="lead", content="Which port?")
    model = Recorder(
        {
            "lead": [
                SPLIT,
                "Waiting.",
                seeing("Which port?", call("SendMessage", recipient="ana", content="8080.")),
                Step(say="Told her.", repeat=True),
                seeing("All tasks are finished", "The goal is reached."),
            ],
            "ana": [ask, call("idle", reason="awaiting_messages"), seeing("8080.", done()), "One.", done(), "Two."],
        }
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        report = await play(team)
        asked = [mail for mail in await mail_of(team, "lead") if mail.type is MessageType.MESSAGE]
    assert report.outcome is Outcome.DONE
    assert [mail.content for mail in asked if mail.sender == "ana"] == ["Which port?"]
