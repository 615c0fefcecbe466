"""`bullpen spawn`, `interrupt`, `stop`, `pause` and `unpause`: each from any terminal, each says who hosts the team."""

from __future__ import annotations

import pytest

from bullpen.domain.event import EventKind
from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.acceptance.plays import TEAM, ask_team, at_work, write_script
from tests.support.troupe import until

NOBODY = "nobody hosts team default: `bullpen resume default` does"


async def begin(team: Team) -> None:
    await team.create_task("One")


# -- spawn -----------------------------------------------------------------------------------------


def test_a_teammate_is_wanted_with_all_that_was_said_of_it(bullpen: Bullpen) -> None:
    bullpen.prepare(begin)
    model = write_script(bullpen, "[[members.ana]]\nsay = 'Hello.'\n")
    words = ["--role", "analyst", "--prompt", "Count.", "--model", model, "--require-plan", "--task", "#1"]
    assert bullpen("spawn", "ana", *words).lines == ["ana joins the team as analyst", NOBODY]
    [ana] = [member for member in bullpen.read("team", "show")["members"] if member["name"] == "ana"]
    assert (ana["role"], ana["prompt"], ana["model"], ana["plan_required"]) == ("analyst", "Count.", model, True)
    assert bullpen.read("task", "show", "1")["owner"] == "ana"
    assert bullpen.read("spawn", "bea")["hosts"] == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["lead"], "'lead' is reserved"),
        (["a b"], "member name 'a b' is not allowed"),
        (["ana", "--model", "gpt-5"], "'gpt-5' is not the name of a model: did you mean openai:gpt-5?"),
        (["ana", "--task", "x"], "'x' is not a task number"),
        (["ana", "--task", "9"], "there is no task #9"),
        ([], "missing argument 'NAME'; see `bullpen spawn --help`"),
    ],
)
def test_wrong_words_spawn_nobody(bullpen: Bullpen, words: list[str], line: str) -> None:
    bullpen.prepare(begin)
    assert line in bullpen.refused("spawn", *words)
    assert [member["name"] for member in bullpen.read("team", "show")["members"]] == ["lead", "user"]


def test_who_is_spawned_while_the_team_works_is_hosted_by_it(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        answer = bullpen.read("spawn", "bea", "--prompt", "Say hello.")
        assert answer["outcome"] == "created"
        assert [host["pid"] for host in answer["hosts"]] == [working.process.pid]

        async def heard(team: Team) -> None:
            await until(team, EventKind.PHASE_ENDED, member="bea", result="Nothing to do for bea.")

        ask_team(bullpen, heard)
        working.say()
        assert working.end()[0] == 0


# -- interrupt -------------------------------------------------------------------------------------


def test_an_interrupted_member_drops_what_it_does_and_reads_the_text(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        ran = bullpen("interrupt", "ana", "leave", "it", "--", "--now")
        assert ran.lines[0] == "ana is interrupted, and reads your words"
        assert ran.lines[1].startswith(f"team {TEAM} is hosted by worker 1 on ")

        async def went_on(team: Team) -> None:
            await until(team, EventKind.MESSAGE_DELIVERED, to="ana")

        ask_team(bullpen, went_on)
        assert "leave it --now" in bullpen("log", "ana").out
        working.process.terminate()
        working.end()


def test_who_cannot_be_interrupted_is_told(bullpen: Bullpen) -> None:
    bullpen.prepare(begin)
    assert bullpen.refused("interrupt", "bob") == "there is no member 'bob' in team default; there are lead"
    assert bullpen.refused("interrupt", "user") == "that is you: name the lead or a teammate"
    bullpen("spawn", "ana")
    assert bullpen("interrupt", "ana").lines == ["ana does nothing just now (it is wanted)", NOBODY]


# -- stop ------------------------------------------------------------------------------------------


def test_stop_ends_everyone_and_the_run_and_resume_brings_them_back(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        ran = bullpen("stop", "--deadline", "0.5")
        assert ran.lines[:2] == [
            "lead is asked to shut down within 0.5 s (request 1)",
            "ana is asked to shut down within 0.5 s (request 2)",
        ]
        code, out, err = working.end()
    assert code == 1
    assert f"{TEAM}: stopped: everyone was asked to shut down" in out
    assert err.endswith(f"bullpen: `bullpen resume {TEAM}` goes on\n")
    assert bullpen("stop").lines[0] == "nobody is up: there is nothing to stop"
    (bullpen.directory / "word").unlink()
    (bullpen.directory / "word").write_text("at last")
    assert f"{TEAM}: done" in bullpen("resume").out
    assert bullpen.read("task", "show", "1")["owner"] == "ana"


def test_stop_of_one_leaves_the_others(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        bullpen("spawn", "bea", "--prompt", "Say hello.")

        async def hosted(team: Team) -> None:
            await until(team, EventKind.MEMBER_HOSTED, member="bea")

        # Else there is nobody to ask: she would be shut down at once.
        ask_team(bullpen, hosted)
        assert bullpen("stop", "bea").lines[0] == "bea is asked to shut down within 30 s (request 1)"

        async def gone(team: Team) -> None:
            await until(team, EventKind.MEMBER_SHUT_DOWN, member="bea")

        ask_team(bullpen, gone)
        working.say()
        assert working.end()[0] == 0


def test_who_died_with_its_host_is_stopped_at_once(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        working.process.kill()
        working.end()
    assert bullpen("stop", "ana").lines == [
        "ana is shut down: ana had no host",
        f"nobody hosts team {TEAM}: `bullpen resume {TEAM}` does",
    ]


def test_wrong_words_stop_nobody(bullpen: Bullpen) -> None:
    bullpen.prepare(begin)
    assert bullpen.refused("stop", "bob") == "there is no member 'bob' in team default; there are lead"
    assert bullpen.refused("stop", "user") == "the human cannot be shut down"
    assert bullpen.refused("stop", "--deadline", "soon") == "--deadline takes a number of at least 0, not 'soon'"


# -- pause -----------------------------------------------------------------------------------------


def test_a_paused_team_asks_no_model_until_it_goes_on(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        assert bullpen("unpause").lines[0] == f"team {TEAM} is not paused"
        assert bullpen("pause").lines[0] == f"team {TEAM} is paused; `bullpen unpause --team {TEAM}` lets it go on"
        assert bullpen("pause").lines[0].startswith(f"team {TEAM} is paused already")
        assert "until `bullpen unpause`" in bullpen("team", "show").out
        before = bullpen.read("cost")["total"]["calls"]
        working.say()

        async def finished(team: Team) -> None:
            await until(team, EventKind.TOOL_CALL_FINISHED, tool="bash")

        ask_team(bullpen, finished)
        assert bullpen.read("cost")["total"]["calls"] == before
        assert bullpen("unpause").lines[0] == f"team {TEAM} goes on"
        assert working.end()[0] == 0


def test_a_deleted_team_is_not_steered(bullpen: Bullpen) -> None:
    bullpen.prepare(begin)
    bullpen("team", "delete", "--yes")
    gone = "team 'default' has been deleted; its board and mail can still be read"
    for words in (["spawn", "ana"], ["interrupt", "lead"], ["stop"], ["stop", "lead"], ["pause"], ["unpause"]):
        assert bullpen.refused(*words, "--team", "default", code=1) == gone
