"""`bullpen run` and `bullpen resume` without a terminal: plain lines, JSON lines, the report, every way to end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from bullpen.domain.event import EventKind
from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line
from tests.acceptance.plays import ASKS, FINISHES, TEAM, WAITS, ask_team, at_work, play, write_script
from tests.support.removing import remove_in_use
from tests.support.troupe import until


def without_times(text: str) -> str:
    """Times and the columns that their widths move."""
    text = re.sub(r"busy \d+(\.\d)? s = [\d.]+ members", "busy N s = N members", text)
    return re.sub(r" {2,}", "  ", re.sub(r"\b\d+(\.\d)? s\b", "N s", text))


def test_news_as_they_come_and_a_report_at_the_end(bullpen: Bullpen) -> None:
    subprocess.run(["git", "init", "-q"], cwd=bullpen.directory, check=True)
    write_script(bullpen, FINISHES)
    subprocess.run(["git", "add", "-A"], cwd=bullpen.directory, check=True)
    news, _, report = play(bullpen, FINISHES).partition("\n\n")
    told: dict[str, list[str]] = {}
    for line in news.splitlines():
        _, name, words = line.split(maxsplit=2)
        told.setdefault(name, []).append(words)
    assert told == snapshot(
        {
            "user": ["→ lead: Analyse"],
            "lead": [
                "adds #1 Analyse the endpoints",
                "adds #2 Write them down (after #1)",
                "I wait.",
                "Migration complete.",
            ],
            "ana": [
                "joins the team as analyst",
                "takes #1 Analyse the endpoints",
                "✓ #1 Analyse the endpoints: three endpoints",
                "takes #2 Write them down",
                "check of #2 failed (exit code 1)",
                "check of #2 passed",
                "✓ #2 Write them down: notes.txt, three lines",
            ],
        }
    )
    assert without_times(report).replace(str(bullpen.directory), "HERE") == snapshot("""\
crew: done

  Migration complete.

#1 Analyse the endpoints  ✓ completed  ana
  three endpoints
#2 Write them down  ✓ completed  ana  checked: test -s notes.txt
  notes.txt, three lines

MEMBER  ROLE  TASKS  CALLS  TOKENS  COST  BUSY
lead  3  3,300  $0.0135  N s
ana  analyst  2  7  7,700  $0.0315  N s

