"""`bullpen team`."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys

import pytest
from inline_snapshot import snapshot

from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line


async def one_task(team: Team) -> None:
    await team.create_task("Analyse")


def test_teams_are_listed(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "graphql", goal="Migrate REST to GraphQL")
    bullpen.prepare(one_task, "docs")
    bullpen("team", "delete", "docs", "--yes")
    assert [line.split()[0] for line in bullpen("team", "list").lines] == ["TEAM", "graphql"]
    assert "Migrate REST to GraphQL" in bullpen("team", "list").out
    assert [team["name"] for team in bullpen.read("team", "list", "--all")] == ["graphql", "docs"]
    assert bullpen.read("team", "list")[0]["tasks"] == {"pending": 1}
    assert "(#2)" in bullpen("team", "list", "--all").out


def test_no_teams_is_no_error(bullpen: Bullpen) -> None:
    assert bullpen("team", "list").out == "no teams\n"
    assert bullpen.read("team", "list") == []
    assert list(bullpen.directory.iterdir()) == []


def test_show_tells_how_the_team_is(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        await team.create_task("Analyse", active_form="Analysing")
        await team.create_task("Design", blocked_by=[1])
        await team.spawn("ana", role="analyst")
        async with team.join("cat", role="tester") as cat:
            await cat.claim_task(1)
            await cat.send("lead", "hello")
            await cat.submit_plan("first read, then write")
            shown = (await asyncio.to_thread(bullpen, "team", "show")).out
            assert re.sub(r"\d+ s\b", "N s", re.sub(r"\S+:\d+\n", "host:pid\n", shown)) == snapshot("""\
graphql
goal
  Migrate
  REST
tasks       1 blocked, 1 in progress
unread mail lead 2
request     plan 1: cat asks lead, N s ago  first read, then write

MEMBER  ROLE     STATUS   SINCE  TASK          HOST
lead             idle     N s                  nobody
user                      N s
ana     analyst  wanted   N s                  nobody
cat     tester   working  N s    #1 Analysing  host:pid
""")
            document = await asyncio.to_thread(bullpen.read, "team", "show", "graphql")
            members = {member["name"]: member for member in document["members"]}
            assert members["cat"]["liveness"] == "alive"
            assert members["cat"]["current_task"] == 1
            assert members["ana"]["worker"] is None
            assert document["tasks"] == {"blocked": 1, "in_progress": 1}
            assert document["undelivered"] == {"lead": 2}
            assert [request["kind"] for request in document["requests"]] == ["plan"]

    bullpen.prepare(work, "graphql", goal="Migrate\nREST")


CAT = """
import asyncio, sys
from bullpen import open_team

async def main():
    async with open_team(store=sys.argv[1]) as team, team.join("cat"):
        print("here", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_dead_are_told_from_the_idle(bullpen: Bullpen) -> None:
    process = subprocess.Popen([sys.executable, "-c", CAT, bullpen.store], stdout=subprocess.PIPE)
    try:
        assert read_line(process) == "here\n"
        assert "dead" not in bullpen("team", "show").out
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=BOUND_SECONDS)
    assert "dead, was working" in bullpen("team", "show").out
    assert bullpen("send", "cat", "hi").out == (
        "1 to cat: queued; its process is dead, it is read when another one hosts it\n"
    )


# -- delete --------------------------------------------------------------------------------


def test_delete_wants_to_be_confirmed_and_cannot_ask_without_a_terminal(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task)
    assert bullpen.refused("team", "delete") == "deleting 'default' wants to be confirmed: add --yes"
    assert bullpen("team", "delete", "--yes").out == "deleted default\n"


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("y\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1), ("\x04", 130, 1), ("\x03", 130, 1)],
)
def test_delete_asks_on_a_terminal(bullpen: Bullpen, answer: str, code: int, left: int) -> None:
    bullpen.prepare(one_task)
    ended, seen = bullpen.on_terminal("team", "delete", types=answer, when="[y/N]")
    assert "Delete team default with 1 unfinished task? [y/N]" in seen
    assert ended == code
    without = "left without an answer: " if code == 130 else ""
    assert ("deleted default" if code == 0 else f"\nbullpen: {without}nothing was deleted") in seen.replace("\r", "")
    assert len(bullpen.read("team", "list")) == left


def test_a_deleted_team_is_read_and_not_written(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "docs")
    bullpen("team", "delete", "docs", "-y")
    assert "deleted" in bullpen("team", "show", "docs").lines[0]
    assert "Analyse" in bullpen("task", "list", "--team", "docs").out
    assert bullpen("events", "docs").lines[-1].split()[1] == "TeamDeleted"
    gone = "team 'docs' has been deleted; its board and mail can still be read"
    for words in (
        ["task", "update", "1", "--subject", "x"],
        ["task", "claim"],
        ["task", "done", "1"],
        ["send", "lead", "x"],
    ):
        assert bullpen.refused(*words, "--team", "docs", code=1) == gone
    assert bullpen.refused("team", "delete", "docs", "--yes", code=1) == gone
    assert bullpen.refused("team", "show").startswith("there is no live team in ")


def test_a_new_team_of_the_same_name_is_another_team(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "docs")
    bullpen("team", "delete", "docs", "--yes")
    assert "created team 'docs'" in bullpen("task", "add", "Anew", "--team", "docs").err
    assert [task["subject"] for task in bullpen.read("task", "list")] == ["Anew"]
    assert [task["subject"] for task in bullpen.read("task", "list", "--team", "#1")] == ["Analyse"]


def test_who_must_stop_is_named(bullpen: Bullpen) -> None:
    async def work(team: Team) -> None:
        async with team.join("cat"):
            ran = await asyncio.to_thread(bullpen, "team", "delete", "--yes")
            assert ran.lines == ["deleted default", "asked to stop within 30 s: cat"]

    bullpen.prepare(work)


# -- which team ----------------------------------------------------------------------------


def test_of_several_teams_one_must_be_named(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "docs")
    bullpen.prepare(one_task, "graphql")
    line = "there are several teams, say which with --team NAME: docs, graphql"
    for words in (
        ["task", "list"],
        ["task", "add", "x"],
        ["send", "lead", "x"],
        ["events"],
        ["team", "delete", "--yes"],
    ):
        assert bullpen.refused(*words) == line
    assert bullpen("--team", "docs", "task", "list").code == 0
    assert bullpen("task", "list", "--team=DOCS").code == 0
    assert bullpen("task", "list", BULLPEN_TEAM="docs").code == 0
    assert bullpen("team", "show", "graphql", BULLPEN_TEAM="docs").lines[0] == "graphql"
    assert bullpen.refused("team", "show", "graphql", "--team", "docs") == (
        "two teams are named, 'graphql' and --team 'docs': say which"
    )


def test_an_unknown_team_is_told_with_those_there_are(bullpen: Bullpen) -> None:
    bullpen.prepare(one_task, "docs")
    assert bullpen.refused("team", "show", "dosc") == "there is no team 'dosc'; there are docs"
    assert bullpen.refused("task", "list", "--team", "../x") == "there is no team '../x'; there are docs"
    assert "is not allowed" in bullpen.refused("task", "add", "x", "--team", "../x")
