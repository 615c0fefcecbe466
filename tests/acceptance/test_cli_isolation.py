"""`bullpen run` in a git repository, as a person with uncommitted work meets it: what it says and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.acceptance.command import BOUND_SECONDS, Bullpen
from tests.acceptance.plays import TEAM
from tests.acceptance.stuck import stuck_git, wait_for
from tests.acceptance.tty import CTRL_C, CTRL_D, Tty
from tests.support.repository import files_at, fingerprint, git, make_repository, write

SCRIPT = """
[[members.lead]]
calls = [
    { name = "TaskCreate", arguments = { subject = "Write it down" } },
    { name = "Task", arguments = { name = "ana", prompt = "Take what is on the board." } },
]
[[members.lead]]
when = { context = "All tasks are finished" }
say = "All is done."
[[members.lead]]
say = "I wait."
repeat = true
[[members.ana]]
when = { newest_matches = "<task id=|interrupted" }
repeat = true
calls = [{ name = "bash", arguments = { command = "COMMAND" } }]
[[members.ana]]
when = { newest = "[exit code 0]" }
repeat = true
calls = [{ name = "TaskUpdate", arguments = { taskId = "1", status = "completed", result = "made it" } }]
[[members."*"]]
say = "Nothing more."
repeat = true
"""


@pytest.fixture
def model(bullpen: Bullpen, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Outside the repository."""
    return model_that_runs("cat notes >> made; echo ana >> made", tmp_path_factory.mktemp("script"))


def model_that_runs(command: str, directory: Path) -> str:
    (directory / "script.toml").write_text(SCRIPT.replace("COMMAND", command))
    return f"scripted:{directory}/script.toml"


@pytest.fixture
def repository(bullpen: Bullpen) -> Path:
    """With work that is not committed."""
    make_repository(bullpen.directory, {"notes": "committed\n"})
    write(bullpen.directory, {"notes": "unsaved\n", "new": "n\n"})
    return bullpen.directory


def run(bullpen: Bullpen, model: str, *words: str) -> str:
    """What it said on both ways out."""
    ran = bullpen("run", "Go", "--team", TEAM, "--model", model, *words)
    return ran.err + ran.out


def made(repository: Path) -> str:
    return files_at(repository, f"bullpen/{TEAM}")["made"]


def test_a_dirty_tree_is_left_alone_and_the_team_begins_at_head(bullpen: Bullpen, repository: Path, model: str) -> None:
    before = fingerprint(repository)
    said = run(bullpen, model)
    assert "each member works in a worktree of its own, on bullpen/crew, from main (" in said
    assert "without your 2 unsaved files (`bullpen run --include-dirty` begins with what is unsaved, too)\n" in said
    assert "1 commit on bullpen/crew: `bullpen diff crew` shows it, `bullpen apply crew` takes it" in said
    assert made(repository) == "committed\nana"
    assert fingerprint(repository) == before


def test_unsaved_work_is_taken_along_if_that_is_wanted(bullpen: Bullpen, repository: Path, model: str) -> None:
    before = fingerprint(repository)
    assert "with your 2 unsaved files" in run(bullpen, model, "--include-dirty")
    assert made(repository) == "unsaved\nana"
    assert fingerprint(repository) == before


@pytest.mark.parametrize(("answer", "expected"), [("y", "unsaved\nana"), ("n", "committed\nana")])
def test_on_a_terminal_it_is_asked(bullpen: Bullpen, repository: Path, model: str, answer: str, expected: str) -> None:
    with Tty(bullpen, "run", "Go", "--team", TEAM, "--model", model, columns=200) as tty:
        tty.until("not committed. Shall the team begin with these changes, too?")
        tty.enter(answer)
        tty.until("1 commit on bullpen/crew")
    assert made(repository) == expected
    assert "--include-dirty" not in tty.text, "who has just been asked needs no option"


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_who_leaves_at_the_question_is_gone_at_once_and_nothing_is_made(
    bullpen: Bullpen, repository: Path, model: str, key: str
) -> None:
    before = fingerprint(repository)
    with Tty(bullpen, "run", "Go", "--team", TEAM, "--model", model, columns=200) as tty:
        tty.until("[y/N]:")
        tty.type(key)
        assert tty.ended() == 130
        assert tty.lines[-1] == "bullpen: left without an answer: nothing was begun"
        assert "Traceback" not in tty.text
    assert fingerprint(repository) == before
    assert not (repository / ".bullpen").exists()


def test_what_is_no_answer_is_asked_again(bullpen: Bullpen, repository: Path, model: str) -> None:
    with Tty(bullpen, "run", "Go", "--team", TEAM, "--model", model, columns=200) as tty:
        tty.until("[y/N]:")
        tty.enter("perhaps")
        tty.until("y or n? [y/N]:")
        tty.enter("Yes")
        tty.until("1 commit on bullpen/crew")
    assert made(repository) == "unsaved\nana"