time  N s  busy N s = N members at a time
spent  11,000 tokens, $0.0450 in 10 calls  30% of the tokens by the lead (coordination)
files  notes.txt
work  in HERE itself
""")


def test_json_lines_are_the_events_and_then_the_report(bullpen: Bullpen) -> None:
    lines = [json.loads(line) for line in play(bullpen, FINISHES, "--json").splitlines()]
    assert [line["kind"] for line in lines[:1]] == ["TeamCreated"]
    assert "TaskCompleted" in {line.get("kind") for line in lines}
    report = lines[-1]["report"]
    assert (report["outcome"], report["succeeded"], report["text"]) == ("done", True, "Migration complete.")
    assert [(task["id"], task["status"], task["owner"]) for task in report["tasks"]] == [
        (1, "completed", "ana"),
        (2, "completed", "ana"),
    ]
    assert report["tasks"][1]["evidence"]["exit_code"] == 0
    assert report["tokens"] == report["calls"] * 1100
    assert report["busy_seconds"] > 0
    assert 0 < report["coordination_share"] < 1


def test_a_team_without_a_name_is_called_after_its_goal(bullpen: Bullpen) -> None:
    model = write_script(bullpen, "[[members.lead]]\nsay = 'Hello.'\nrepeat = true\n")
    for _ in range(2):
        bullpen("run", "Greet", "the", "world!", "--model", model)
    assert [team["name"] for team in bullpen.read("team", "list")] == ["greet-the-world", "greet-the-world-2"]


# -- what stands in the way ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["x"], "no model is set: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one with --model PROVIDER:NAME; "
                "`bullpen demo` shows a team at work without any"),
        (["x", "--model", "gpt-5"], "'gpt-5' is not the name of a model: did you mean openai:gpt-5?"),
        (["x", "--model", "anthropic:claude"], "there is no key for anthropic:claude: set ANTHROPIC_API_KEY or "
                "ANTHROPIC_AUTH_TOKEN, or choose another model; `bullpen demo` needs none"),
        (["x", "--isolation", "none"], "--isolation is auto, worktree or shared, not 'none'"),
        (["x", "--max-cost", "free"], "--max-cost takes a number above 0, not 'free'"),
        (["x", "--max-tokens", "-1"], "--max-tokens takes a number above 0, not '-1'"),
        (["x", "--workspace", "/nowhere"], "/nowhere is not a directory: --workspace names where the team works"),
        (["  "], 'a goal is missing: bullpen run "what is to be reached"'),
        ([], "missing argument 'GOAL'; see `bullpen run --help`"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_said_in_one_line_before_anything_is_begun(
    bullpen: Bullpen, words: list[str], line: str
) -> None:
    keys = [key for key in bullpen.environment if key.endswith(("_API_KEY", "_AUTH_TOKEN"))]
    for key in keys:
        del bullpen.environment[key]
    assert bullpen.refused("run", *words) == line
    assert list(bullpen.directory.iterdir()) == []


def test_a_script_that_is_not_there_is_told(bullpen: Bullpen) -> None:
    assert "nothing.toml cannot be read" in bullpen.refused("run", "x", "--model", "scripted:nothing.toml")


def test_a_key_that_is_set_decides_the_model_and_that_is_said(bullpen: Bullpen) -> None:
    bullpen("task", "add", "One", "--team", TEAM)
    ran = bullpen("run", "x", "--team", TEAM, code=1, ANTHROPIC_API_KEY="k")
    assert ran.err.splitlines() == [
        "bullpen: model anthropic:claude-sonnet-5, because ANTHROPIC_API_KEY is set",
        f"bullpen: team '{TEAM}' has 1 unfinished task: `bullpen resume {TEAM}` goes on with it, "
        f"`bullpen team delete {TEAM}` ends it",
    ]


def test_a_second_run_of_a_team_is_refused_and_says_what_to_do(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        again = ("run", "x", "--team", TEAM, "--model", "scripted:script.toml")
        for words in (again, ("resume",)):
            line = bullpen.refused(*words, code=1)
            assert line.startswith(f"team '{TEAM}' is at work (worker 1 on ")
            assert line.endswith(f"`bullpen chat --team {TEAM}` talks with it, `bullpen watch {TEAM}` looks on")
        working.say()
        assert working.end()[0] == 0
    line = bullpen.refused(*again, code=1)
    assert (
        line == f"team '{TEAM}' exists: `bullpen resume {TEAM}` goes on with it, `bullpen team delete {TEAM}` ends it"
    )


# -- ways to end -----------------------------------------------------------------------------------


def test_a_question_ends_it_with_4_and_says_how_to_answer_and_go_on(bullpen: Bullpen) -> None:
    model = write_script(bullpen, ASKS)
    ran = bullpen("run", "Which port", "--team", TEAM, "--model", model, code=4)
    assert f"{TEAM}: waits for your answer\n  lead asks: Which port?\n" in ran.out
    assert ran.err == (
        f"bullpen: answer with `bullpen send lead TEXT --team {TEAM}`, then `bullpen resume {TEAM}` goes on\n"
    )
    bullpen("send", "lead", "8080")
    ran = bullpen("resume")
    assert f"{TEAM}: done\n\n  It is 8080.\n" in ran.out
    assert "Which port?" not in ran.out.partition(TEAM)[0]


@pytest.mark.parametrize(("check", "code"), [("test -s notes.txt", 0), ("test -e nothing; exit $?", 1)])
def test_the_check_decides(bullpen: Bullpen, check: str, code: int) -> None:
    shown = play(bullpen, FINISHES, "--check", check, code=code)
    assert (f"checked: {check}" if code == 0 else f"check failed (exit code 1): {check}") in shown
    assert (f"{TEAM}: done" if code == 0 else f"{TEAM}: the goal is not reached") in shown


def test_the_check_of_a_run_is_remembered_by_resume(bullpen: Bullpen) -> None:
    play(bullpen, FINISHES, "--check", "test -e more.txt", code=1)
    assert "check failed" in bullpen("resume", code=1).out
    (bullpen.directory / "more.txt").touch()
    assert "checked: test -e more.txt" in bullpen("resume").out


def test_a_spent_budget_ends_it_with_1_and_a_larger_one_goes_on(bullpen: Bullpen) -> None:
    ran_out = play(bullpen, FINISHES, "--max-cost", "0.14", code=1)
    assert f"{TEAM}: stopped: the budget is spent" in ran_out
    ran = bullpen("resume", "--max-cost", "5")
    assert f"{TEAM}: done" in ran.out


@pytest.mark.parametrize(("flag", "value"), [("--max-cost", "0.00001"), ("--max-tokens", "0.5")])
def test_a_budget_that_no_settings_allow_is_refused_and_leaves_the_team_as_it_was(
    bullpen: Bullpen, flag: str, value: str
) -> None:
    play(bullpen, FINISHES, "--max-cost", "0.14", code=1)
    assert "is allowed" in bullpen.refused("resume", flag, value)
    assert "is allowed" not in bullpen("resume", code=1).err


def test_spent_tokens_are_told_with_the_option_that_gives_more(bullpen: Bullpen) -> None:
    model = write_script(bullpen, FINISHES)
    ran = bullpen("run", "Analyse", "--team", TEAM, "--model", model, "--max-tokens", "100", code=1)
    assert ran.err == f"bullpen: `bullpen resume {TEAM} --max-tokens N` goes on with a larger one\n"


def test_failed_tasks_end_it_with_1(bullpen: Bullpen) -> None:
    script = WAITS.replace('status = "completed", result = "{{result}}"', 'status = "failed", result = "no way"')
    script = script.replace("cat word", "echo nothing")
    shown = play(bullpen, script, code=1)
    assert f"{TEAM}: ended, but 1 of 1 tasks are not completed" in shown


NEVER_ENDS = """
[[members.lead]]
calls = [{ name = "bash", arguments = { command = "sleep 1000", run_in_background = true } }]

