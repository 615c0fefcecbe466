"""`bullpen clean`: what is no longer needed goes, what is nowhere else stays."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from bullpen.team import Team
from bullpen.workspaces.worktrees import Worktrees
from tests.acceptance.command import Bullpen
from tests.acceptance.homes import Home, three_done
from tests.acceptance.scripts import FREE
from tests.acceptance.test_cli_isolation import model_that_runs
from tests.acceptance.working import working
from tests.support.repositories import Work, git, write
from tests.support.repository import fingerprint


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def worktree(home: Home, work: Work, name: str) -> Path:
    return asyncio.run(Worktrees(work.trunk, home.repository / ".bullpen").make(name)).root


def refs(home: Home) -> list[str]:
    listed = git(home.repository, "for-each-ref", "--format=%(refname)", "refs/heads/bullpen/", "refs/bullpen/")
    return listed.split()


def worktrees(home: Home, work: Work) -> list[str]:
    """Beside the user's own, and that in which the test makes commits."""
    lines = git(home.repository, "worktree", "list", "--porcelain").splitlines()
    own = {str(home.repository), str(work.place)}
    return [line[9:] for line in lines if line.startswith("worktree ") and line[9:] not in own]


def check_sound(home: Home, work: Work) -> None:
    assert git(home.repository, "fsck", "--full", "--no-dangling") == ""
    assert git(home.repository, "worktree", "prune", "--dry-run", "--verbose") == ""
    for place in worktrees(home, work):
        assert Path(place).is_dir()


def test_what_was_applied_is_cleaned_up(home: Home) -> None:
    work = home.begin(three_done)
    first = work.commit({"a.txt": "ONE\n"}, task=1)
    root = worktree(home, work, "ana")
    worktree(home, work, ".integration")
    write(root, {"more.txt": "m\n"})
    work.commit({"more.txt": "m\n"}, task=3)
    git(home.repository, "update-ref", work.trunk.member_ref("ana"), first)
    home.bullpen("apply")
    before = fingerprint(home.repository)
    would = home.bullpen("clean", "--dry-run").out
    assert would == "demo: would remove 2 worktrees, bullpen/demo/ana, bullpen/demo\n"
    assert root.exists()
    assert home.bullpen("clean").out == "demo: removed 2 worktrees, bullpen/demo/ana, bullpen/demo\n"
    assert refs(home) == []
    assert worktrees(home, work) == []
    assert not (home.repository / ".bullpen/worktrees").exists()
    assert not (home.repository / ".git/bullpen-apply").exists()
    assert fingerprint(home.repository) == before
    check_sound(home, work)
    assert home.bullpen("clean").out == "nothing to clean up\n"


@pytest.mark.parametrize("how", ["merge", "squash", "patch", "by hand"])
def test_what_is_on_a_branch_of_the_users_is_elsewhere_however_it_came_there(home: Home, how: str) -> None:
    work = home.begin(three_done)
    work.commit({"a.txt": "ONE\n"}, task=1)
    work.commit({"new.txt": "n\n"}, task=2)
    if how == "by hand":
        git(home.repository, "cherry-pick", f"{work.trunk.base}..bullpen/demo")
    else:
        home.bullpen("apply", f"--{how}")
    if how == "patch":
        # It is in the user's files, and would be gone with the next `git checkout .`.
        assert "kept bullpen/demo: 2 commits, and that is nowhere else" in home.bullpen("clean").out
        git(home.repository, "add", "-A")
        git(home.repository, "commit", "-qm", "taken")
    write(home.repository, {"a.txt": "and then the user went on\n"})
    if how in ("merge", "squash"):
        git(home.repository, "commit", "-qam", "on")
    assert home.bullpen("clean").out == "demo: removed bullpen/demo\n"
    assert refs(home) == []


def test_what_is_nowhere_else_is_kept_and_said(home: Home) -> None:
    work = home.begin(three_done)
    work.commit({"a.txt": "ONE\n"}, task=1)
    root = worktree(home, work, "ana")
    write(root, {"half.txt": "half\n", "a.txt": "ONE and a half\n"})
    tip = work.tip
    cleaned = home.bullpen.read("clean")
    [kept] = [ref for ref in refs(home) if "kept-" in ref]
    assert cleaned == [
        {
            "team": "demo",
            "team_id": 1,
            "trunk": "bullpen/demo",
            "worktrees": [str(root)],
            "refs": ["bullpen/demo/ana"],
            "lost": {},
            "kept": {
                kept.removeprefix("refs/"): "what was left unfinished",
                "bullpen/demo": "1 commit",
            },
        }
    ]
    assert git(home.repository, "show", f"{kept}:half.txt") == "half"
    assert work.tip == tip
    assert worktrees(home, work) == []
    check_sound(home, work)
    ran = home.bullpen("clean", "demo")
    assert "demo: kept bullpen/demo: 1 commit, and that is nowhere else" in ran.lines
    assert "demo: `bullpen apply demo` takes what is integrated, `bullpen clean demo --force` lets all go" in ran.lines
    assert "--force is for one team" in home.bullpen.refused("clean", "--force")
    ran = home.bullpen("clean", "demo", "--force")
    assert f"demo: lost with it, bullpen/demo ({tip[:10]}): 1 commit" in ran.lines
    assert refs(home) == []
    assert git(home.repository, "branch", "back", tip) == ""


