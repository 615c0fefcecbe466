"""SPEC 3 and 6, TeamDelete: everybody stops, who stopped how is said, and the lead goes on with its memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.request import RequestStatus
from bullpen.providers.scripted import Step
from bullpen.team import Outcome, Team
from tests.agents.stage import Recorder, calls, facts, member, play, play_led, results, seeing
from tests.support.sandboxes import Token
from tests.support.troupe import call, done, hosted, settings, troupe, until


async def test_it_says_who_stopped_when_asked_and_who_had_to_be_forced(tmp_path: Path, token: Token) -> None:
    spawn = calls(("Task", {"name": "good", "prompt": "Rest."}), ("Task", {"name": "deaf", "prompt": "Sleep."}))
    model = Recorder(
        {
            "lead": [spawn, "I wait.", seeing("End it.", call("TeamDelete")), "Done with it."],
            "good": ["I rest."],
            "deaf": [call("bash", command=f"sleep {token}"), "Never said."],
        }
    )
    # Long enough for who answers at once, on a busy machine too.
    quick = settings(shutdown={"deadline_seconds": 5.0}, idle={"timeout_seconds": 3600})
    async with troupe(model, tmp_path, settings=quick) as team, hosted(team):
        await team.send("lead", "Begin.")
        await team.store.want_member(team._me, "lead")
        await until(team, EventKind.PHASE_ENDED, member="good")
        await token.until(1)
        await team.send("lead", "End it.")
        await until(team, EventKind.TEAM_DELETED)
        await token.until(0)
        await until(team, EventKind.TOOL_CALL_FINISHED, tool="TeamDelete")
        said = (await results(team, "lead"))[-1]
    assert "good: stopped when asked" in said
    assert "deaf: did not stop in time and was stopped by force" in said


async def test_deleting_cancels_open_questions_and_nobody_acts_in_a_deleted_team(tmp_path: Path) -> None:
    model = Recorder(
        {
            "lead": [
                calls(("Task", {"name": "ana", "prompt": "Plan first.", "require_plan": True})),
                "I wait.",
                seeing("plan_approval_request", calls(("TeamDelete", {}), ("TaskCreate", {"subject": "Too late"}))),
                "It is over.",
            ],
            "ana": [call("submit_plan", plan="Mine."), "Never said."],
        }
    )
    async with troupe(model, tmp_path) as team:
        report = await play_led(team, model, "ana")
        [plan] = [request for request in await team.list_requests(status=None) if request.kind == "plan"]
        said = await results(team, "lead")
        assert await team.list_tasks() == []
    assert plan.status is RequestStatus.CANCELLED
    assert "has been deleted" in said[-1]
    assert report.text == "It is over."


async def test_the_lead_goes_on_in_the_next_team_with_its_memory_and_what_is_left_of_the_budget(
    tmp_path: Path, store_url: str
) -> None:
    create = ("TaskCreate", {"subject": "The work of the second"})
    spawn = ("Task", {"name": "ana", "prompt": "Take it."})
    model = Recorder(
        {
            "lead": [
                calls(("TeamDelete", {}), say="The password is plum."),
                call("TeamCreate", name="second", goal="The rest"),
                calls(create, spawn),
                "They are at work.",
                seeing("All tasks are finished", "Both are done."),
            ],
            "ana": [done(), "Finished."],
        }
    )
    held = model.hold("ana", 1)
    async with troupe(model, tmp_path, store=store_url, settings=settings(budget={"max_calls": 20})) as team:
        run = asyncio.create_task(play(team, "First one team, then another."))
        await held.reached()
        second = await team.store.find_team("second")
        assert second is not None
        # What wakes the lead comes after its turn.
        await until(Team(team.store, second), EventKind.PHASE_ENDED, member="lead")
        held.release()
        report = await run
        turns = await team.store.list_turns(second.id, "lead")
        tasks = await team.store.list_tasks(second.id)
        old_lead = await member(team, "lead")
    assert report.outcome is Outcome.DONE
    assert report.text == "Both are done."
    assert [(task.subject, task.owner) for task in tasks] == [("The work of the second", "ana")]
    assert "The password is plum." in str([turn.content for turn in turns])
    assert "The password is plum." in str(model.of("lead")[-1].messages)
    assert old_lead.status is MemberStatus.SHUTDOWN
    assert second.settings["budget"]["max_calls"] == 18


async def test_a_team_with_work_is_not_left_for_another(tmp_path: Path) -> None:
    script = {
        "lead": [
            call("TaskCreate", subject="Something"),
            call("TeamCreate", name="elsewhere"),
            call("TaskUpdate", taskId=1, status="deleted"),
            "I see.",
        ]
    }
    async with troupe(script, tmp_path) as team:
        await play(team)
        said = (await results(team, "lead"))[1]
    assert "which has work: finish it there, or TeamDelete it first" in said


async def test_a_team_name_that_is_not_the_current_one_is_an_error_that_names_it(tmp_path: Path) -> None:
    script = {
        "lead": [
            calls(
                ("Task", {"name": "ana", "prompt": "Work.", "team_name": "other"}),
                ("SendMessage", {"recipient": "user", "content": "Hello.", "team_name": "other"}),
                ("TeamDelete", {"name": "other"}),
            ),
            "I see.",
        ]
    }
    async with troupe(script, tmp_path, name="ours") as team:
        await play(team)
        said = await results(team, "lead")
        assert (await team.store.get_team(team.id)).deleted_at is None
    assert all("your team is 'ours', not 'other'" in text for text in said)
    assert len(said) == 3


async def test_a_team_of_the_same_name_is_another_team_and_obeys_no_old_request(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/state/bullpen.db"
    idle = settings(idle={"timeout_seconds": 3600})
    model = Recorder({"ana": ["Ready."], "*": [Step(say="Noted.", repeat=True)]})
    async with troupe(model, tmp_path, store=place, settings=idle, name="same") as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        # Nobody hosts her: the request waits in the old team.
        await team.delete()
    again = Recorder({"ana": ["Ready again."]})
    async with troupe(again, tmp_path, store=place, settings=idle, name="same") as team:
        await team.spawn("ana", prompt="Be there.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.IDLE
        assert await facts(team, EventKind.MEMBER_SHUT_DOWN) == []
    assert "Ready." not in str(again.of("ana")[0].messages)
