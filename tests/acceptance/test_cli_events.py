"""`bullpen events`: the log behind a pipe, and followed across processes."""

from __future__ import annotations

import json
import re
import signal

from inline_snapshot import snapshot

from bullpen.domain.event import EventKind
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line


async def some_work(team: Team) -> None:
    await team.create_task("Analyse", check="make")
    await team.create_task("Design", blocked_by=[1])
    await team.complete_task(1, result="12 endpoints", unverified=True)
    await team.send("lead", "look\nat it")


def test_the_log_is_one_line_for_each_fact(bullpen: Bullpen) -> None:
    bullpen.prepare(some_work, goal="Migrate")
    assert re.sub(r"^\d\d:\d\d:\d\d", "hh:mm:ss", bullpen("events").out, flags=re.M) == snapshot("""\
hh:mm:ss  TeamCreated           user      default  Migrate
hh:mm:ss  TaskCreated           user      #1  Analyse
hh:mm:ss  TaskCreated           user      #2  Design  waits for #1
hh:mm:ss  TaskCompleted         user      #1  12 endpoints  unverified=yes
hh:mm:ss  TaskUnblocked         user      #2  by #1
hh:mm:ss  MessageSent           user      message 1  to lead  look at it
""")


NESTED = {"seconds": 0.5, "usage": {"input_tokens": 12, "cost_usd": None}, "names": ["ana", "bo"], "seen": True}


async def a_fact_of_facts(team: Team) -> None:
    async with team.join("ana") as session:
        await team.store.record_event(session.ref, EventKind.HOOK_REFUSED, {**NESTED, "why": "word " * 100})


def test_facts_are_shown_as_people_read_them_in_one_line_of_the_terminal(bullpen: Bullpen) -> None:
    bullpen.prepare(a_fact_of_facts)
    line = next(line for line in bullpen("events").lines if "HookRefused" in line)
    assert "  seconds=0.5  usage.input_tokens=12  names=ana,bo  seen=yes  why=word word" in line
    _, seen = bullpen.on_terminal("events", columns=110, NO_COLOR="1")
    line = next(line for line in seen.splitlines() if "HookRefused" in line)
    assert (len(line), line[-1]) == (110, "…")
    [event] = [json.loads(line) for line in bullpen("events", "--json").lines if "HookRefused" in line]
    assert event["data"] == {**NESTED, "why": "word " * 100}


def test_json_lines_can_be_read_on_from_any_position(bullpen: Bullpen) -> None:
    bullpen.prepare(some_work)
    every = [json.loads(line) for line in bullpen("events", "--json").lines]
    assert every[0]["kind"] == "TeamCreated"
    position = every[1]["position"]
    rest = [json.loads(line) for line in bullpen("events", "--json", "--after", position).lines]
    assert rest == every[2:]
    two = [json.loads(line) for line in bullpen("events", "--json", "--after", position, "--limit", "2").lines]
    assert two == every[2:4]
    assert bullpen("events", "--after", "now").out == ""


def test_a_follower_sees_what_another_process_does(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    follower = bullpen.start("events", "--follow", "--json")
    try:
        assert [json.loads(read_line(follower))["kind"] for _ in range(2)] == ["TeamCreated", "TaskCreated"]
        bullpen("task", "add", "Two")
        event = json.loads(read_line(follower))
        assert (event["kind"], event["data"]["subject"]) == ("TaskCreated", "Two")
    finally:
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=BOUND_SECONDS)
    assert (follower.returncode, out, err) == (130, b"", b"")


def test_a_follower_for_people_flushes_each_line(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    follower = bullpen.start("events", "-f", "--limit", "3")
    assert "TeamCreated" in read_line(follower)
    assert "TaskCreated" in read_line(follower)
    bullpen("task", "claim")
    assert "TaskClaimed" in read_line(follower)
    assert follower.communicate(timeout=BOUND_SECONDS) == (b"", b"")
    assert follower.returncode == 0


def test_a_follower_that_begins_now_sees_only_what_is_new(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One")
    position = json.loads(bullpen("events", "--json").lines[-1])["position"]
    follower = bullpen.start("events", "-f", "--json", "--limit", "1", "--after", position)
    bullpen("task", "claim")
    assert json.loads(read_line(follower))["kind"] == "TaskClaimed"
    assert follower.communicate(timeout=BOUND_SECONDS) == (b"", b"")
    assert follower.returncode == 0


def test_what_people_mistype_gets_one_line(bullpen: Bullpen) -> None:
    bullpen.prepare(some_work)
    assert bullpen.refused("events", "--limit", "-1") == "--limit is a number from 1 on, not '-1'"
    assert bullpen.refused("events", "nowhere") == "there is no team 'nowhere'; there are default"
    assert "position" in bullpen.refused("events", "--after", "xyz")