def test_shared_works_in_the_directory_itself(bullpen: Bullpen, repository: Path, model: str) -> None:
    words = ("run", "Go", "--team", TEAM, "--model", model, "--isolation", "shared")
    assert "--include-dirty: with --isolation shared" in bullpen.refused(*words, "--include-dirty")
    said = run(bullpen, model, "--isolation", "shared")
    assert "worktree" not in said
    assert f"in {repository} itself" in said
    assert (repository / "made").read_text() == "unsaved\nana\n"


def test_elsewhere_all_work_in_the_directory_unless_that_is_refused(bullpen: Bullpen, model: str) -> None:
    write(bullpen.directory, {"notes": "here\n"})
    words = ("run", "Go", "--team", TEAM, "--model", model)
    assert "it is no git repository" in bullpen.refused(*words, "--isolation", "worktree")
    assert "--isolation is auto, worktree or shared, not 'apart'" in bullpen.refused(*words, "--isolation", "apart")
    assert "worktree" not in run(bullpen, model)
    assert (bullpen.directory / "made").read_text() == "here\nana\n"


def test_a_repository_without_a_commit_and_a_bare_one_get_one_line(bullpen: Bullpen, model: str) -> None:
    git(bullpen.directory, "init", "-q", "--bare", "bare")
    words = ("run", "Go", "--team", TEAM, "--model", model)
    assert "clone it" in bullpen.refused(*words, "--workspace", "bare")
    git(bullpen.directory, "init", "-q")
    write(bullpen.directory, {"notes": "here\n"})
    assert "the repository has no commit yet" in run(bullpen, model)


def test_in_a_subdirectory_members_stand_where_the_user_stood(bullpen: Bullpen, model: str) -> None:
    make_repository(bullpen.directory, {"sub/notes": "below\n", "top": "t\n"})
    ran = bullpen("run", "Go", "--team", TEAM, "--model", model, cwd=bullpen.directory / "sub")
    assert "1 commit on bullpen/crew" in ran.out
    assert files_at(bullpen.directory, "bullpen/crew")["sub/made"] == "below\nana"


def test_the_report_for_programs_names_the_branch(bullpen: Bullpen, repository: Path, model: str) -> None:
    ran = bullpen("run", "Go", "--team", TEAM, "--model", model, "--json")
    report = json.loads(ran.lines[-1])["report"]
    assert (report["branch"], report["commits"], report["files"]) == ("bullpen/crew", 1, ["made"])
    assert report["apply"] == "bullpen apply crew"


def test_a_team_killed_in_the_middle_of_its_work_goes_on_in_the_same_worktree(
    bullpen: Bullpen, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = fingerprint(repository)
    gate = tmp_path_factory.mktemp("gate") / "gate"
    os.mkfifo(gate)
    command = f"test -e half || {{ echo half > half; cat {gate}; }}; cat half > made"
    model = model_that_runs(command, gate.parent)
    process = bullpen.start("run", "Go", "--team", TEAM, "--model", model)
    wait_for_half_done(bullpen)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=BOUND_SECONDS)
    ran = bullpen("resume", TEAM)
    assert "1 commit on bullpen/crew" in ran.out
    assert made(repository) == "half"
    assert fingerprint(repository) == before


def wait_for_half_done(bullpen: Bullpen) -> None:
    """Until ana's command has begun and left its mark."""
    mark = bullpen.directory / ".bullpen/worktrees" / TEAM / "ana/half"
    until = time.monotonic() + BOUND_SECONDS
    # The file is there a moment before what is written into it.
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < until, "its command has not begun"
        threading.Event().wait(0.01)


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_team_that_was_cut_off_before_it_had_a_branch_works_apart_all_the_same(
    bullpen: Bullpen, repository: Path, model: str, tmp_path_factory: pytest.TempPathFactory, command: str
) -> None:
    before = fingerprint(repository)
    programs, mark = stuck_git(tmp_path_factory.mktemp("programs"), at="'update-ref refs/heads/'")
    words = ("run", "Write it down", "--include-dirty") if command == "run" else ("chat",)
    with Tty(bullpen, *words, "--team", TEAM, "--model", model, PATH=f"{programs}:{os.environ['PATH']}") as tty:
        if command == "chat":
            tty.until("Shall the team begin with these changes, too?")
            tty.enter("y")
        wait_for(mark)
        tty.kill()
    assert bullpen.read("team", "show", TEAM)["members"][0]["incarnation"] == 0
    if command == "chat":
        bullpen("send", "lead", "Write it down")
    # As it was to begin: with what is unsaved.
    ran = bullpen("resume", TEAM)
    assert "a worktree of its own" in ran.err
    assert "with your 2 unsaved files" in ran.err
    assert "All is done." in ran.out
    assert fingerprint(repository) == before


