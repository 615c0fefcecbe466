"""Clones: each incarnation in a directory of its own, what it has in work found wherever its member goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.sandboxes.bubblewrap import probe
from bullpen.workspace import Conflicting
from bullpen.workspaces.clones import Clones
from bullpen.workspaces.git import Answer, Git, GitFailed
from bullpen.workspaces.integration import Integration
from bullpen.workspaces.mirror import Mirror, RemoteAway
from bullpen.workspaces.remote import Hold
from tests.support.repository import files_at, git, write
from tests.workspaces.conftest import Site, make_bare, open_far_site
from tests.workspaces.test_worktree import gathered

NOTHING: frozenset[str] = frozenset()
BOUND_SECONDS = 60


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_far_site(make_bare(tmp_path), tmp_path / "here") as opened:
        yield opened


@pytest.fixture
def there(here: Site, tmp_path: Path) -> Site:
    """Another machine."""
    return here.machine(tmp_path / "there")


def refs(site: Site) -> list[str]:
    return git(site.repository, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/bullpen/team").split()


def clones(site: Site) -> list[str]:
    trees = site.trees
    assert isinstance(trees, Clones)
    return [str(clone) for clone in trees.find_all()]


def left(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir() if path.name != ".git"}


# -- across machines ---------------------------------------------------------------------------------------------------


async def test_what_is_handed_in_here_is_integrated_there_and_its_name_goes(here: Site, there: Site) -> None:
    work = await gathered(here, "ana", {"a": "1\n"})
    assert f"ana.work-{work.commit[:10]}" in refs(here)
    assert not await there.integrate(there.submission("ana", work))
    assert files_at(here.repository, "bullpen/team")["a"] == "1"
    assert not [ref for ref in refs(here) if ".work-" in ref]
    ben = await here.worktree("ben")
    assert (ben.root / "a").read_text() == "1\n"


async def test_of_two_machines_one_advances_the_trunk_and_the_other_rebases_upon_it(here: Site, there: Site) -> None:
    works = {name: await gathered(here, name, {name: f"{name}\n"}) for name in ("ana", "ben")}
    decided = []
    for machine, (name, work) in zip((here, there), works.items(), strict=True):
        integration = Integration(machine.trunk, machine.origin)
        submission = here.submission(name, work)
        tip = await integration.newest()
        assert await integration.obtain(submission)
        rebased = await integration.rebase(submission, tip)
        decided.append((integration, rebased, await integration.commit(submission, rebased), submission))
    outcomes = await asyncio.gather(
        *(integration.advance(rebased, commit) for integration, rebased, commit, _ in decided)
    )
    assert sorted(outcomes) == [False, True]
    late = decided[outcomes.index(False)][3]
    assert not await there.integrate(late)
    assert {"ana", "ben"} <= files_at(here.repository, "bullpen/team").keys()


async def test_a_member_that_was_saved_goes_on_there_with_its_files_as_they_were(here: Site, there: Site) -> None:
    ana = await here.worktree("ana")
    write(ana.root, {"a": "half\n", "new/half": "h\n", "x.log": "ignored\n"})
    (ana.root / "b").unlink()
    git(ana.root, "commit", "-qam", "my own")
    write(ana.root, {"a": "more than half\n"})
    status, log = git(ana.root, "status", "--porcelain"), git(ana.root, "log", "--format=%s")
    assert await ana.save()
    again = await there.worktree("ana", 2)
    assert left(again.root / "new") == {"half": "h\n"}
    assert (again.root / "a").read_text() == "more than half\n"
    assert git(again.root, "log", "--format=%s") == log
    git(again.root, "reset", "-q")
    assert git(again.root, "status", "--porcelain") == status
    work = await again.gather("whole\n")
    assert work is not None
    assert files_at(here.repository, work.commit) == {"a": "more than half", "new/half": "h", ".gitignore": "*.log"}


async def test_saved_conflict_markers_are_still_to_be_resolved_there(here: Site, there: Site) -> None:
    ben = await here.worktree("ben")
    write(ben.root, {"a": "one\nBEN\nthree\n"})
    assert not await here.integrate(here.submission("ana", await gathered(here, "ana", {"a": "one\nANA\nthree\n"})))
    with pytest.raises(Conflicting):
        await ben.gather("ben\n")
    assert await ben.save()
    again = await there.worktree("ben", 2)
    with pytest.raises(Conflicting, match="still conflict markers in a"):
        await again.gather("ben\n")
    write(again.root, {"a": "both\n"})
    assert await again.gather("ben\n") is not None


async def test_gathered_again_there_it_is_the_same_commit(here: Site, there: Site) -> None:
    work = await gathered(here, "ana", {"a": "1\n"})
    again = await there.worktree("ana", 2)
    assert await again.gather("said otherwise\n") == work


async def test_what_one_keeps_here_another_finds_there(here: Site, there: Site) -> None:
    ana = await here.worktree("ana")
    write(ana.root, {"a": "half\n"})
    kept = await ana.keep()
    ben = await there.worktree("ben")
    assert git(ben.root, "show", f"{kept}:a") == "half"
    write(ana.root, {"a": "another half\n"})
    kept = await ana.begin_anew(integrated=NOTHING)
    await ben.begin_anew(integrated=NOTHING)
    assert git(ben.root, "show", f"{kept}:a") == "another half"


async def test_who_begins_something_new_has_nothing_old_there(here: Site, there: Site) -> None:
    work = await gathered(here, "ana", {"a": "1\n"})
    assert not await there.integrate(there.submission("ana", work))
    ana = await here.worktree("ana")
    assert await ana.begin_anew(integrated=frozenset({work.commit})) is None
    again = await there.worktree("ana", 2)
    assert git(again.root, "rev-parse", "HEAD") == git(here.repository, "rev-parse", "bullpen/team")
    assert git(again.root, "status", "--porcelain") == ""


# -- one incarnation after the other -----------------------------------------------------------------------------------


async def test_who_was_killed_is_followed_by_another_directory_with_the_same_files(here: Site) -> None:
    first = await here.worktree("ana")
    write(first.root, {"a": "half\n", "new": "n\n"})
    second = await here.worktree("ana", 2)
    assert second.root != first.root
    assert (second.root / "a").read_text() == "half\n"
    assert (second.root / "new").read_text() == "n\n"
    assert clones(here) == ["ana.2"]
    assert [ref for ref in refs(here) if ".kept-" in ref] == []
    # It is safe there as well: the machine may die now.
    assert files_at(here.repository, "refs/bullpen/team/ana")["new"] == "n"


async def test_a_predecessor_that_still_lives_saves_and_hands_in_nothing(here: Site, there: Site) -> None:
    first = await here.worktree("ana")
    write(first.root, {"a": "of the first\n"})
    assert await first.save()
    second = await there.worktree("ana", 2)
    taken_over = git(here.repository, "rev-parse", "refs/bullpen/team/ana")
    write(first.root, {"a": "of a zombie\n"})
    assert not await first.save()
    with pytest.raises(GitFailed, match="moved"):
        await first.gather("zombie\n")
    assert git(here.repository, "rev-parse", "refs/bullpen/team/ana") == taken_over
    write(second.root, {"b": "of the second\n"})
    work = await second.gather("second\n")
    assert work is not None
    assert files_at(here.repository, work.commit)["a"] == "of the first"
    assert git(here.repository, "rev-parse", "refs/bullpen/team/ana") == work.commit


async def test_what_a_zombie_saves_just_before_it_is_taken_over_is_not_lost(here: Site, there: Site) -> None:
    """It pushes between the look of its successor and the take-over, which is tried again then."""
    first = await here.worktree("ana")
    write(first.root, {"a": "early\n"})
    assert await first.save()
    trees = there.trees
    assert isinstance(trees, Clones)
    mirror = trees._mirror
    push = mirror.push
    saved: list[bool] = []

    async def late(*updates: object) -> dict[str, str]:
        if not saved:
            write(first.root, {"a": "late\n"})
            saved.append(await first.save())
        return await push(*updates)  # type: ignore[arg-type]

    mirror.push = late  # type: ignore[method-assign]
    made = await trees.make("ana", 2, lambda made: there._sandbox("ana", made))
    assert saved == [True]
    assert (made.root / "a").read_text() == "late\n"


async def test_files_that_a_machine_had_when_its_member_went_on_elsewhere_are_kept(here: Site, there: Site) -> None:
    first = await here.worktree("ana")
    write(first.root, {"a": "saved\n"})
    assert await first.save()
    write(first.root, {"a": "not saved\n"})
    second = await there.worktree("ana", 2)
    assert (second.root / "a").read_text() == "saved\n"
    third = await here.worktree("ana", 3)
    assert (third.root / "a").read_text() == "saved\n"
    assert clones(here) == ["ana.3"]
    [kept] = [ref for ref in refs(here) if ".kept-" in ref]
    assert files_at(here.repository, f"refs/bullpen/team/{kept}")["a"] == "not saved"


async def test_a_clone_that_a_kill_left_half_made_is_made_again(here: Site) -> None:
    ana = await here.worktree("ana")
    shutil.rmtree(ana.root)
    assert (await here.worktree("ana")).root.exists()
    half = here.trees
    assert isinstance(half, Clones)
    (half.directory / "ben.1").mkdir()
    assert (await here.worktree("ben")).root.joinpath("a").exists()


async def test_who_leaves_in_good_order_leaves_no_clone(here: Site) -> None:
    made = await here.trees.make("ana", 1, lambda made: here._sandbox("ana", made))
    await here.trees.leave(made)
    assert clones(here) == []
    assert git(here.repository, "worktree", "list").count("\n") == 0


async def test_a_clone_whose_pointer_was_changed_removes_nothing_elsewhere(here: Site, tmp_path: Path) -> None:
    ana, precious = await here.worktree("ana"), tmp_path / "precious"
    write(precious, {"file": "mine\n"})
    (ana.root / ".git").write_text(f"gitdir: {precious}\n")
    await here.worktree("ana", 2)
    assert (precious / "file").exists()


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_a_repository_that_is_away_is_waited_for_and_that_is_said_once(here: Site) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    here.tell = told.put
    ana = await here.worktree("ana")
    write(ana.root, {"a": "1\n"})
    away = here.repository.with_name("away.git")
    here.repository.rename(away)
    gathering = asyncio.create_task(ana.gather("in spite of it\n"))
    async with asyncio.timeout(BOUND_SECONDS):
        said = await told.get()
        assert f"{here.trunk.repository} cannot be read" in said
        assert not await ana.save()
        away.rename(here.repository)
        assert await gathering is not None
    assert told.empty()


async def test_a_repository_that_refuses_says_why(here: Site) -> None:
    submission = here.submission("ana", await gathered(here, "ana", {"a": "1\n"}))
    hook = here.repository / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho closed on sundays >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(RemoteAway, match="pre-receive hook declined"):
        await here.integrate(submission)
    hook.unlink()
    assert not await here.integrate(submission)


async def test_an_answer_that_was_lost_on_its_way_is_no_take_over(here: Site) -> None:
    """The push arrived, and its member was killed before it knew."""
    ana = await here.worktree("ana")
    write(ana.root, {"a": "1\n"})
    assert await ana.save()
    trees = here.trees
    assert isinstance(trees, Clones)
    hold = Hold(trees.directory / ".hold" / "ana.1")
    hold.write(here.trunk.base, *hold.read())
    write(ana.root, {"a": "2\n"})
    assert await ana.save()
    assert files_at(here.repository, "refs/bullpen/team/ana")["a"] == "2"


async def test_a_ref_that_somebody_removed_is_made_again(here: Site) -> None:
    ana = await here.worktree("ana")
    write(ana.root, {"a": "1\n"})
    assert await ana.save()
    git(here.repository, "update-ref", "-d", "refs/bullpen/team/ana")
    assert await ana.gather("whole\n") is not None
    assert "ana" in refs(here)


async def test_work_that_is_nowhere_any_more_is_not_waited_for(here: Site, there: Site) -> None:
    work = await gathered(here, "ana", {"a": "1\n"})
    git(here.repository, "update-ref", "-d", f"refs/bullpen/team/ana.work-{work.commit[:10]}")
    integration = Integration(there.trunk, there.origin)
    await integration.newest()
    assert not await integration.obtain(there.submission("ana", work))


async def test_a_lock_that_a_killed_process_left_in_the_copy_is_taken_away(here: Site) -> None:
    mirror = Mirror(here.trunk.repository, here.state)
    await here.worktree("ana")
    lock = mirror.git.directory / "refs/heads/bullpen/team.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    seed = here.repository.with_name("seed")
    git(seed, "commit", "-q", "--allow-empty", "-m", "more")
    git(seed, "push", "-q", str(here.repository), "HEAD:bullpen/team")
    assert await here.origin.newest() == git(here.repository, "rev-parse", "bullpen/team")


async def test_a_fetch_that_stumbles_over_a_clone_that_is_half_there_is_tried_again(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.worktree("ana")
    half = Mirror(here.trunk.repository, here.state).git.directory / "worktrees/half"
    write(half, {"gitdir": "/nowhere/.git\n", "HEAD": f"{here.trunk.base}\n", "commondir": ""})
    ask = Git.ask
    stumbled: list[str] = []

    async def finish_then(self: Git, *arguments: str, **rest: Any) -> Answer:
        answer = await ask(self, *arguments, **rest)
        if arguments[0] == "fetch" and answer.exit_code != 0:
            stumbled.append(answer.complaint)
            write(half, {"commondir": "../..\n"})
        return answer

    monkeypatch.setattr(Git, "ask", finish_then)
    assert await here.origin.newest() == here.trunk.base
    assert len(stumbled) == 1


# -- what a member sees ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not probe().works, reason=f"no bubblewrap: {probe().reason}")
async def test_in_a_sandbox_without_network_git_works_and_neither_address_nor_state_is_seen(tmp_path: Path) -> None:
    async with open_far_site(make_bare(tmp_path), tmp_path / "state", kind="bubblewrap") as site:
        ana = await site.worktree("ana")
        mirror = Mirror(site.trunk.repository, site.state)
        (mirror.directory / "credential").write_text("username=uma\npassword=secret\n")
        box = site.sandboxes["ana"]
        done = await box.run("echo 2 > a && git commit -qam two && git log --oneline | wc -l")
        assert (done.exit_code, done.output.strip()) == (0, "2")
        common = mirror.git.directory
        for attempt in (
            f"grep -r {site.repository.name} {common}",
            "git remote -v | grep .",
            f"cat {mirror.directory}/credential",
            "git update-ref refs/heads/bullpen/team HEAD",
            f"touch {common}/config",
            f"touch {common}/hooks/x",
        ):
            assert (await box.run(attempt)).exit_code != 0, attempt
        work = await ana.gather("two\n")
        assert work is not None
        assert files_at(site.repository, work.commit)["a"] == "2"