[[members.lead]]
say = "I wait."
repeat = true
"""


def test_a_goal_that_takes_too_long_ends_it_with_1(bullpen: Bullpen) -> None:
    model = write_script(bullpen, NEVER_ENDS)
    ran = bullpen("run", "Wait", "--team", TEAM, "--model", model, "--max-minutes", "0.01", code=1)
    assert f"{TEAM}: stopped: the time is over" in ran.out
    assert ran.err == f"bullpen: `bullpen resume {TEAM}` goes on\n"


def test_a_store_that_is_removed_ends_it_with_3_and_one_line(bullpen: Bullpen) -> None:
    """As by `git clean -fdx`; while a member is in the middle of a command whose output lies there, too."""
    with at_work(bullpen) as working:
        remove_in_use(bullpen.directory / ".bullpen")
        working.say()
        code, _, err = working.end()
    assert code == 3
    assert err == (
        f"bullpen: {bullpen.directory}/.bullpen/bullpen.db was removed or replaced while it was in use, and its teams "
        "with it: `bullpen run GOAL` begins anew, or put it back and `bullpen resume` goes on\n"
    )
    assert not (bullpen.directory / ".bullpen").exists(), "an empty store would look as if there had been no team"


# -- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_once_rests_in_good_order_and_resume_goes_on(bullpen: Bullpen, number: signal.Signals) -> None:
    with at_work(bullpen) as working:
        working.process.send_signal(number)
        assert working.process.stderr is not None
        assert b"resting after the steps under way" in working.process.stderr.readline()
        # The step under way is finished first.
        working.say("in time")
        code, _, err = working.end()
        assert code == 130
        assert err == f"bullpen: {TEAM} rests, nothing is lost: `bullpen resume {TEAM}` goes on\n"
    members = {member["name"]: member for member in bullpen.read("team", "show")["members"]}
    assert (members["ana"]["status"], members["ana"]["worker"]) == ("wanted", None)
    # Where the machine was too slow for the step to end in time, it is taken again.
    (bullpen.directory / "word").unlink()
    (bullpen.directory / "word").write_text("in time")
    shown = bullpen("resume").out
    assert f"{TEAM}: done" in shown
    assert "in time" in bullpen("task", "show", "1").out


def test_ctrl_c_twice_ends_at_once_and_resume_goes_on(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        working.process.send_signal(signal.SIGINT)
        assert working.process.stderr is not None
        working.process.stderr.readline()
        working.process.send_signal(signal.SIGINT)
        code, _, err = working.end()
        assert code == 130
        assert err == f"bullpen: left at once: `bullpen resume {TEAM}` goes on\n"
    assert "dead, was working" in bullpen("team", "show").out
    (bullpen.directory / "word").unlink()
    (bullpen.directory / "word").write_text("now a file")
    assert f"{TEAM}: done" in bullpen("resume").out


def test_a_reader_who_goes_lets_the_team_rest(bullpen: Bullpen) -> None:
    with at_work(bullpen) as working:
        read_line(working.process)
        assert working.process.stdout is not None
        working.process.stdout.close()
        # There is more to tell only now: whoever was done before has met nobody who went.
        working.say()
        _, err = working.process.communicate(timeout=BOUND_SECONDS)
        assert (working.process.returncode, err) == (141, b"")


# -- resume ----------------------------------------------------------------------------------------


def test_resume_works_where_the_team_worked_wherever_it_is_typed(bullpen: Bullpen) -> None:
    below = bullpen.directory / "below"
    below.mkdir()
    with at_work(bullpen) as working:
        working.process.kill()
        working.end()
    (bullpen.directory / "word").unlink()
    (bullpen.directory / "word").write_text("found")
    assert f"{TEAM}: done" in bullpen("resume", cwd=below).out
    assert list(below.iterdir()) == []


def test_resume_with_another_model_goes_on_with_it_and_keeps_it(bullpen: Bullpen) -> None:
    refused = '[[members.lead]]\nfault = "unknown_model"\nsay = "never"\n'
    play(bullpen, refused, code=3)
    assert bullpen.refused("resume", "--model", "gpt-5") == (
        "'gpt-5' is not the name of a model: did you mean openai:gpt-5?"
    )
    bullpen("resume", code=3)
    (bullpen.directory / "other.toml").write_text(FINISHES)
    assert f"{TEAM}: done" in bullpen("resume", "--model", "scripted:other.toml").out
    assert bullpen.read("team", "show")["settings"]["model"] == f"scripted:{bullpen.directory / 'other.toml'}"


def test_resume_of_a_workspace_that_is_gone_says_what_to_do(bullpen: Bullpen, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    play(bullpen, ASKS, "--workspace", str(elsewhere), code=4)
    elsewhere.rmdir()
    assert bullpen.refused("resume") == (
        f"{elsewhere}, where team {TEAM} worked, is gone: say with --workspace DIR where it is now"
    )


def test_resume_of_a_deleted_team_is_refused(bullpen: Bullpen) -> None:
    play(bullpen, ASKS, code=4)
    bullpen("team", "delete", "--yes")
    assert bullpen.refused("resume", TEAM, code=1) == (
        f"team '{TEAM}' has been deleted: `bullpen run GOAL` begins another"
    )


# -- detached --------------------------------------------------------------------------------------


def test_a_detached_run_frees_the_terminal_and_says_who_hosts(bullpen: Bullpen) -> None:
    model = write_script(bullpen, FINISHES)
    ran = bullpen("run", "Analyse", "--team", TEAM, "--model", model, "--detach", "--json")
    answer = json.loads(ran.out)
    assert answer["team"] == TEAM

    async def finished(team: Team) -> None:
        await until(team, EventKind.TASK_COMPLETED, task=2)
        await until(team, EventKind.WORKER_STOPPED)

    ask_team(bullpen, finished)
    # It tells the rest, and its report, when its worker has stopped.
    by = time.monotonic() + BOUND_SECONDS
    while "Migration complete." not in (told := Path(answer["log"]).read_text()):
        assert time.monotonic() < by, told
        threading.Event().wait(0.05)
