"""`bullpen apply` and `bullpen apply --undo`."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from bullpen.team import Team
from tests.acceptance.command import BOUND_SECONDS, Bullpen
from tests.acceptance.homes import Home, three_done
from tests.support.repositories import git, write
from tests.support.repository import fingerprint


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def half_done(team: Team) -> None:
    await three_done(team)
    await team.create_task("Task 4")
    await team.create_task("Task 5")
    await team.claim_task(5)
    await team.fail_task(5, reason="no way")


def test_what_was_made_is_taken_and_given_back(home: Home) -> None:
    work = home.begin(three_done)
    work.commit({"a.txt": "ONE\ntwo\nthree\n"}, task=1)
    work.commit({"new.txt": "new\n"}, task=2, member="ben")
    before = fingerprint(home.repository)
    would = home.bullpen("apply", "--dry-run").out
    assert "would change 2 files" in would
    assert "2 commits of bullpen/demo would come to main as a merge" in would
    assert fingerprint(home.repository) == before
    ran = home.bullpen("apply")
    assert ran.lines[0] == f"changed 2 files in {home.repository}: a.txt, new.txt"
    assert ran.lines[1].startswith("2 commits of bullpen/demo came to main as a merge: ")
    assert ran.lines[2] == "`bullpen apply demo --undo` gives it back"
    assert ran.err == ""
    assert git(home.repository, "log", "-1", "--format=%an %s") == "Uma User Merge bullpen/demo: Make it good"
    assert (home.repository / "new.txt").read_text() == "new\n"
    assert "nothing to do: main has what is on bullpen/demo since" in home.bullpen("apply").out
    undone = home.bullpen("apply", "--undo").lines
    assert undone[0] == f"gave back 2 files in {home.repository}: a.txt, new.txt"
    assert undone[1] == f"main is at {work.trunk.base[:7]} again"
    assert fingerprint(home.repository) == before
    assert "nothing of bullpen/demo is applied" in home.bullpen.refused("apply", "--undo")


def test_what_is_there_already_is_only_committed_and_that_is_said(home: Home) -> None:
    home.begin(three_done).commit({"new.txt": "new\n"}, task=1)
    write(home.repository, {"new.txt": "new\n"})
    ran = home.bullpen("apply")
    assert ran.lines[0].startswith(f"changed no file in {home.repository}: ")
    assert "not committed" not in ran.out
    assert git(home.repository, "status", "--porcelain") == ""
    assert home.bullpen("apply", "--undo").lines[0].startswith("main is at ")


def test_for_programs(home: Home) -> None:
    work = home.begin(three_done)
    made = work.commit({"a.txt": "ONE\n"}, task=1)
    head = git(home.repository, "rev-parse", "HEAD")
    would = home.bullpen.read("apply", "--dry-run")
    assert (would["applied"], would["commit"], would["files"]) == (False, None, ["a.txt"])
    applied = home.bullpen.read("apply", "--squash", "-m", "Take it")
    assert applied == {
        "team": "demo",
        "applied": True,
        "mode": "squash",
        "repository": str(home.repository),
        "branch": "main",
        "before": head,
        "commit": git(home.repository, "rev-parse", "HEAD"),
        "commits": [made],
        "files": ["a.txt"],
    }
    assert git(home.repository, "log", "-1", "--format=%s") == "Take it"
    again = home.bullpen.read("apply")
    assert (again["applied"], again["files"], again["commits"]) == (False, [], [])
    assert home.bullpen.read("apply", "--undo") == {
        "team": "demo",
        "undone": "squash",
        "branch": "main",
        "head": head,
        "files": ["a.txt"],
    }
    ran = home.bullpen("apply", "--patch", "--squash", "--json", code=2)
    assert json.loads(ran.err)["error"] == "--merge, --squash or --patch: only one of them"


def test_what_is_not_finished_is_said_and_what_there_is_can_be_taken(home: Home) -> None:
    work = home.begin(half_done)
    first = work.commit({"a.txt": "ONE\n"}, task=1)
    in_work = work.make({"half.txt": "half\n"}, member="ben", on=first)
    git(home.repository, "update-ref", work.trunk.member_ref("ben"), in_work)
    ran = home.bullpen("apply", "--patch")
    assert ran.err.splitlines() == [
        "bullpen: not finished: #4 Task 4",
        "bullpen: failed: #5 Task 5",
        "bullpen: ben has work that is not on bullpen/demo: `git diff bullpen/demo bullpen/demo/ben` shows it",
    ]
    assert "nothing is committed or staged" in ran.out
    assert git(home.repository, "--no-optional-locks", "status", "--porcelain") == " M a.txt"


def test_one_task_or_what_one_member_made_can_be_taken(home: Home) -> None:
    work = home.begin(three_done)
    work.commit({"a.txt": "ONE\n"}, task=1)
    work.commit({"b.txt": "B\n"}, task=2, member="ben")
    home.bullpen("apply", "--task", "2", "--squash")
    assert (home.repository / "b.txt").read_text() == "B\n"
    assert (home.repository / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert "nothing to do" in home.bullpen("apply", "--member", "ben").out
    home.bullpen("apply", "--member", "ANA", "--patch")
    assert (home.repository / "a.txt").read_text() == "ONE\n"
    assert "nothing of that is on bullpen/demo yet" in home.bullpen.refused("apply", "--task", "3")
    assert "without other options" in home.bullpen.refused("apply", "--undo", "--task", "2")


def test_nothing_made_and_a_branch_that_is_gone_are_one_line(home: Home) -> None:
    work = home.begin()
    assert home.bullpen("apply").out == "nothing is integrated on bullpen/demo yet\n"
    git(home.repository, "update-ref", "-d", work.trunk.ref)
    assert "the branch bullpen/demo is gone" in home.bullpen.refused("apply")


def test_unsaved_work_in_the_way_is_one_line(home: Home) -> None:
    home.begin().commit({"a.txt": "ONE\n"})
    write(home.repository, {"a.txt": "mine\n"})
    before = fingerprint(home.repository)
    assert home.bullpen.refused("apply", code=1) == (
        "not applied, for you have unsaved work in a.txt: commit it, stash it or move it away, then apply"
    )
    assert fingerprint(home.repository) == before


def test_a_deleted_team_and_a_moved_repository_are_applied_all_the_same(home: Home) -> None:
    work = home.begin()
    work.commit({"a.txt": "ONE\n"})
    home.bullpen("team", "delete", "demo", "--yes")
    moved = home.repository.with_name("moved")
    shutil.move(home.repository, moved)
    elsewhere = home.repository.parent
    bullpen = Bullpen(moved)
    bullpen.environment |= {"HOME": str(elsewhere), "BULLPEN_STORE": bullpen.store}
    assert "is not on this machine" in bullpen.refused("apply", "demo", cwd=elsewhere)
    assert "+ONE" in bullpen("diff", "demo").out
    assert f"changed 1 file in {moved}: a.txt" in bullpen("apply", "demo").out
    bullpen("apply", "demo", "--undo")
    assert (moved / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_begun_in_a_subdirectory_the_whole_repository_is_meant(home: Home) -> None:
    work = home.begin(prefix="sub")
    work.commit({"sub/x.txt": "x\n", "a.txt": "ONE\n"})
    (home.repository / "sub").mkdir()
    home.bullpen("apply", cwd=home.repository / "sub")
    assert (home.repository / "sub/x.txt").read_text() == "x\n"
    assert (home.repository / "a.txt").read_text() == "ONE\n"


def test_killed_in_the_middle_it_is_undone_or_repeated(home: Home) -> None:
    """With kill -9, as soon as the first of many files has changed; the user's own git finds no lock that stays."""
    write(home.repository, {f"many/f{number}": f"{number}\n" for number in range(1500)})
    git(home.repository, "add", "-A")
    git(home.repository, "commit", "-qm", "many")
    write(home.repository, {"a.txt": "unsaved\n"})
    before = fingerprint(home.repository)
    home.begin().commit({f"many/f{number}": f"{number}!\n" for number in range(1500)})
    first, last = home.repository / "many/f0", home.repository / "many/f999"
    for ending in ("--undo", "--merge"):
        process = home.bullpen.start("apply")
        while first.read_text() == "0\n":
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=BOUND_SECONDS)
        assert last.read_text() == "999\n", "it was faster than the kill"
        ran = home.bullpen("apply", ending)
        if ending == "--merge":
            assert "an apply of bullpen/demo that was cut off has been taken back first" in ran.err
            assert last.read_text() == "999!\n"
            home.bullpen("apply", "--undo")
        assert not list((home.repository / ".git").glob("*bullpen*"))
        assert fingerprint(home.repository) == before
        assert git(home.repository, "--no-optional-locks", "status", "--porcelain") == " M a.txt"
