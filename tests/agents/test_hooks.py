"""Gates in whole teams: the human's commands see a step before it is made, refuse it, and can hang nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, USER, MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.providers.scripted import Step
from bullpen.team import Team
from tests.agents.stage import Recorder, calls, facts, mail_of, member, newest_of, results, told
from tests.support.sandboxes import Token
from tests.support.troupe import call, done, hosted, settings, troupe, until

SOON = 0.5


def with_hooks(**hooks: Any) -> Any:
    return settings(hooks=hooks, idle={"timeout_seconds": 3600})


def idles(say: str = "Nothing more to do.") -> Step:
    return Step(say=say, repeat=True)


async def play_ana(team: Team, *tasks: str) -> MemberStatus:
    """Ana works on these, until she rests: her status then."""
    for subject in tasks:
        await team.create_task(subject)
    await team.spawn("ana", prompt="Work.")
    async with hosted(team):
        await until(team, EventKind.PHASE_ENDED, member="ana")
        return (await member(team, "ana")).status


# -- task_created ------------------------------------------------------------------------------------------------


async def test_a_task_that_a_hook_lets_through_is_created_and_the_hook_has_seen_all_of_it(tmp_path: Path) -> None:
    create = call("TaskCreate", subject="Write é", description="all", blockedBy=[1], role="writer", check="true")
    model = Recorder({"ana": [create, idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_created="cat > seen.json; pwd > where")) as team:
        await play_ana(team, "First")
        created = await team.get_task(2)
        first = await team.get_task(1)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert created.subject == "Write é"
    assert (seen["hook"], seen["team"], seen["member"]) == ("task_created", "troupe", "ana")
    assert seen["workspace"] == str(tmp_path)
    assert (tmp_path / "where").read_text().strip() == str(tmp_path.resolve())
    task = seen["task"]
    assert (task["id"], task["subject"], task["role"], task["check"]) == (None, "Write é", "writer", "true")
    assert [blocker["id"] for blocker in task["blockers"]] == [first.id]
    assert "at" in seen


async def test_a_task_that_a_hook_refuses_does_not_exist_and_its_creator_reads_why(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("TaskCreate", subject="Vague"), idles()]})
    hook = "echo a task needs a check; exit 3"
    async with troupe(model, tmp_path, settings=with_hooks(task_created=hook)) as team:
        await play_ana(team)
        assert await team.list_tasks() == []
        [result] = await results(team, "ana")
        assert len(await facts(team, EventKind.HOOK_REFUSED, hook="task_created", member="ana")) == 1
    assert result.startswith("no task was created")
    assert "exit code 3" in result
    assert "a task needs a check" in result


async def test_of_several_commands_the_first_that_refuses_decides_and_the_rest_is_not_asked(tmp_path: Path) -> None:
    model = Recorder({"lead": [call("TaskCreate", subject="Vague"), idles()]})
    hooks = ["touch one", "touch two; exit 1", "touch three"]
    async with troupe(model, tmp_path, settings=with_hooks(task_created=hooks)) as team, hosted(team):
        await team.send(LEAD, "Go.")
        await team.store.want_member(team._me, LEAD)
        await until(team, EventKind.PHASE_ENDED, member=LEAD)
    assert {path.name for path in tmp_path.iterdir()} >= {"one", "two"}
    assert not (tmp_path / "three").exists()


async def test_what_the_human_does_with_their_own_hand_passes_no_hook(tmp_path: Path) -> None:
    hooks = with_hooks(task_created="exit 1", task_completed="exit 1")
    async with troupe(Recorder({}), tmp_path, settings=hooks) as team:
        task = await team.create_task("Mine")
        await team.claim_task(task.id)
        assert (await team.complete_task(task.id)).status is TaskStatus.COMPLETED


# -- task_completed ----------------------------------------------------------------------------------------------


async def test_a_task_is_completed_only_when_the_hook_lets_it_and_its_owner_goes_on_until_then(tmp_path: Path) -> None:
    repair = call("write_file", path="notes", content="here")
    model = Recorder({"ana": [done("first try"), repair, done("second try"), idles()]})
    hook = "cat > seen.json; test -e notes || { echo notes are missing; exit 1; }"
    async with troupe(model, tmp_path, settings=with_hooks(task_completed=hook)) as team:
        await play_ana(team, "Take notes")
        refused, _, passed = await results(team, "ana")
        task = await team.get_task(1)
        assert len(await facts(team, EventKind.HOOK_REFUSED, task=1)) == 1
        assert len(await facts(team, EventKind.TASK_COMPLETED, task=1)) == 1
    assert "the task is not completed" in refused
    assert "notes are missing" in refused
    assert "completed" in passed
    assert (task.status, task.result) == (TaskStatus.COMPLETED, "second try")
    seen = json.loads((tmp_path / "seen.json").read_text())["task"]
    assert (seen["id"], seen["owner"], seen["status"], seen["result"]) == (1, "ana", "in_progress", "second try")


async def test_a_hook_comes_before_the_check_and_a_refused_step_runs_no_check(tmp_path: Path) -> None:
    model = Recorder({"ana": [done(), idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_completed="exit 1")) as team:
        await team.create_task("Checked", check="touch checked")
        await play_ana(team)
        task = await team.get_task(1)
    assert task.status is TaskStatus.IN_PROGRESS
    assert not task.verifying
    assert not (tmp_path / "checked").exists()


async def test_a_step_that_the_store_refuses_anyway_is_shown_to_no_hook(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("TaskUpdate", taskId=1, status="completed"), idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_completed="touch asked")) as team:
        task = await team.create_task("Somebody's", role="other")
        await play_ana(team)
        [result] = await results(team, "ana")
        assert (await team.get_task(task.id)).status is TaskStatus.PENDING
    assert "belongs to nobody yet" in result
    assert not (tmp_path / "asked").exists()


# -- teammate_idle -----------------------------------------------------------------------------------------------


async def test_a_teammate_that_may_not_idle_gets_the_output_and_goes_on_until_it_may(tmp_path: Path) -> None:
    repair = call("write_file", path="notes", content="here")
    model = Recorder({"ana": [done(), "I am through.", repair, "Now I am."]})
    hook = "cat > seen.json; test -e notes || { echo '</hook>notes are missing'; exit 1; }"
    async with troupe(model, tmp_path, settings=with_hooks(teammate_idle=hook)) as team:
        assert await play_ana(team, "Take notes") is MemberStatus.IDLE
        assert len(await facts(team, EventKind.HOOK_REFUSED, hook="teammate_idle")) == 1
        words = await told(team, "ana")
    assert "&lt;/hook&gt;notes are missing" in words
    assert "notes are missing" in newest_of(model.of("ana")[2])
    assert len(model.of("ana")) == 4
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["task"], seen["why"]) == (None, "no_tool_use")


async def test_the_idle_tool_is_refused_like_a_silent_end(tmp_path: Path) -> None:
    model = Recorder({"ana": [call("idle", reason="tired"), call("write_file", path="notes", content="x"), "Done."]})
    hook = "test -e notes"
    async with troupe(model, tmp_path, settings=with_hooks(teammate_idle=hook)) as team:
        await play_ana(team)
    assert (tmp_path / "notes").exists()
    assert len(model.of("ana")) == 3


async def test_a_hook_that_always_refuses_keeps_nobody_up_for_ever_and_the_lead_is_told(tmp_path: Path) -> None:
    model = Recorder({"ana": [idles()], LEAD: [idles("Noted.")]})
    hook = "echo asked >> asked; echo never; exit 1"
    async with troupe(model, tmp_path, settings=with_hooks(teammate_idle=hook)) as team:
        assert await play_ana(team) is MemberStatus.IDLE
        told_lead = [mail.content for mail in await mail_of(team, LEAD) if "goes idle although" in mail.content]
    assert len(model.of("ana")) == 4
    assert (tmp_path / "asked").read_text().count("asked") == 4
    assert len(told_lead) == 1
    assert "never" in told_lead[0]


async def test_who_is_ended_is_not_asked_of_a_hook(tmp_path: Path) -> None:
    model = Recorder({"ana": [idles()]})
    hold = model.hold("ana", 1)
    async with troupe(model, tmp_path, settings=with_hooks(teammate_idle="touch asked; exit 1")) as team:
        await team.spawn("ana", prompt="Work.")
        async with hosted(team):
            await hold.reached()
            await team.shut_down("ana")
            hold.release()
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="ana")
    assert not (tmp_path / "asked").exists()


# -- hooks that are broken ---------------------------------------------------------------------------------------

BROKEN = {
    "slow": "echo begun; sleep 86400",
    "missing": "no-such-command-anywhere",
    "not executable": "./plain",
}


@pytest.mark.parametrize("command", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_hook_refuses_a_task_and_the_human_and_the_lead_are_told_once(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    model = Recorder({"ana": [call("TaskCreate", subject="A"), call("TaskCreate", subject="B"), idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_created=command, timeout_seconds=SOON)) as team:
        await play_ana(team)
        assert await team.list_tasks() == []
        first, second = await results(team, "ana")
        for name in (USER, LEAD):
            errors = [mail.content for mail in await mail_of(team, name) if mail.type == "error"]
            assert len(errors) == 1
            assert command in errors[0]
    for text in (first, second):
        assert "only the human can repair the hook" in text
        assert "It printed\n(" not in text


@pytest.mark.parametrize("command", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_hook_lets_a_teammate_idle(tmp_path: Path, command: str) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    model = Recorder({"ana": [idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(teammate_idle=command, timeout_seconds=SOON)) as team:
        assert await play_ana(team) is MemberStatus.IDLE
        assert len([mail for mail in await mail_of(team, USER) if mail.type == "error"]) == 1
        assert await facts(team, EventKind.HOOK_REFUSED) == []
    assert len(model.of("ana")) == 1


async def test_a_hook_whose_time_is_over_is_ended_with_all_that_it_started(tmp_path: Path, token: Token) -> None:
    hook = f"setsid sleep {token} & (setsid sleep {token} &) ; trap '' TERM; sleep {token}"
    model = Recorder({"ana": [done(), idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_completed=hook, timeout_seconds=SOON)) as team:
        await play_ana(team, "Anything")
        assert token.processes() == []
        assert (await team.get_task(1)).status is TaskStatus.IN_PROGRESS
        [result] = await results(team, "ana")
    assert "was ended after 0.5 s" in result


async def test_a_hook_that_leaves_a_daemon_holding_its_output_is_over_when_it_ends_itself(
    tmp_path: Path, token: Token
) -> None:
    model = Recorder({"ana": [done(), idles()]})
    hook = f"setsid sleep {token} & echo let through"
    async with troupe(model, tmp_path, settings=with_hooks(task_completed=hook)) as team:
        await play_ana(team, "Anything")
        assert (await team.get_task(1)).status is TaskStatus.COMPLETED
    assert token.processes() == []


@pytest.mark.parametrize(
    "hook",
    ["head -c 3000000 /dev/zero | tr '\\0' x; exit 1", "head -c 100000 /dev/urandom; printf '\\0\\377'; exit 1"],
    ids=["huge", "binary"],
)
async def test_whatever_a_hook_prints_is_told_in_a_bounded_text(tmp_path: Path, hook: str) -> None:
    model = Recorder({"ana": [done(), "I am through.", idles("Noted.")]})
    async with troupe(model, tmp_path, settings=with_hooks(task_completed=hook, teammate_idle=hook)) as team:
        await play_ana(team, "Anything")
        [result] = await results(team, "ana")
        words = await told(team, "ana")
    assert 100 < len(result) < 6_000
    assert "whole output is in" in result
    assert len(words) < 60_000


# -- the environment, and crashes --------------------------------------------------------------------------------


async def test_a_hook_has_the_humans_environment_without_the_keys_of_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_OWN_TOKEN", "mine")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    model = Recorder({"ana": [done(), idles()]})
    async with troupe(model, tmp_path, settings=with_hooks(task_completed="env > environment")) as team:
        await play_ana(team, "Anything")
    environment = (tmp_path / "environment").read_text()
    assert "MY_OWN_TOKEN=mine" in environment
    assert "ANTHROPIC_API_KEY" not in environment


async def test_a_step_that_was_let_through_before_a_crash_is_not_refused_after_it(tmp_path: Path) -> None:
    """The process dies between the step and its result: the call is made again, and must find what was done."""
    model = Recorder({"ana": [call("TaskCreate", subject="Once"), idles()]})
    hook = "test ! -e passed && touch passed"
    async with troupe(model, tmp_path, settings=with_hooks(task_created=hook)) as team:
        await team.spawn("ana", prompt="Work.")
        finish = team.store.finish_call
        died: list[bool] = []

        async def die_first(*args: Any, **kwargs: Any) -> Any:
            if not died:
                died.append(True)
                raise RuntimeError("killed")
            return await finish(*args, **kwargs)

        team.store.finish_call = die_first  # type: ignore[method-assign]
        async with hosted(team):
            await until(team, EventKind.PHASE_ENDED, member="ana")
        [task] = await team.list_tasks()
        [result] = await results(team, "ana")
    assert died
    assert task.subject == "Once"
    assert result.startswith("created #1")


async def test_calls_of_one_reply_pass_each_their_own_hook(tmp_path: Path) -> None:
    both = calls(("TaskCreate", {"subject": "good"}), ("TaskCreate", {"subject": "bad"}))
    model = Recorder({"ana": [both, idles()]})
    hook = 'grep -q \'"subject": "good"\''
    async with troupe(model, tmp_path, settings=with_hooks(task_created=hook)) as team:
        await play_ana(team)
        assert [task.subject for task in await team.list_tasks()] == ["good"]
