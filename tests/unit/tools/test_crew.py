"""Task, TeamCreate, TeamDelete."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bullpen.domain.background import BackgroundState
from bullpen.domain.member import MemberStatus
from bullpen.domain.transcript import NewCall, TurnKind
from bullpen.errors import BullpenError, Conflict, TeamDeleted, ToolError, UsageError
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.tools import toolbox_for
from bullpen.tools.backgrounds import Backgrounds
from bullpen.tools.board import TASK_CREATE
from bullpen.tools.crew import TASK, TEAM_CREATE, TEAM_DELETE
from bullpen.tools.shell import TASK_OUTPUT, TASK_STOP
from tests.support.stores import create_team
from tests.unit.tools.conftest import MakeHands
from tests.unit.tools.hands import Hands

pytestmark = pytest.mark.anyio


# -- teammates


async def test_a_name_makes_a_teammate(hands: MakeHands) -> None:
    lead = hands("lead")
    await lead.call(TASK_CREATE, subject="paint")
    text = await lead.text(
        TASK, name="cleo", role="painter", prompt="Paint.", model="m", task_id="#1", require_plan="yes"
    )
    assert text == "cleo (painter) joins the team and begins by itself"
    cleo = await lead.store.get_member(lead.team.id, "cleo")
    assert (cleo.status, cleo.prompt, cleo.model, cleo.plan_required) == (MemberStatus.WANTED, "Paint.", "m", True)
    assert (await lead.store.get_task(lead.team.id, 1)).owner == "cleo"


async def test_the_older_name_spawns_too(hands: MakeHands) -> None:
    lead = hands("lead")
    output = await lead.say(toolbox_for("lead"), "spawn_teammate", name="cleo", role="painter", prompt="Paint.")
    assert output.text.startswith("cleo (painter) joins")


async def test_spawning_one_who_is_there_hands_it_the_prompt_and_no_second_loop(hands: MakeHands) -> None:
    lead = hands("lead")
    assert "is at work; your prompt reaches it" in await lead.text(TASK, name="ana", prompt="Also this.")
    assert [member.name for member in await lead.store.list_members(lead.team.id)].count("ana") == 1


async def test_a_repeated_spawn_does_nothing_twice(hands: MakeHands) -> None:
    lead = hands("lead")
    first = await lead.call(TASK, name="cleo", prompt="Paint.")
    assert (await lead.repeat(TASK, name="cleo", prompt="Paint.")).text == first.text
    assert await lead.store.list_mail(lead.team.id, "cleo") == []
    assert TASK.may_repeat({"name": "cleo", "prompt": "x"})
    assert not TASK.may_repeat({"prompt": "x"})


@pytest.mark.parametrize("name", ["lead", "user", "system", "../x", "a b", "-x"])
async def test_a_name_that_cannot_be_is_an_error_that_says_why(hands: MakeHands, name: str) -> None:
    with pytest.raises(UsageError):
        await hands("lead").call(TASK, name=name, prompt="x")


async def test_a_full_team_is_an_error() -> None:
    async with open_store("sqlite:///:memory:") as store:
        lead = await lead_of(store, max_teammates=1)
        await lead.call(TASK, name="ana", prompt="x")
        with pytest.raises(Conflict):
            await lead.call(TASK, name="ben", prompt="x")


async def test_another_team_is_an_error_that_names_ones_own(hands: MakeHands) -> None:
    with pytest.raises(ToolError, match="your team is 'crew', not 'other'"):
        await hands("lead").call(TASK, name="cleo", prompt="x", team_name="other")


# -- subagents


async def echo(prompt: str, kind: str, model: str | None) -> str:
    return f"{kind} {model} {prompt}"


async def test_without_a_name_the_answer_of_a_subagent_is_the_result(hands: MakeHands) -> None:
    lead = hands("lead", subagent=echo)
    assert await lead.text(TASK, prompt="Look.", agent_type="Explore", model="small") == "explore small Look."
    assert await lead.text(TASK, prompt="Do.") == "code None Do."
    with pytest.raises(ToolError, match="must be one of explore, code, plan"):
        await lead.call(TASK, prompt="x", agent_type="wizard")


async def test_a_long_answer_keeps_head_and_tail(hands: MakeHands) -> None:
    async def chat(prompt: str, kind: str, model: str | None) -> str:
        return f"begin {'x' * 50_000} end"

    text = await hands("lead", subagent=chat).text(TASK, prompt="x")
    assert len(text) <= 30_000
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "left out" in text


async def ended(lead: Hands) -> str:
    return await lead.text(TASK_OUTPUT, task_id="bg-1", block=True, timeout=60_000)


async def test_a_subagent_in_the_background_answers_with_one_notice(hands: MakeHands) -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def think(prompt: str, kind: str, model: str | None) -> str:
        return await answer

    lead = hands("lead", subagent=think)
    text = await lead.text(TASK, prompt="Look hard.", description="find writers", run_in_background=True)
    assert text.startswith("bg-1 works in the background")
    shown = await lead.text(TASK_OUTPUT, task_id="bg-1")
    assert shown.endswith("code: find writers\n(its answer comes at the end)")
    answer.set_result("in users.py:12")
    assert await ended(lead) == "bg-1 [finished] code: find writers\nin users.py:12"
    (notice,) = await lead.store.list_mail(lead.team.id, "lead")
    assert "in users.py:12" in notice.content


@pytest.mark.parametrize("error", [ToolError("no model"), ValueError("odd")])
async def test_a_subagent_that_fails_is_told_as_such(hands: MakeHands, error: Exception) -> None:
    async def fail(prompt: str, kind: str, model: str | None) -> str:
        raise error

    lead = hands("lead", subagent=fail)
    await lead.call(TASK, prompt="x", run_in_background=True)
    assert f"the subagent failed: {error}" in await ended(lead)


async def test_a_subagent_in_the_background_can_be_stopped(hands: MakeHands) -> None:
    was_cancelled = asyncio.Event()

    async def think(prompt: str, kind: str, model: str | None) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return ""

    lead = hands("lead", subagent=think)
    await lead.call(TASK, prompt="x", run_in_background=True)
    await lead.text(TASK_OUTPUT, task_id="bg-1", block=True, timeout=10)
    assert (await lead.text(TASK_STOP, task_id="bg-1")).startswith("bg-1 [stopped]")
    assert was_cancelled.is_set()
    await lead.call(TASK, prompt="x", run_in_background=True)
    await lead.resource(Backgrounds).aclose()
    first, second = await lead.store.list_backgrounds(lead.team.id)
    assert (first.state, second.state) == (BackgroundState.STOPPED, BackgroundState.RUNNING)
    assert await lead.store.list_mail(lead.team.id, "lead") == []


# -- teams


async def lead_of(store: Store, **settings: Any) -> Hands:
    """The lead of a team that holds nothing yet, at work."""
    team, user = await create_team(store, "fresh", **settings)
    await store.want_member(user, "lead")
    worker = await store.register_worker(slots=10)
    await store.host_member(worker.id)
    lead = await store.get_member(team.id, "lead")
    return Hands(store=store, team=team, member=lead, workspace=None)  # type: ignore[arg-type]


async def test_a_team_that_holds_nothing_is_named(store: Store) -> None:
    lead = await lead_of(store)
    text = await lead.text(TEAM_CREATE, name="REST to GraphQL", goal="migrate")
    assert text.startswith("your team is 'REST-to-GraphQL' now")
    team = await store.get_team(lead.team.id)
    assert (team.name, team.goal) == ("REST-to-GraphQL", "migrate")
    again = await lead.repeat(TEAM_CREATE, name="REST to GraphQL", goal="migrate")
    assert again.text == text


async def test_a_team_with_work_is_not_renamed(hands: MakeHands, store: Store) -> None:
    for name in ("other", "crew"):
        with pytest.raises(ToolError, match="you lead 'crew', which has work: finish it there, or TeamDelete it first"):
            await hands("lead").call(TEAM_CREATE, name=name)
    assert (await store.get_team(hands().team.id)).name == "crew"


async def test_a_name_that_is_taken_is_said_to_be(store: Store) -> None:
    lead = await lead_of(store)
    await store.create_team("taken")
    with pytest.raises(Conflict, match="taken"):
        await lead.call(TEAM_CREATE, name="taken")


async def delete(lead: Hands) -> asyncio.Task[str]:
    """Begun, and everybody is asked."""
    deleting = asyncio.create_task(lead.text(TEAM_DELETE))
    async with asyncio.timeout(30):
        while (await lead.store.get_team(lead.team.id)).deleted_at is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return deleting


async def test_who_stopped_how_is_reported(hands: MakeHands, store: Store) -> None:
    # Long enough to answer for ana on a busy machine.
    lead = hands("lead", settings={"shutdown_deadline_seconds": 3.0})
    ana = hands("ana")
    await lead.call(TASK, name="cleo", prompt="never hosted")
    deleting = await delete(lead)
    (request,) = await store.list_requests(lead.team.id, asked="ana")
    await store.answer_request(ana.ref, request.id, approve=True)
    await store.shut_down_member(ana.ref, reason="asked")
    async with asyncio.timeout(30):
        lines = (await deleting).splitlines()
    assert lines[0].startswith("team 'crew' is deleted")
    assert lines[1:4] == [
        "ana: stopped when asked",
        "ben: did not stop in time and was stopped by force",
        "cleo: stopped when asked",
    ]


async def test_deleting_ends_the_moment_the_last_one_rests_and_can_be_repeated(hands: MakeHands, store: Store) -> None:
    lead = hands("lead", settings={"shutdown_deadline_seconds": 3000})
    deleting = await delete(lead)
    for name in ("ana", "ben"):
        await store.shut_down_member(hands(name).ref, reason="asked")
    async with asyncio.timeout(30):
        text = await deleting
        assert (await lead.repeat(TEAM_DELETE)).text == text
    with pytest.raises(TeamDeleted):
        await lead.call(TEAM_DELETE)


async def test_another_teams_name_deletes_nothing(hands: MakeHands, store: Store) -> None:
    with pytest.raises(ToolError, match="your team is 'crew'"):
        await hands("lead").call(TEAM_DELETE, name="other")
    assert (await store.get_team(hands().team.id)).deleted_at is None


async def test_after_a_deletion_the_lead_goes_on_in_the_next_team_with_its_memory(store: Store) -> None:
    lead = await lead_of(store)
    await lead.call(TEAM_DELETE)
    await store.record_turn(
        lead.ref,
        TurnKind.ASSISTANT,
        {"parts": []},
        calls=[NewCall(call_id="call-next", name="TeamCreate", arguments={"name": "second"})],
    )
    await store.start_call(lead.ref, "call-next")
    lead.call_id, lead.operation_id = "call-next", "lead:call-next"
    output = await lead.repeat(TEAM_CREATE, name="second", goal="more")
    assert output.text.startswith("team 'second' is open and you lead it")
    new = output.moves_to
    assert new is not None
    team = await store.get_team(new.team_id)
    assert (team.name, team.goal) == ("second", "more")
    turns = await store.list_turns(new.team_id, "lead")
    assert any(output.text in str(turn.content) for turn in turns)
    assert await store.list_calls(new.team_id, "lead", open_only=True) == []


async def test_a_teammate_has_none_of_this() -> None:
    box = toolbox_for("teammate")
    for name in ("Task", "spawn_teammate", "TeamCreate", "TeamDelete"):
        with pytest.raises(BullpenError, match="there is no tool"):
            box.resolve(name)
