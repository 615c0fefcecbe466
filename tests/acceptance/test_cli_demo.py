"""`bullpen demo`: the real command plays the whole story, and its log proves that it happened."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.command import BOUND_SECONDS, Bullpen, read_line
from tests.acceptance.tty import CTRL_C, Tty

AT_ONCE = ("--speed", "1000")
LAST_WORD = "Migration complete."
Event = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """What `--json` printed."""

    events: list[Event]
    report: dict[str, Any]
    kills: list[dict[str, Any]]
    directory: Path

    @classmethod
    def of(cls, printed: str, directory: Path) -> Played:
        entries = [json.loads(line) for line in printed.splitlines()]
        return cls(
            events=[entry for entry in entries if "kind" in entry],
            report=entries[-1]["report"],
            kills=[entry["chaos"] for entry in entries if "chaos" in entry],
            directory=directory,
        )

    def of_kind(self, kind: str, **data: Any) -> list[Event]:
        return [
            event
            for event in self.events
            if event["kind"] == kind and all(event["data"].get(key) == value for key, value in data.items())
        ]

    def place(self, kind: str, **data: Any) -> int:
        """Where in the log the only such event stands."""
        [event] = self.of_kind(kind, **data)
        return self.events.index(event)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_once(tmp_path_factory.getbasetemp(), "played")


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_once(tmp_path_factory.getbasetemp(), "survived", "--chaos")


def play_once(base: Path, name: str, *words: str) -> Played:
    """Whichever process of the tests comes first plays it for all of them."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    printed = folder / "printed.jsonl"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            ran = Bullpen(folder)("demo", "--json", "--keep", "result", *AT_ONCE, *words)
            assert ran.err == ""
            printed.write_text(ran.out)
    return Played.of(printed.read_text(), folder / "result")


def leaves_nothing(bullpen: Bullpen, temporary: Path) -> bool:
    """Neither files where it was called, at home or for a while, nor processes."""
    commands = [process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])]
    return (
        not list(bullpen.directory.iterdir())
        and not list(temporary.iterdir())
        and not any(str(temporary) in word for words in commands for word in words)
    )


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


# -- the story ---------------------------------------------------------------------------------------------


def test_the_team_does_four_dependent_tasks_and_says_that_it_is_complete(played: Played) -> None:
    assert played.report["outcome"] == "done"
    assert played.report["succeeded"]
    assert played.report["team"] == "rest-to-graphql"
    assert played.report["text"] == LAST_WORD
    owners = [(task["owner"], task["status"], task["blocked_by"]) for task in played.report["tasks"]]
    assert owners == [
        ("analyst", "completed", []),
        ("backend", "completed", [1]),
        ("backend", "completed", [2]),
        ("frontend", "completed", [3]),
    ]
    for number in (2, 3, 4):
        assert played.place("TaskCompleted", task=number - 1) < played.place("TaskClaimed", task=number)


def test_a_check_fails_and_passes_once_it_is_repaired(played: Played) -> None:
    checks = played.of_kind("TaskCheckFinished", task=3)
    assert [check["data"]["exit_code"] for check in checks] == [1, 0]
    assert checks[0]["data"]["text"] == "FAILED (failures=1)"
    assert [len(played.of_kind("TaskCheckFinished", task=number, exit_code=0)) for number in (1, 2, 4)] == [1, 1, 1]


def test_a_plan_is_submitted_and_approved_before_anything_is_changed(played: Played) -> None:
    approved = played.place("RequestClosed", request_kind="plan", asker="backend", approved=True)
    written = [
        played.events.index(event)
        for event in played.of_kind("ToolCallStarted", tool="write_file")
        if event["actor"] == "backend"
    ]
    assert written
    assert approved < min(written)


def test_the_teammates_write_to_each_other_and_every_message_arrives(played: Played) -> None:
    sent = [(event["actor"], event["data"]["to"]) for event in played.of_kind("MessageSent", type="message")]
    assert sent == [("user", "lead"), ("analyst", "backend"), ("backend", "frontend"), ("frontend", "backend")]
    for event in played.of_kind("MessageSent", type="message"):
        assert len(played.of_kind("MessageDelivered", message=event["data"]["message"])) == 1