def test_who_leaves_before_the_team_has_a_branch_is_told_how_it_begins_and_its_goal_is_not_lost(
    bullpen: Bullpen, repository: Path, model: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs, mark = stuck_git(tmp_path_factory.mktemp("programs"), at="'update-ref refs/heads/'")
    process = bullpen.start("run", "Go", "--team", TEAM, "--model", model, PATH=f"{programs}:{os.environ['PATH']}")
    wait_for(mark)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    assert err.decode() == "bullpen: crew has not begun yet: `bullpen resume crew` begins it\n"
    assert "All is done." in bullpen("resume", TEAM).out
    assert [mail["content"] for mail in bullpen.read("inbox", "lead") if mail["sender"] == "user"] == ["Go"]


def test_a_team_that_began_with_its_board_works_apart_from_its_first_run_on(
    bullpen: Bullpen, repository: Path, model: str
) -> None:
    before = fingerprint(repository)
    bullpen("task", "add", "Write it down", "--team", TEAM)
    bullpen("spawn", "ana", "--team", TEAM, "--prompt", "Take what is on the board.")
    ran = bullpen("resume", TEAM, BULLPEN_MODEL=model, code=None)
    assert "each member works in a worktree of its own, on bullpen/crew" in ran.err
    assert made(repository) == "committed\nana"
    assert "each member works" not in bullpen("resume", TEAM, BULLPEN_MODEL=model, code=None).err
    assert fingerprint(repository) == before


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_what_lies_unfinished_in_a_worktree_is_shown_once_nobody_works_there(
    bullpen: Bullpen, repository: Path, tmp_path_factory: pytest.TempPathFactory, ending: signal.Signals
) -> None:
    place = repository / ".bullpen/worktrees" / TEAM / "ana"
    model = model_that_runs("echo half > half; sleep 60", tmp_path_factory.mktemp("script"))
    process = bullpen.start("run", "Go", "--team", TEAM, "--model", model)
    wait_for_half_done(bullpen)
    assert f"what ana has not handed in yet lies in {place}" in bullpen("diff", "--member", "ana").err
    process.send_signal(ending)
    process.communicate(timeout=BOUND_SECONDS)
    shown = bullpen("diff", "--member", "ANA")
    assert f"ana has work that is not on bullpen/crew yet, shown last: {place}, unfinished" in shown.err
    assert "+half" in shown.out
    [unfinished] = bullpen.read("diff", "--member", "ana")
    assert (unfinished["integrated"], unfinished["worktree"]) == (False, str(place))


def test_who_leaves_in_the_middle_is_told_where_to_look_once_there_is_something(
    bullpen: Bullpen, repository: Path, model: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run(bullpen, model)
    bullpen("task", "add", "More of it")
    slow = model_that_runs("echo half > half; sleep 60", tmp_path_factory.mktemp("slow"))
    process = bullpen.start("resume", TEAM, "--model", slow)
    wait_for_half_done(bullpen)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert b"`bullpen resume crew` goes on; `bullpen diff crew` shows what is on bullpen/crew so far" in err
    assert b"`bullpen apply crew` takes it" in err


def test_who_leaves_before_anything_is_integrated_is_not_sent_to_look_for_it(
    bullpen: Bullpen, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = model_that_runs("echo half > half; sleep 60", tmp_path_factory.mktemp("script"))
    process = bullpen.start("run", "Go", "--team", TEAM, "--model", model)
    wait_for_half_done(bullpen)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_SECONDS)
    assert err.decode().splitlines()[-1] == "bullpen: crew rests, nothing is lost: `bullpen resume crew` goes on"


def test_a_setup_that_was_set_right_is_what_resume_goes_on_with(bullpen: Bullpen, repository: Path, model: str) -> None:
    write(repository, {"bullpen.toml": '[worktree]\nsetup = "exit 7"\n'})
    ran = bullpen("run", "Go", "--team", TEAM, "--model", model, code=None)
    assert "worktree.setup `exit 7` exits 7" in ran.out + ran.err
    write(repository, {"bullpen.toml": '[worktree]\nsetup = "true"\n'})
    ran = bullpen("resume", TEAM)
    assert f"worktree.setup: not as before, taken anew from {repository}/bullpen.toml" in ran.err
    assert "1 commit on bullpen/crew" in ran.out
    assert "taken anew" not in bullpen("resume", TEAM).err


def test_a_hook_that_was_set_right_is_what_resume_goes_on_with(bullpen: Bullpen, repository: Path, model: str) -> None:
    write(repository, {"bullpen.toml": '[hooks]\ntask_created = "exit 1"\n'})
    bullpen("run", "Go", "--team", TEAM, "--model", model, "--max-minutes", "0.02", code=None)
    write(repository, {"bullpen.toml": '[hooks]\ntask_created = "touch seen"\n'})
    ran = bullpen("resume", TEAM, "--max-minutes", "0.02", code=None)
    assert "hooks.task_created: not as before, taken anew" in ran.err
    assert "hook task_created, outside the sandbox: touch seen" in ran.err


def test_hooks_that_members_could_have_written_are_not_taken_unasked(
    bullpen: Bullpen, repository: Path, model: str
) -> None:
    run(bullpen, model, "--isolation", "shared")
    write(repository, {"bullpen.toml": '[hooks]\nteammate_idle = "touch seen"\n'})
    ran = bullpen("resume", TEAM, code=None)
    assert "members could write that file: not taken" in ran.err
    assert "hook teammate_idle" not in ran.err
    assert not (repository / "seen").exists()
