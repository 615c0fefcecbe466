"""`bullpen diff`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.team import Team
from tests.acceptance.command import Bullpen
from tests.acceptance.homes import Home, three_done
from tests.support.repositories import git


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Three tasks integrated, for tests that change nothing; ben has something in work."""
    home = Home(tmp_path_factory.mktemp("home"))
    work = home.begin(three_done)
    work.commit({"a.txt": "ONE\ntwo\nthree\n"}, task=1)
    second = work.commit({"ü b/new file.txt": "new\n", "bin": b"\0\1\2"}, task=2, member="ben")
    work.commit({"a.txt": "ONE\nTWO\nthree\n", "b.txt": None}, task=3)
    git(home.repository, "update-ref", work.trunk.member_ref("ana"), second)
    in_work = work.make({"half.txt": "half\n"}, member="ben", on=second)
    git(home.repository, "update-ref", work.trunk.member_ref("ben"), in_work)
    return home


def test_the_diff_is_what_the_team_made_and_can_be_applied_as_a_patch(home: Home) -> None:
    shown = home.bullpen("diff").out
    assert "+ONE\n+TWO\n" in shown
    assert "\x1b" not in shown
    assert shown == git(home.repository, "diff", "main", "bullpen/demo") + "\n"


def test_stat_says_which_files(home: Home) -> None:
    shown = home.bullpen("diff", "demo", "--stat").out
    assert "4 files changed" in shown
    assert "+ONE" not in shown


def test_one_task_is_shown_with_its_message(home: Home) -> None:
    shown = home.bullpen("diff", "--task", "#2").out
    assert "Author: ben <ben@bullpen.invalid>" in shown
    assert "Bullpen-Task: 2/1" in shown
    assert "+new" in shown
    assert "ONE" not in shown


def test_what_a_member_made_and_what_it_has_in_work_are_told_apart(home: Home) -> None:
    ran = home.bullpen("diff", "--member", "BEN")
    assert ran.out.index("+new") < ran.out.index("+half")
    assert ran.err == (
        "bullpen: ben has work that is not on bullpen/demo yet, shown last: bullpen/demo/ben, 1 commit\n"
    )
    assert home.bullpen("diff", "--member", "ana").err == ""


def test_commits_for_programs(home: Home) -> None:
    commits = home.bullpen.read("diff")
    assert [(commit["task"], commit["attempt"], commit["member"]) for commit in commits] == [
        (1, 1, "ana"),
        (2, 1, "ben"),
        (3, 1, "ana"),
    ]
    assert commits[1] == {
        "commit": git(home.repository, "rev-parse", "bullpen/demo~1"),
        "task": 2,
        "attempt": 1,
        "member": "ben",
        "subject": "work for 2",
        "files": ["bin", "ü b/new file.txt"],
        "insertions": 1,
        "deletions": 0,
        "integrated": True,
        "ref": None,
        "worktree": None,
    }
    assert [commit["integrated"] for commit in home.bullpen.read("diff", "--member", "ben")] == [True, False]
    assert home.bullpen.read("diff", "--member", "ben", "--task", "1") == []


def test_on_a_terminal_it_has_colours_and_goes_through_the_pager(home: Home) -> None:
    code, seen = home.bullpen.on_terminal("diff", GIT_PAGER="sed s/^/paged:/")
    assert code == 0
    assert "paged:" in seen
    assert "\x1b[32m+" in seen
    _, without = home.bullpen.on_terminal("diff", GIT_PAGER="cat", NO_COLOR="1")
    assert "\x1b" not in without


def test_what_does_not_exist_is_said(home: Home) -> None:
    assert "no task #9" in home.bullpen.refused("diff", "--task", "9")
    assert "there is no member 'zoe'" in home.bullpen.refused("diff", "--member", "zoe")
    assert "there is no team 'other'" in home.bullpen.refused("diff", "other")


def test_a_deleted_team_can_still_be_looked_at(tmp_path: Path) -> None:
    home = Home(tmp_path)
    work = home.begin()
    assert home.bullpen("diff").err == "bullpen: nothing is integrated on bullpen/demo yet\n"
    work.commit({"c.txt": "c\n"}, task=1)
    home.bullpen("team", "delete", "demo", "--yes")
    assert "+c" in home.bullpen("diff", "demo").out
    assert "+c" in home.bullpen("diff", "#1").out


def test_a_team_without_a_trunk_says_where_it_worked(bullpen: Bullpen) -> None:
    async def shared(team: Team) -> None:
        await team.remember(workspace="/somewhere")

    bullpen.prepare(shared)
    assert bullpen.refused("diff") == "team default worked in /somewhere itself: what it made is there already"


def test_a_team_that_worked_in_the_repository_itself_points_to_git(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def shared(team: Team) -> None:
        await team.remember(workspace=str(home.repository))

    home.bullpen.prepare(shared)
    assert home.bullpen.refused("diff").endswith("there already, and `git diff` shows what is not committed")


def test_a_branch_that_is_gone_or_another_teams_is_not_mistaken(tmp_path: Path) -> None:
    home = Home(tmp_path)
    work = home.begin()
    git(home.repository, "update-ref", "-d", work.trunk.ref)
    assert "the branch bullpen/demo is gone" in home.bullpen.refused("diff")
    home.bullpen("team", "delete", "demo", "--yes")
    home.begin().commit({"c.txt": "c\n"})
    assert "+c" in home.bullpen("diff", "#2").out
    assert "belongs to a later team, #2" in home.bullpen.refused("diff", "#1")


def test_the_pager_of_the_one_who_looks_keeps_ctrl_c_to_itself(home: Home) -> None:
    """A pager that is interrupted once and then goes on: what it prints afterwards is still seen."""
    pager = "sh -c 'trap \"echo caught\" INT; cat >/dev/null; kill -INT 0; echo went on'"
    code, seen = home.bullpen.on_terminal("diff", GIT_PAGER=pager)
    assert "caught" in seen
    assert "went on" in seen
    assert "Traceback" not in seen
    assert code in (0, 130)
