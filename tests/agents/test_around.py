"""SPEC 4 and 9 in a whole team: background commands, subagents beside the lead, skills, checks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.domain.background import BackgroundState
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.providers.scripted import Step
from tests.agents.slow import SlowStore
from tests.agents.stage import Recorder, calls, facts, mail_of, member, newest_of, play, results
from tests.support.sandboxes import Token
from tests.support.sandboxes import until as until_true
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


# -- background commands -----------------------------------------------------------------------------------------


async def test_a_background_command_has_its_number_at_once_and_its_one_notice_wakes_an_idle_teammate(
    tmp_path: Path,
) -> None:
    waits = 'echo begun; until [ -e go ]; do sleep 0.02; done; echo "and ended"; exit 3'
    start, look = call("bash", command=waits, run_in_background=True), call("TaskOutput", task_id="bg-1")
    model = Recorder({"ana": [start, "It runs.", look, "Seen."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Start it.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.IDLE
            (tmp_path / "go").touch()
            await until(team, EventKind.PHASE_ENDED, member="ana", after=first.position)
            started, output = await results(team, "ana")
        notices = [mail.content for mail in await mail_of(team, "ana") if mail.type == "notice"]
    assert started.startswith("bg-1 runs in the background")
    assert "exit code 3" in output
    assert "begun\nand ended" in output
    assert len(notices) == 1
    assert "bg-1" in notices[0]
    assert "and ended" in newest_of(model.of("ana")[2])


async def test_its_output_is_read_while_it_runs_and_stop_ends_all_of_it(tmp_path: Path, token: Token) -> None:
    command = f"echo begun; setsid sleep {token} & sleep {token}"
    model = Recorder(
        {
            "ana": [
                call("background_run", command=command),
                call("check_background", task_id="bg-1"),
                call("TaskStop", task_id="bg-1"),
                Step(say="Stopped.", repeat=True),
            ]
        }
    )
    looks = model.hold("ana", 2)
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Start it, then stop it.")
        async with hosted(team):
            await looks.reached()
            # All of it runs, and what it printed has arrived.
            await token.until(2)
            [background] = await team.store.list_backgrounds(team.id)
            printed = Path(background.output_path or "")
            await until_true(lambda: "begun" in printed.read_text())
            looks.release()
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert token.processes() == []
            *_, output, stopped = await results(team, "ana")
        assert len(await facts(team, EventKind.BACKGROUND_ENDED)) == 1
    assert "bg-1 [running" in output
    assert "begun" in output
    assert "bg-1 [stopped" in stopped


async def test_who_shuts_down_leaves_nothing_running(tmp_path: Path, token: Token) -> None:
    model = Recorder({"ana": [call("bash", command=f"sleep {token}", run_in_background=True), "It runs."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Start it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await token.until(1)
            await team.shut_down("ana")
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await token.until(0)
            [background] = await team.store.list_backgrounds(team.id)
            assert background.state is BackgroundState.STOPPED


async def test_what_ran_when_its_host_left_is_lost_and_told_once(tmp_path: Path, token: Token) -> None:
    model = Recorder(
        {"ana": [call("bash", command=f"sleep {token}", run_in_background=True), Step(say="Noted.", repeat=True)]}
    )
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Start it.")
        async with hosted(team):
            first = await until(team, EventKind.PHASE_ENDED, member="ana")
        await token.until(0)
        async with hosted(team):
            second = await until(team, EventKind.PHASE_ENDED, member="ana", after=first.position)
            assert second.data["result"] == "Noted."
        async with hosted(team):
            await team.spawn("bea", role="tester", prompt="")
            await until(team, EventKind.MEMBER_HOSTED, member="bea")
        [background] = await team.store.list_backgrounds(team.id)
        notices = [mail for mail in await mail_of(team, "ana") if mail.type == "notice"]
    assert background.state is BackgroundState.LOST
    assert len(notices) == 1
    assert "bg-1" in notices[0].content


async def test_who_is_interrupted_while_it_starts_something_leaves_nothing_that_is_taken_for_running(
    tmp_path: Path,
) -> None:
    start = call("bash", command="sleep 3600", run_in_background=True)
    model = Recorder({"ana": [start, "I stopped."]})
    async with SlowStore("start_background") as store, troupe(model, tmp_path, store=store) as team:
        await team.spawn("ana", prompt="Start it.")
        async with hosted(team):
            await store.cut_in(team)
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [background] = await store.list_backgrounds(team.id)
            assert background.state is BackgroundState.STOPPED
            assert (await store.get_snapshot(team.id)).running == 0


async def test_who_is_interrupted_while_a_check_begins_leaves_no_task_that_is_verifying(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "I stopped.", "I rest."]})
    async with SlowStore("start_check") as store, troupe(model, tmp_path, store=store) as team:
        await team.create_task("Checked", check="true")
        await team.spawn("ana", prompt="Do it.")
        async with hosted(team):
            await store.cut_in(team)
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [task] = await team.list_tasks()
            assert (task.status, task.verifying) == (TaskStatus.IN_PROGRESS, False)


async def test_a_subagent_beside_the_lead_answers_with_one_notice_that_wakes_it(tmp_path: Path) -> None:
    answers = asyncio.Event()

    async def think(seconds: float) -> None:
        await answers.wait()

    model = Recorder(
        {
            "lead": [
                call("Task", prompt="Where is auth?", agent_type="explore", run_in_background=True),
                "It looks.",
                Step(say="In src/auth.", repeat=True),
                Step(say="src/auth", purpose="subagent", delay_seconds=1),
            ]
        },
        sleep=think,
    )
    async with troupe(model, tmp_path) as team:
        async with hosted(team):
            await team.send("lead", "Find auth.")
            await team.store.want_member(team._me, "lead")
            first = await until(team, EventKind.PHASE_ENDED, member="lead")
            answers.set()
            await until(team, EventKind.PHASE_ENDED, member="lead", after=first.position)
        notices = [mail.content for mail in await mail_of(team, "lead") if mail.type == "notice"]
    assert len(notices) == 1
    assert "src/auth" in notices[0]


# -- skills --------------------------------------------------------------------------------------------------------


async def test_a_skill_is_offered_by_its_whole_description_and_loaded_on_demand(tmp_path: Path) -> None:
    directory = tmp_path / "skills" / "pdf"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(
        "---\nname: pdf\ndescription: |\n  Reads PDF files.\n  Also forms.\n---\nUse pdftotext, then read.\n"
    )
    load = calls(("load_skill", {"name": "pdf"}), ("Skill", {"skill": "nonsense"}))
    model = Recorder({"lead": [load, "I know how."]})
    async with troupe(model, tmp_path) as team:
        await play(team)
        # Both only read, so either may end first.
        unknown, loaded = sorted(await results(team, "lead"), key=lambda text: "pdftotext" in text)
    offered = model.of("lead")[0].system
    assert "- pdf: Reads PDF files." in offered
    assert "Also forms." in offered
    assert "pdf: |" not in offered
    assert "Use pdftotext" not in offered
    assert "Use pdftotext, then read." in loaded
    assert "pdf" in unknown


# -- verified done -------------------------------------------------------------------------------------------------


async def test_a_check_that_fails_shows_its_output_to_the_owner_who_goes_on_until_it_passes(tmp_path: Path) -> None:
    repair = call("write_file", path="fixed", content="yes")
    model = Recorder({"ana": [done("first"), repair, done("second"), "Finished."]})
    async with troupe(model, tmp_path) as team:
        await team.create_task("Make it pass", check='test -e fixed || { echo "fixed is missing"; exit 7; }')
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
        task = await team.get_task(1)
        verdicts = await facts(team, EventKind.TASK_CHECK_FINISHED)
    assert len(verdicts) == 2
    failed = newest_of(model.of("ana")[1])
    assert "failed with exit code 7" in failed
    assert "fixed is missing" in failed
    assert (task.status, task.result) == (TaskStatus.COMPLETED, "second")
    assert task.evidence is not None
    assert task.evidence.exit_code == 0


async def test_while_its_check_runs_a_task_is_its_owners_and_a_verdict_for_a_task_taken_away_counts_nothing(
    tmp_path: Path,
) -> None:
    model = Recorder({"ana": [done("mine"), "I see.", "Noted."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("Slow to check", check="touch running; until [ -e go ]; do sleep 0.02; done")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            await until(team, EventKind.TASK_CHECK_STARTED, task=1)
            during = await team.get_task(1)
            assert (during.status, during.owner, during.verifying) == (TaskStatus.IN_PROGRESS, "ana", True)
            # The human takes it back in the middle.
            await team.update_task(1, owner="user")
            (tmp_path / "go").touch()
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert (await team.get_task(1)).status is not TaskStatus.COMPLETED
        assert await facts(team, EventKind.TASK_COMPLETED) == []