def test_what_a_team_at_work_or_unfinished_has_is_left_alone(home: Home) -> None:
    async def unfinished(team: Team) -> None:
        await team.create_task("Open")

    work = home.begin(unfinished)
    root = worktree(home, work, "ana")
    assert "left alone: team demo has 1 unfinished task" in home.bullpen("clean").err
    assert "`bullpen team delete demo` ends it" in home.bullpen.refused("clean", "demo", code=1)
    assert root.exists()
    home.bullpen("team", "delete", "demo", "--yes")
    assert home.bullpen("clean", "demo").out == "demo: removed 1 worktree, bullpen/demo\n"


def test_a_live_team_is_never_cleaned_up(bullpen: Bullpen, tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.acceptance.test_cli_isolation import wait_for_half_done
    from tests.support.repository import make_repository

    make_repository(bullpen.directory, {"notes": "n\n"})
    model = model_that_runs("echo half > half; sleep 600", tmp_path_factory.mktemp("script"))
    process = bullpen.start("run", "Go", "--team", "crew", "--model", model)
    try:
        wait_for_half_done(bullpen)
        assert "is at work" in bullpen.refused("clean", "crew", "--force", code=1)
        assert "left alone: team 'crew' is at work" in bullpen("clean").err
    finally:
        process.kill()
        process.communicate()
    assert (bullpen.directory / ".bullpen/worktrees/crew/ana/half").exists()


def test_what_somebody_removed_by_hand_or_a_kill_left_is_cleaned_up(home: Home) -> None:
    work = home.begin()
    gone, half, locked = (worktree(home, work, name) for name in ("gone", "half", "locked"))
    shutil.rmtree(gone)
    (home.repository / ".bullpen/worktrees/demo/.ready/half").unlink()
    (half / "a.txt").unlink()
    (locked / "shut").mkdir()
    (locked / "shut/x").write_text("x")
    (locked / "shut").chmod(0)
    (home.repository / ".bullpen/worktrees/demo/never").mkdir()
    ran = home.bullpen("clean", "--dry-run")
    if os.getuid() != 0:
        assert "Permission denied" in ran.out or "locked" in ran.out
    ran = home.bullpen("clean", "demo", "--force")
    assert not (home.repository / ".bullpen/worktrees").exists()
    assert worktrees(home, work) == []
    check_sound(home, work)


def test_a_branch_that_a_later_team_has_is_not_touched(home: Home) -> None:
    work = home.begin()
    git(home.repository, "update-ref", "-d", work.trunk.ref)
    home.bullpen("team", "delete", "demo", "--yes")
    later = home.begin(three_done)
    later.commit({"a.txt": "ONE\n"}, task=1)
    assert home.bullpen("clean", "#1").out == "nothing to clean up\n"
    assert refs(home) == ["refs/heads/bullpen/demo"]
    home.bullpen("apply", "demo")
    assert home.bullpen("clean").out == "demo: removed bullpen/demo\n"


def test_a_team_that_was_cleaned_up_begins_anew_from_what_the_user_has_now(
    bullpen: Bullpen, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.support.repository import files_at, make_repository

    make_repository(bullpen.directory, {"notes": "first\n"})
    model = model_that_runs("cat notes >> made", tmp_path_factory.mktemp("script"))
    bullpen("run", "Go", "--team", "crew", "--model", model)
    bullpen("apply")
    bullpen("clean")
    assert "the branch bullpen/crew is gone" in bullpen.refused("diff")
    write(bullpen.directory, {"notes": "second\n"})
    git(bullpen.directory, "commit", "-qam", "second")
    bullpen("task", "add", "Once more", "--team", "crew")
    before = fingerprint(bullpen.directory)
    ran = bullpen("resume", "crew", code=None)
    assert "each member works in a worktree of its own, on bullpen/crew, from main" in ran.err
    assert files_at(bullpen.directory, "bullpen/crew")["notes"] == "second"
    assert fingerprint(bullpen.directory) == before


def test_who_idles_on_a_worker_leaves_its_worktree_before_that_goes(home: Home, tmp_path: Path) -> None:
    (home.repository / "bullpen.toml").write_text(FREE)
    model = model_that_runs("pwd", tmp_path)
    with working(home.bullpen) as worker:
        home.bullpen("run", "Look", "--team", "demo", "--model", model, "--isolation", "worktree", "--detach")
        worker.hear_all("taken", {"lead"})
        home.bullpen("watch", "demo")
        assert "demo: removed" in home.bullpen("clean", "demo").out
        worker.hear_all("left", {"lead", "ana"})
    assert refs(home) == []
    assert not (home.repository / ".bullpen/worktrees").exists()
