"""SPEC 6, plans: the gate is the dispatcher's, and only that plan which was approved opens it."""

from __future__ import annotations

from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.request import RequestStatus
from bullpen.domain.task import TaskStatus
from bullpen.providers.scripted import Step
from tests.agents.stage import Recorder, calls, facts, member, newest_of, play, results, seeing
from tests.support.sandboxes import Ground, require_bubblewrap
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}
WRITE = ("write_file", {"path": "made.txt", "content": "made"})


def decide(approve: bool, text: str = "") -> Step:
    """The lead's answer to the plan that it sees."""
    return call(
        "SendMessage", type="plan_approval_response", request_id="{{request_id}}", approve=approve, content=text
    )


async def test_until_its_plan_is_approved_the_dispatcher_refuses_what_changes_things(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("as it was\n")
    tries = calls(
        WRITE,
        ("edit_file", {"path": "there.txt", "old_text": "as it was", "new_text": "changed"}),
        ("TaskCreate", {"subject": "Something else"}),
        ("TaskUpdate", {"taskId": 1, "status": "completed", "result": "pretended"}),
        ("read_file", {"path": "there.txt"}),
        ("grep", {"pattern": "was"}),
    )
    model = Recorder({"ana": [tries, "I may not.", "Still not."]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("Hers")
        await team.spawn("ana", prompt="Take it.", require_plan=True)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            said = await results(team, "ana")
        assert len(await team.list_tasks()) == 1
        assert (await team.get_task(1)).status is TaskStatus.IN_PROGRESS
    refused = [text for text in said if "your plan is not approved yet: hand one in with submit_plan" in text]
    assert len(refused) == 4
    assert (tmp_path / "there.txt").read_text() == "as it was\n"
    assert not (tmp_path / "made.txt").exists()
    assert sum("as it was" in text for text in said) == 2


async def test_who_needs_a_plan_is_told_so_before_its_first_turn_and_nobody_else(tmp_path: Path) -> None:
    model = Recorder({"ana": ["I see."], "ben": ["I see."]})
    async with troupe(model, tmp_path) as team:
        await team.spawn("ana", prompt="Look.", require_plan=True)
        await team.spawn("ben", prompt="Look.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await until(team, EventKind.PHASE_ENDED, member="ben")
    assert "hand in your plan with `submit_plan`" in model.of("ana")[0].system
    assert "submit_plan" not in model.of("ben")[0].system


async def test_where_nothing_confines_commands_bash_is_refused_before_approval_and_nobody_is_asked(
    tmp_path: Path,
) -> None:
    model = Recorder({"ana": [call("bash", command="touch made.txt"), "I may not."]})
    async with troupe(model, tmp_path, settings=settings(permissions={"allow": []}), is_interactive=True) as team:
        await team.spawn("ana", prompt="Try.", require_plan=True)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
        assert await facts(team, EventKind.REQUEST_OPENED) == []
    assert "bash changes things and your plan is not approved yet" in said
    assert not (tmp_path / "made.txt").exists()


async def test_in_bubblewrap_bash_looks_before_approval_and_writes_after_it(ground: Ground) -> None:
    require_bubblewrap()
    (ground.workspace / "there.txt").write_text("as it was\n")
    script = {
        "ana": [
            calls(("bash", {"command": "cat there.txt"}), ("bash", {"command": "touch made.txt"})),
            call("submit_plan", plan="I will touch made.txt."),
            call("bash", command="touch made.txt && echo touched"),
            "Finished.",
        ],
        "lead": [seeing("plan_approval_request", decide(True)), Step(say="Noted.", repeat=True)],
    }
    async with troupe(script, ground.workspace, settings=settings(sandbox={"kind": "bubblewrap"}, **LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Try.", require_plan=True)
        await play(team)
        looked, wrote, _, after = await results(team, "ana")
    assert "as it was" in looked
    assert "Read-only file system" in wrote
    assert "touched" in after
    assert (ground.workspace / "made.txt").exists()


async def test_a_plan_is_handed_in_waited_for_approved_and_then_carried_out(tmp_path: Path, store_url: str) -> None:
    script = {
        "ana": [call("submit_plan", plan="1. Write made.txt."), calls(WRITE), done(), "Finished."],
        "lead": [
            calls(
                ("TaskCreate", {"subject": "Make it"}),
                ("Task", {"name": "ana", "prompt": "Take it.", "require_plan": True}),
            ),
            "I wait for the plan.",
            seeing("plan_approval_request", decide(True, "Go on.")),
            Step(say="Noted.", repeat=True),
        ],
    }
    async with troupe(script, tmp_path, store=store_url) as team:
        report = await play(team)
        [opened] = await facts(team, EventKind.REQUEST_OPENED)
        request = await team.store.get_request(team.id, opened.data["request"])
        statuses = [event.data["status"] for event in await facts(team, EventKind.MEMBER_STATUS_CHANGED, member="ana")]
        ana = await member(team, "ana")
    assert report.succeeded
    assert (tmp_path / "made.txt").read_text() == "made"
    assert (request.asker, request.asked, request.status) == ("ana", "lead", RequestStatus.ANSWERED)
    assert MemberStatus.WAITING in statuses
    assert ana.plan_digest == request.digest


async def test_who_waits_for_its_plan_takes_no_other_task_meanwhile(tmp_path: Path) -> None:
    model = Recorder(
        {"ana": [call("submit_plan", plan="A plan without a task."), "Good."], "bea": [done(), "Finished."]}
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Plan first.", require_plan=True)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.WAITING
            await team.create_task("For whoever is free")
            await team.spawn("bea", prompt="Take what is there.")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert [event.actor for event in await facts(team, EventKind.TASK_CLAIMED)] == ["bea"]


async def test_a_rejected_plan_comes_back_with_feedback_and_a_new_one_is_made(tmp_path: Path) -> None:
    model = Recorder(
        {
            "ana": [
                call("submit_plan", plan="Drop the table."),
                seeing("keep the data", calls(WRITE)),
                call("submit_plan", plan="Add a column."),
                calls(WRITE),
                done(),
                "Finished.",
            ],
            "lead": [
                calls(
                    ("TaskCreate", {"subject": "Migrate"}),
                    ("Task", {"name": "ana", "prompt": "Take it.", "require_plan": True}),
                ),
                "I wait for the plan.",
                seeing("Drop the table", decide(False, "keep the data")),
                seeing("Add a column", decide(True)),
                Step(say="Noted.", repeat=True),
            ],
        }
    )
    async with troupe(model, tmp_path) as team:
        report = await play(team)
        said = await results(team, "ana")
        requests = await team.list_requests(status=None)
    assert report.succeeded
    assert [request.approved for request in requests] == [False, True]
    # Rejected is not approved: the gate held in between.
    assert "your plan is not approved yet" in said[1]
    assert (tmp_path / "made.txt").exists()
    assert "keep the data" in newest_of(model.of("ana")[1])


async def test_an_approval_counts_for_exactly_that_plan(tmp_path: Path) -> None:
    """The old plan is answered after a new one was handed in: nothing opens."""
    model = Recorder(
        {"ana": [call("submit_plan", plan="First."), call("submit_plan", plan="Second."), calls(WRITE), "Ok."]}
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Plan first.", require_plan=True)
        async with hosted(team):
            first = await until(team, EventKind.REQUEST_OPENED)
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.send("ana", "Think again.")
            await until(team, EventKind.PHASE_ENDED, member="ana", after=ended.position)
            old, new = await team.list_requests(status=None)
            assert (old.id, old.status) == (first.data["request"], RequestStatus.SUPERSEDED)
            assert old.digest != new.digest
            assert (await member(team, "ana")).plan_digest is None
            lead = (await member(team, "lead")).ref
            await team.store.answer_request(lead, new.id, approve=True)
            await until(team, EventKind.TOOL_CALL_FINISHED, tool="write_file")
        assert (await member(team, "ana")).plan_digest == new.digest
    assert (tmp_path / "made.txt").exists()


async def test_nobody_but_the_one_asked_approves_a_plan(tmp_path: Path) -> None:
    meddle = call("SendMessage", type="plan_approval_response", request_id=1, approve=True)
    model = Recorder({"ana": [call("submit_plan", plan="Mine.")], "eve": [meddle, "I tried."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Plan first.", require_plan=True)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.spawn("eve", prompt="Meddle.")
            await until(team, EventKind.PHASE_ENDED, member="eve")
            [said] = await results(team, "eve")
        [request] = await team.list_requests()
        assert request.status is RequestStatus.OPEN
        assert (await member(team, "ana")).plan_digest is None
    assert "lead" in said


async def test_a_plan_that_waits_survives_a_restart(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("submit_plan", plan="Mine."), calls(WRITE), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Plan first.", require_plan=True)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        lead = (await member(team, "lead")).ref
        [request] = await team.list_requests()
        async with hosted(team):
            await team.store.answer_request(lead, request.id, approve=True)
            await until(team, EventKind.TOOL_CALL_FINISHED, tool="write_file")
    assert (tmp_path / "made.txt").exists()