def test_the_lead_names_the_team_and_deletes_it_when_all_is_done(played: Played) -> None:
    assert played.of_kind("TeamRenamed", name="rest-to-graphql")
    deleted = played.place("TeamDeleted")
    assert played.place("TaskCompleted", task=4) < deleted
    gone = [event["data"]["member"] for event in played.of_kind("MemberShutDown", reason="asked")]
    assert sorted(gone) == ["analyst", "backend", "frontend"]


def test_nobody_is_asked_for_more_than_the_script_has(played: Played, survived: Played) -> None:
    for story in (played, survived):
        assert not [event for event in story.of_kind("PhaseEnded") if event["data"]["result"] == "Noted."]
        assert not story.of_kind("PhaseEnded", why="error")


def test_the_application_that_is_kept_speaks_graphql_and_passes_its_own_tests(played: Played) -> None:
    assert played.report["check"]["exit_code"] == 0
    tests = run_python(played.directory, "-m", "unittest")
    assert "Ran 12 tests" in tests.stderr
    answer = run_python(played.directory, "-m", "bookshop", "{ books { title author { name } } }")
    assert json.loads(answer.stdout)["data"]["books"][0] == {"title": "Solaris", "author": {"name": "Stanislaw Lem"}}
    assert not (played.directory / "bookshop" / "api.py").exists()


def run_python(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=directory, capture_output=True, text=True, check=True)


def test_what_is_kept_can_be_looked_at_with_the_other_commands(played: Played, bullpen: Bullpen) -> None:
    listed = json.loads(bullpen("task", "list", "--team", "rest-to-graphql", "--json", cwd=played.directory).out)
    assert [task["status"] for task in listed] == ["completed"] * 4
    log = subprocess.run(["git", "log", "--format=%s"], cwd=played.directory, capture_output=True, text=True)
    assert log.stdout.splitlines() == ["A bookshop with a REST API"]


# -- chaos ---------------------------------------------------------------------------------------------------


def test_killed_in_the_middle_the_teammates_come_back_and_finish(survived: Played) -> None:
    [kill] = survived.kills
    assert kill["members"] == ["backend", "frontend"]
    lapsed = survived.of_kind("MemberLapsed", reason="its worker died")
    assert [event["data"]["member"] for event in lapsed] == kill["members"]
    [died] = survived.of_kind("WorkerLapsed")
    for name in kill["members"]:
        hosts = [event["data"]["worker"] for event in survived.of_kind("MemberHosted", member=name)]
        assert len(hosts) == 2
        assert hosts[0] == died["data"]["worker"] != hosts[1]
    assert survived.report["succeeded"]
    assert survived.report["text"] == LAST_WORD


def test_who_was_killed_goes_on_with_its_task_and_repeats_nothing(survived: Played) -> None:
    lapse = survived.place("MemberLapsed", member="backend", reason="its worker died")
    assert survived.place("TaskClaimed", task=3) < lapse < survived.place("TaskCompleted", task=3)
    assert survived.of_kind("TaskReserved", task=3, owner="backend")
    assert not survived.of_kind("TaskReleased")
    finished = [event["data"]["call"] for event in survived.of_kind("ToolCallFinished")]
    assert len(finished) == len(set(finished))
    assert not survived.of_kind("ToolCallFinished", state="interrupted")


def test_work_that_goes_with_its_directory_is_not_said_to_be_there(bullpen: Bullpen) -> None:
    shown = bullpen("demo", *AT_ONCE)
    [line] = [line for line in shown.lines if "bullpen-demo-" in line]
    assert line.endswith("(removed afterwards)")


def test_no_worker_outlives_the_demo(survived: Played) -> None:
    [kill] = survived.kills
    assert not psutil.pid_exists(kill["pid"])
    assert not psutil.pid_exists(kill["successor"])


# -- as people see it ------------------------------------------------------------------------------------------


