"""SPEC 4: who dies keeps its task while somebody can host it. A loop that crashes inside a living worker is released
like a lapse; after several crashes it is given up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.task import TaskStatus
from bullpen.provider import ModelRequest
from bullpen.providers.scripted import Step
from bullpen.stores import open_store
from bullpen.team import Outcome
from bullpen.worker.worker import MAX_CRASHES
from tests.agents.stage import Recorder, facts, mail_of, member, newest_of, play, text_of
from tests.support.processes import Crew, Line
from tests.support.troupe import call, done, hosted, settings, troupe, until

LONG_IDLE = {"idle": {"timeout_seconds": 3600}}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A crash is logged with its traceback; here it is expected."""
    caplog.set_level(logging.CRITICAL, logger="bullpen.worker.worker")


def crashing(times: int, then: Step | str) -> Callable[[ModelRequest], Step | str]:
    """A bug that shows so often, and then no more."""
    left = [times]

    def reply(request: ModelRequest) -> Step | str:
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError("a bug")
        return then

    return reply


async def test_a_loop_that_crashes_is_released_and_goes_on_with_its_task_and_its_memory(
    tmp_path: Path, store_url: str
) -> None:
    model = Recorder({"ana": [call("bash", command="echo seventeen"), crashing(1, done()), "Finished."]})
    async with troupe(model, tmp_path, store=store_url, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            lapsed = await until(team, EventKind.MEMBER_LAPSED, member="ana")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert lapsed.data["reason"] == "ZeroDivisionError: a bug"
        hosts = await facts(team, EventKind.MEMBER_HOSTED, member="ana")
        assert [event.data["incarnation"] for event in hosts] == [1, 3]
        assert len(await facts(team, EventKind.TASK_CLAIMED)) == 1, "it was reserved for her"
        assert len(await facts(team, EventKind.TOOL_CALL_STARTED, tool="bash")) == 1
        [told] = [mail for mail in await mail_of(team, "lead") if mail.type is MessageType.NOTICE]
        assert told.content == "ana crashed: ZeroDivisionError: a bug"
        assert (await team.store.list_accounts(team.id))[0].open_calls == 0
    resumed = model.of("ana")[2]
    assert "You were restarted." in newest_of(resumed)
    assert "seventeen" in text_of(resumed)


async def test_the_others_of_the_same_worker_go_on(tmp_path: Path) -> None:
    model = Recorder({"ana": crashing(10**6, ""), "bea": [done(), "Finished."]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", role="breaker", prompt="Break.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await team.create_task("The one")
            await team.spawn("bea", prompt="Take it.")
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert (await team.get_task(1)).owner == "bea"


async def test_one_that_crashes_again_and_again_is_given_up_and_lead_and_human_are_told_once(tmp_path: Path) -> None:
    model = Recorder({"ana": crashing(10**6, "")})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"].startswith("error: its loop crashed 3 times")
        assert model.count("ana") == MAX_CRASHES == 3
        for name in ("lead", "user"):
            [error] = [mail for mail in await mail_of(team, name) if mail.type is MessageType.ERROR]
            assert error.content == (
                "ana cannot be run: its loop crashed 3 times; the last time: ZeroDivisionError: a bug"
            )
        task = await team.get_task(1)
        assert (task.status, task.owner) == (TaskStatus.PENDING, None)
        assert [handover.by for handover in task.handovers] == ["ana"]


async def test_a_finished_work_phase_forgives_the_crashes_before_it(tmp_path: Path) -> None:
    twice = MAX_CRASHES - 1
    model = Recorder({"ana": [crashing(twice, "One."), crashing(twice, "Two."), crashing(twice, "Three.")]})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Say something.")
        async with hosted(team):
            said = await until(team, EventKind.PHASE_ENDED, member="ana", result="One.")
            await team.send("ana", "Go on.")
            said = await until(team, EventKind.PHASE_ENDED, after=said.position, member="ana", result="Two.")
            await team.send("ana", "Go on.")
            await until(team, EventKind.PHASE_ENDED, after=said.position, member="ana", result="Three.")
        assert await facts(team, EventKind.MEMBER_SHUT_DOWN) == []


async def test_one_that_was_given_up_comes_back_when_it_is_spawned_again(tmp_path: Path) -> None:
    model = Recorder({"ana": crashing(MAX_CRASHES + 1, "Repaired.")})
    async with troupe(model, tmp_path, settings=settings(**LONG_IDLE)) as team:
        await team.spawn("ana", prompt="Say something.")
        async with hosted(team):
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
            await team.spawn("ana", prompt="Try again.")
            await until(team, EventKind.PHASE_ENDED, member="ana", result="Repaired.")


async def test_a_lead_that_crashes_again_and_again_ends_the_run_with_an_error(tmp_path: Path) -> None:
    model = Recorder({"lead": crashing(MAX_CRASHES, "Repaired.")})
    async with troupe(model, tmp_path) as team:
        report = await play(team)
        assert report.outcome is Outcome.ERROR
        assert "its loop crashed 3 times" in report.lines[0]
        [error] = [mail for mail in await mail_of(team, "user") if mail.type is MessageType.ERROR]
        assert "lead cannot be run" in error.content
        assert (await member(team, "lead")).status is MemberStatus.SHUTDOWN
        again = await play(team, "")
    assert (again.outcome, again.text) == (Outcome.DONE, "Repaired.")


async def claim_and_hold(line: Line, url: str, team_id: int) -> None:
    async with open_store(url) as store:
        worker = await store.register_worker(slots=1)
        hosted = await store.host_member(worker.id, team_id=team_id)
        assert hosted is not None
        await store.claim_next_task(hosted.ref)
        await line.say("claimed")
        await line.hear("never")


async def test_whose_process_was_killed_keeps_its_task_when_the_team_is_resumed(tmp_path: Path, crew: Crew) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with troupe(model, tmp_path, store=f"sqlite:///{tmp_path}/state/bullpen.db") as team:
        await team.create_task("The one")
        await team.spawn("ana", prompt="Take it.")
        child = crew.start(claim_and_hold, url=team.store.url, team_id=team.id)
        await child.hear("claimed")
        child.kill()
        async with hosted(team):
            await until(team, EventKind.TASK_COMPLETED, task=1)
        assert [event.data["owner"] for event in await facts(team, EventKind.TASK_RESERVED)] == ["ana"]
        assert len(await facts(team, EventKind.TASK_CLAIMED)) == 1
        assert await facts(team, EventKind.TASK_RELEASED) == []
    first = newest_of(model.of("ana")[0])
    assert "Take it." in first
    assert '<task id="1">' in first
