"""SPEC 6, permissions: a question for the human, bound to one call, that others do not wait for and a restart keeps."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.request import PermissionScope, RequestKind, RequestStatus, digest_of
from bullpen.errors import BullpenError
from bullpen.providers.scripted import Step
from bullpen.team import Outcome, Team
from tests.agents.stage import Recorder, calls, facts, member, results
from tests.support.troupe import BOUND_SECONDS, call, done, hosted, settings, troupe, until

ASKS = {"sandbox": {"kind": "local"}, "permissions": {"allow": []}, "idle": {"timeout_seconds": 3600}}
TOUCH = call("bash", command="touch made.txt")


def asking(model: Recorder, workspace: Path, **options: Any) -> AbstractAsyncContextManager[Team]:
    """A team in which bash asks, with somebody there to be asked."""
    sections = {**ASKS, **options.pop("sections", {})}
    return troupe(model, workspace, settings=settings(**sections), **{"is_interactive": True, **options})


async def asked(team: Team, after: str = "") -> Event:
    return await until(team, EventKind.REQUEST_OPENED, request_kind=RequestKind.PERMISSION, after=after)


async def test_a_call_that_asks_becomes_a_request_to_the_human_bound_to_its_arguments(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await asked(team)
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="waiting")
            request = await team.store.get_request(team.id, opened.data["request"])
            assert (request.asker, request.asked) == ("ana", "user")
            assert request.digest == digest_of(["bash", {"command": "touch made.txt"}])
            assert "touch made.txt" in request.content
            assert not (tmp_path / "made.txt").exists()
            await team.approve(request.id)
            await until(team, EventKind.PHASE_ENDED, member="ana")
            assert (await member(team, "ana")).status is MemberStatus.IDLE
    assert (tmp_path / "made.txt").exists()


async def test_others_go_on_while_one_waits_for_the_human(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "Finished."], "bea": [done(), "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await asked(team)
            await team.create_task("Something else")
            await team.spawn("bea", prompt="Take it.")
            await until(team, EventKind.TASK_COMPLETED, task=1)
            assert (await team.store.get_request(team.id, opened.data["request"])).status is RequestStatus.OPEN
            await team.approve(opened.data["request"])
            await until(team, EventKind.PHASE_ENDED, member="ana")


async def test_once_is_once(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, TOUCH, "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it twice.")
        async with hosted(team):
            first = await asked(team)
            await team.approve(first.data["request"], scope=PermissionScope.ONCE)
            second = await asked(team, after=first.position)
            assert second.data["request"] != first.data["request"]
            await team.approve(second.data["request"])
            await until(team, EventKind.PHASE_ENDED, member="ana")


async def test_for_this_team_holds_for_every_member_of_it_and_for_no_other_command(tmp_path: Path) -> None:
    model = Recorder(
        {
            "ana": [TOUCH, "Finished."],
            "bea": [TOUCH, call("bash", command="rm made.txt"), "Finished."],
        }
    )
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            first = await asked(team)
            await team.approve(first.data["request"], scope=PermissionScope.TEAM)
            await until(team, EventKind.PHASE_ENDED, member="ana")
            await team.spawn("bea", prompt="Touch, then remove.")
            second = await asked(team, after=first.position)
            assert "rm made.txt" in second.data["text"]
            await team.reject(second.data["request"])
            await until(team, EventKind.PHASE_ENDED, member="bea")


async def test_always_holds_for_the_next_team_too_and_this_team_does_not(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/state/bullpen.db"
    for number, scope in enumerate((PermissionScope.TEAM, PermissionScope.ALWAYS), 1):
        model = Recorder({"ana": [TOUCH, "Finished."]})
        async with asking(model, tmp_path, store=place, name=f"team-{number}") as team:
            await team.spawn("ana", prompt="Touch it.")
            async with hosted(team):
                opened = await asked(team)
                await team.approve(opened.data["request"], scope=scope)
                await until(team, EventKind.PHASE_ENDED, member="ana")
    model = Recorder({"ana": [TOUCH, "Finished."]})
    async with asking(model, tmp_path, store=place, name="team-3") as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert await facts(team, EventKind.REQUEST_OPENED) == []


async def test_no_is_an_error_result_with_the_humans_reason_and_the_member_goes_on(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "I do without."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await asked(team)
            await team.reject(opened.data["request"], reason="not in this tree")
            ended = await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
    assert said == "the human said no: not in this tree"
    assert ended.data["result"] == "I do without."
    assert not (tmp_path / "made.txt").exists()


async def test_a_question_that_nobody_answers_in_time_is_a_no_that_names_the_setting(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "I do without."]})
    sections = {"permissions": {"allow": [], "timeout_seconds": 0.2}}
    async with asking(model, tmp_path, sections=sections) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
            [request] = await team.list_requests(status=None)
    assert request.status is RequestStatus.EXPIRED
    assert "nobody answered" in said
    assert "permissions.allow" in said
    assert not (tmp_path / "made.txt").exists()


async def test_without_a_terminal_nobody_is_asked_and_the_no_names_the_setting(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "I do without."]})
    async with asking(model, tmp_path, is_interactive=False) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
        assert await team.list_requests(status=None) == []
    assert "nobody is there to be asked" in said
    assert "permissions.allow" in said
    assert not (tmp_path / "made.txt").exists()


async def test_a_question_survives_a_restart_and_its_answer_given_meanwhile_counts(
    tmp_path: Path, store_url: str
) -> None:
    model = Recorder({"ana": [TOUCH, "Finished."]})
    async with asking(model, tmp_path, store=store_url) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await asked(team)
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="waiting")
        # Nobody hosts it now.
        request = await team.store.get_request(team.id, opened.data["request"])
        assert request.status is RequestStatus.OPEN
        await team.approve(request.id)
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        assert len(await team.list_requests(status=None)) == 1
    assert (tmp_path / "made.txt").exists()
    # The call was queued and ran: the model was not asked for it again.
    assert model.count("ana") == 2


async def test_an_answer_is_for_that_call_and_not_for_the_next_with_other_arguments(tmp_path: Path) -> None:
    both = calls(("bash", {"command": "touch made.txt"}), ("bash", {"command": "touch other.txt"}))
    model = Recorder({"ana": [both, "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch both.")
        async with hosted(team):
            first = await asked(team)
            await team.approve(first.data["request"], scope=PermissionScope.ONCE)
            second = await asked(team, after=first.position)
            assert (tmp_path / "made.txt").exists()
            assert not (tmp_path / "other.txt").exists()
            with pytest.raises(BullpenError):
                await team.approve(first.data["request"])
            await team.reject(second.data["request"])
            await until(team, EventKind.PHASE_ENDED, member="ana")
    assert not (tmp_path / "other.txt").exists()


async def test_one_who_waits_for_the_human_can_be_shut_down(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            opened = await asked(team)
            await until(team, EventKind.MEMBER_STATUS_CHANGED, member="ana", status="waiting")
            await team.shut_down("ana")
            gone = await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
        assert gone.data["reason"] == "asked"
        assert (await team.store.get_request(team.id, opened.data["request"])).status is RequestStatus.CANCELLED
    assert not (tmp_path / "made.txt").exists()


async def test_a_question_of_one_who_is_interrupted_is_withdrawn_and_the_run_does_not_wait_for_its_answer(
    tmp_path: Path,
) -> None:
    model = Recorder({"lead": [TOUCH, "I leave it."]})
    async with asking(model, tmp_path) as team:
        running = asyncio.create_task(team.run("Touch it."))
        opened = await asked(team)
        await until(team, EventKind.MEMBER_STATUS_CHANGED, member="lead", status="waiting")
        await team.interrupt("lead", "Do not.")
        async with asyncio.timeout(BOUND_SECONDS):
            report = await running
        request = await team.store.get_request(team.id, opened.data["request"])
    assert (report.outcome, request.status) == (Outcome.DONE, RequestStatus.CANCELLED)


async def test_the_question_of_a_subagent_that_is_stopped_is_withdrawn(tmp_path: Path) -> None:
    beside = call("Task", prompt="Touch it.", agent_type="code", run_in_background=True)
    stop = call("TaskStop", task_id="bg-1")
    touch = Step(calls=TOUCH.calls, purpose="subagent")
    model = Recorder({"lead": [beside, "It works.", stop, "I stopped it.", touch]})
    async with asking(model, tmp_path) as team:
        running = asyncio.create_task(team.run("Touch it."))
        opened = await asked(team)
        await team.send("lead", "Stop it.")
        async with asyncio.timeout(BOUND_SECONDS):
            report = await running
        request = await team.store.get_request(team.id, opened.data["request"])
    assert (report.outcome, request.status) == (Outcome.DONE, RequestStatus.CANCELLED)


async def test_the_check_of_a_task_asks_like_any_other_command(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), "Finished."]})
    async with asking(model, tmp_path) as team:
        await team.create_task("With a check", check="touch checked.txt")
        await team.spawn("ana", prompt="Take it.")
        async with hosted(team):
            opened = await asked(team)
            assert "touch checked.txt" in opened.data["text"]
            assert not (tmp_path / "checked.txt").exists()
            await team.approve(opened.data["request"])
            await until(team, EventKind.TASK_COMPLETED, task=1)
    assert (tmp_path / "checked.txt").exists()


async def test_denied_is_denied_and_nobody_is_asked(tmp_path: Path) -> None:
    model = Recorder({"ana": [TOUCH, "I do without."]})
    sections = {"permissions": {"allow": ["*"], "deny": ["bash:touch"]}}
    async with asking(model, tmp_path, sections=sections) as team:
        await team.spawn("ana", prompt="Touch it.")
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
            [said] = await results(team, "ana")
        assert await team.list_requests(status=None) == []
    assert said.startswith("not allowed: ")
    assert "permissions.deny" in said