def test_behind_a_pipe_it_tells_the_story_in_lines_and_leaves_nothing_behind(bullpen: Bullpen, temporary: Path) -> None:
    ran = bullpen("demo", *AT_ONCE, TMPDIR=str(temporary))
    assert ran.err == ""
    assert "\x1b" not in ran.out
    assert ran.lines[0] == "A bookshop moves from REST to GraphQL."
    told = [line[9:] for line in ran.lines]
    for line in (
        "lead      calls the team rest-to-graphql",
        "lead      adds #4 Update the frontend (after #3)",
        "backend   joins the team as backend",
        "backend   check of #3 failed (exit code 1): FAILED (failures=1)",
        "lead      Migration complete.",
    ):
        assert told.count(line) == 1, line
    assert ran.lines[-5:-3] == [
        "  OK",
        '  {"data": {"book": {"title": "Solaris", "author": {"name": "Stanislaw Lem"}}}}',
    ]
    assert leaves_nothing(bullpen, temporary)


def test_on_a_narrow_terminal_the_console_shows_the_story_whole(bullpen: Bullpen, temporary: Path) -> None:
    with Tty(bullpen, "demo", "--chaos", *AT_ONCE, columns=56, NO_COLOR="1", TMPDIR=str(temporary)) as tty:
        tty.until("── rest-to-graphql ")
        assert tty.ended() == 0
        seen = tty.text
    assert "\nlead      adds #3 Implement the resolvers (after #2)\n" in seen
    assert " # the worker of backend, frontend\n" in seen
    assert "\nbackend   is back on worker 3, with its memory\n" in seen
    assert f"\nlead      {LAST_WORD}\n" in seen
    assert "\n  OK\n" in seen
    assert leaves_nothing(bullpen, temporary)


@pytest.mark.parametrize("words", [(), ("--chaos",)], ids=["plain", "chaos"])
def test_ctrl_c_stops_it_and_cleans_up(bullpen: Bullpen, temporary: Path, words: tuple[str, ...]) -> None:
    with Tty(bullpen, "demo", *words, TMPDIR=str(temporary)) as tty:
        tty.until("takes #1")
        tty.type(CTRL_C)
        assert tty.ended() == 130
        seen = tty.text
    assert "stopped; nothing is left behind" in seen
    assert "Traceback" not in seen
    assert leaves_nothing(bullpen, temporary)


def test_a_signal_stops_it_and_cleans_up(bullpen: Bullpen, temporary: Path) -> None:
    process = bullpen.start("demo", TMPDIR=str(temporary))
    while "takes #1" not in read_line(process):
        pass
    process.terminate()
    _, errors = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    assert errors.decode() == "bullpen: stopped; nothing is left behind\n"
    assert leaves_nothing(bullpen, temporary)


# -- what people type ------------------------------------------------------------------------------------------


def test_live_without_a_key_says_what_to_set(bullpen: Bullpen) -> None:
    for key in [key for key in bullpen.environment if key.endswith(("_API_KEY", "_AUTH_TOKEN"))]:
        del bullpen.environment[key]
    line = bullpen.refused("demo", "--live")
    assert "ANTHROPIC_API_KEY" in line
    assert not list(bullpen.directory.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--speed", "light"), "--speed is slow, normal, fast or a number from 0.1 to 1000, not 'light'"),
        (("--speed", "0"), "--speed is slow"),
        (("--speed", "nan"), "--speed is slow"),
        (("--live", "--chaos"), "leave --live or --chaos out"),
        (("--store", "sqlite:///x.db"), "leave --store and --team out"),
        (("--keep", "."), "is not empty: --keep DIR names a new directory"),
        (("--keep", "mine.txt"), "mine.txt cannot be a directory of the demo: File exists"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_in_one_line(bullpen: Bullpen, words: tuple[str, ...], says: str) -> None:
    (bullpen.directory / "mine.txt").write_text("here before")
    assert says in bullpen.refused("demo", *words)
    assert [path.name for path in bullpen.directory.iterdir()] == ["mine.txt"]
