"""A member's own worktree: its work is gathered whole, merged with the others', and never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bullpen.domain.submission import Work
from bullpen.sandboxes.bubblewrap import probe
from bullpen.workspace import Conflicting
from bullpen.workspaces.worktree import EXCLUDE
from bullpen.workspaces.worktrees import Worktrees, own_directory
from tests.support.repository import files_at, fingerprint, git, make_repository, write
from tests.workspaces.conftest import Site, open_site

NOTHING: frozenset[str] = frozenset()


async def gathered(site: Site, name: str, files: dict[str, str]) -> Work:
    """What this member hands in after writing these files."""
    worktree = await site.worktree(name)
    write(worktree.root, files)
    work = await worktree.gather(f"{name} was here\n")
    assert work is not None
    return work


async def test_everything_that_differs_is_one_commit_whatever_the_member_committed_itself(site: Site) -> None:
    ana = await site.worktree("ana")
    write(ana.root, {"a": "one\nTWO\nthree\n", "new/file": "n\n", "x.log": "ignored\n"})
    git(ana.root, "commit", "-qam", "mine")
    (ana.root / "b").unlink()
    work = await ana.gather("done\n\nin full\n")
    assert work is not None
    assert files_at(site.repository, work.commit) == {"a": "one\nTWO\nthree", "new/file": "n", ".gitignore": "*.log"}
    assert git(site.repository, "rev-parse", f"{work.commit}^") == work.base == site.trunk.base
    assert git(site.repository, "log", "-1", "--format=%an <%ae> %B", work.commit).startswith(
        "ana <ana@bullpen.invalid> done\n\nin full"
    )
    assert git(site.repository, "rev-parse", "bullpen/team/ana") == work.commit


@pytest.mark.parametrize("how", ["git add -A", "git add -A -f && git commit -qm mine"])
async def test_what_is_excluded_is_not_handed_in_though_the_member_added_or_committed_it(site: Site, how: str) -> None:
    ana = await site.worktree("ana")
    own = own_directory(ana.root)
    assert own is not None
    (own / EXCLUDE).write_text("*.pyc\n/.env\n/odd name\n/new\n")
    write(ana.root, {".env": "KEY=1\n", "odd name": "o\n", "x.pyc": "x\n", "a": "ana\n", "sub/.env": "work\n"})
    done = await site.sandboxes["ana"].run(how)
    assert done.exit_code == 0, done.output
    work = await ana.gather("ana\n")
    assert work is not None
    assert git(site.repository, "diff", "--name-only", work.base, work.commit).split() == ["a", "sub/.env"]
    assert (ana.root / ".env").read_text() == "KEY=1\n"
    # What the trunk has is another's work, whatever lies at that name here.
    ben = await gathered(site, "ben", {"new": "ben\n"})
    assert not await site.integrate(site.submission("ben", ben))
    await ana.catch_up(integrated=NOTHING)
    work = await ana.gather("ana\n")
    assert work is not None
    assert files_at(site.repository, work.commit)["new"] == "ben"


async def test_what_a_gitignore_takes_back_from_the_excludes_is_work(site: Site) -> None:
    ana = await site.worktree("ana")
    write(ana.root, {".gitignore": "!*.pyc\n", "x.pyc": "x\n"})
    assert (await site.sandboxes["ana"].run("git add -A")).exit_code == 0
    work = await ana.gather("ana\n")
    assert work is not None
    assert "x.pyc" in files_at(site.repository, work.commit)


async def test_nothing_changed_is_nothing_to_hand_in(site: Site) -> None:
    ana = await site.worktree("ana")
    write(ana.root, {"x.log": "ignored\n"})
    assert await ana.gather("nothing\n") is None


async def test_gathered_again_after_a_kill_it_is_the_same_commit(site: Site) -> None:
    work = await gathered(site, "ana", {"a": "1\n"})
    again = await site.worktree("ana")
    assert await again.gather("said otherwise\n") == work


async def test_what_others_handed_in_is_merged_before_it_is_handed_in(site: Site) -> None:
    ben = await site.worktree("ben")
    ana = await gathered(site, "ana", {"b": "ana\n"})
    assert not await site.integrate(site.submission("ana", ana))
    write(ben.root, {"a": "one\nBEN\nthree\n"})
    work = await ben.gather("ben\n")
    assert work is not None
    assert work.base == git(site.repository, "rev-parse", "bullpen/team")
    assert files_at(site.repository, work.commit)["b"] == "ana"
    assert (ben.root / "b").read_text() == "ana\n"


async def test_what_is_on_the_trunk_by_now_is_not_handed_in_again(site: Site) -> None:
    ana = await gathered(site, "ana", {"a": "one\nANA\nthree\n"})
    ben = await gathered(site, "ben", {"b": "ben\n"})
    for name, work in (("ben", ben), ("ana", ana)):
        assert not await site.integrate(site.submission(name, work))
    # Killed before it saw the verdict.
    again = await site.worktree("ana")
    assert await again.gather("said otherwise\n") is None
    assert git(again.root, "rev-parse", "HEAD") == git(site.repository, "rev-parse", "bullpen/team")


async def test_a_conflict_is_in_the_files_and_resolved_by_editing_them(site: Site) -> None:
    ben = await site.worktree("ben")
    write(ben.root, {"a": "one\nBEN\nthree\n", "c": "more\n"})
    assert not await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "one\nANA\nthree\n"})))
    with pytest.raises(Conflicting, match="it conflicts in a"):
        await ben.gather("ben\n")
    text = (ben.root / "a").read_text()
    assert text.index("<<<<<<<") < text.index("ANA") < text.index("=======") < text.index("BEN")
    with pytest.raises(Conflicting, match="still conflict markers in a"):
        await ben.gather("ben\n")
    write(ben.root, {"a": "one\nANA and BEN\nthree\n"})
    work = await ben.gather("ben\n")
    assert work is not None
    assert not await site.integrate(site.submission("ben", work))
    integrated = files_at(site.repository, "bullpen/team")
    assert (integrated["a"], integrated["c"]) == ("one\nANA and BEN\nthree", "more")


async def test_a_file_that_one_deleted_and_another_changed_is_a_conflict_too(site: Site) -> None:
    ben = await site.worktree("ben")
    (ben.root / "b").unlink()
    assert not await site.integrate(site.submission("ana", await gathered(site, "ana", {"b": "needed\n"})))
    with pytest.raises(Conflicting, match="it conflicts in b"):
        await ben.gather("ben\n")
    (ben.root / "b").unlink()
    assert await ben.gather("ben\n") is not None


async def test_a_new_task_begins_at_the_newest_trunk(site: Site) -> None:
    ben = await site.worktree("ben")
    assert not await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "new\n"})))
    assert await ben.begin_anew(integrated=NOTHING) is None
    assert (ben.root / "a").read_text() == "new\n"
    assert git(ben.root, "rev-parse", "HEAD") == git(site.repository, "rev-parse", "bullpen/team")


async def test_what_was_handed_in_and_integrated_is_nothing_unfinished(site: Site) -> None:
    work = await gathered(site, "ana", {"a": "new\n"})
    assert not await site.integrate(site.submission("ana", work))
    ana = await site.worktree("ana")
    assert await ana.begin_anew(integrated=frozenset({work.commit})) is None
    assert git(ana.root, "status", "--porcelain") == ""


async def test_what_was_unfinished_has_a_name_when_something_new_begins(site: Site) -> None:
    ana = await site.worktree("ana")
    write(ana.root, {"a": "half\n", "half/done": "h\n", "x.log": "kept\n"})
    kept = await ana.begin_anew(integrated=NOTHING)
    assert kept is not None
    assert files_at(site.repository, kept)["half/done"] == "h"
    assert not (ana.root / "half").exists()
    assert (ana.root / "a").read_text() == "one\ntwo\nthree\n"
    assert (ana.root / "x.log").exists()


async def test_what_is_kept_twice_has_two_names(site: Site) -> None:
    ana = await site.worktree("ana")
    names = set()
    for text in ("first\n", "second\n"):
        write(ana.root, {"a": text})
        names.add(await ana.begin_anew(integrated=NOTHING))
    assert len(names) == 2
    assert {files_at(site.repository, str(name))["a"] for name in names} == {"first", "second"}


async def test_catching_up_keeps_what_is_unfinished_upon_the_newest_trunk(site: Site) -> None:
    lead = await site.worktree("lead")
    write(lead.root, {"notes": "n\n"})
    assert not await site.integrate(site.submission("ana", await gathered(site, "ana", {"a": "new\n"})))
    await lead.catch_up(integrated=NOTHING)
    assert ((lead.root / "a").read_text(), (lead.root / "notes").read_text()) == ("new\n", "n\n")
    work = await lead.gather("lead\n")
    assert work is not None
    assert not await site.integrate(site.submission("lead", work))


async def test_the_branch_that_somebody_deleted_is_asked_for_in_one_line(site: Site) -> None:
    ana = await site.worktree("ana")
    git(site.repository, "branch", "-qD", "bullpen/team")
    write(ana.root, {"a": "1\n"})
    with pytest.raises(Exception, match="the branch bullpen/team is gone"):
        await ana.gather("ana\n")


async def test_what_git_was_killed_over_as_it_made_it_is_made_anew_and_can_be_removed(tmp_path: Path) -> None:
    """Until a worktree is whole git has it locked, and what is locked it lets nobody take the place of."""
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    async with open_site(repository, tmp_path / "state") as site:
        trees = site.trees
        assert isinstance(trees, Worktrees)
        for name in ("ana", "ben"):
            half = trees.directory / name
            git(repository, "worktree", "add", "-q", "--detach", "--lock", "--reason", "initializing", str(half))
            (half / "a").unlink()
        ana = await site.worktree("ana")
        assert (ana.root / "a").read_text() == "1\n"
        await trees.remove("ben")
        assert "/ben" not in git(repository, "worktree", "list")


@pytest.mark.parametrize("name", ["index", "HEAD"])
async def test_what_a_killed_git_left_locked_keeps_nothing_from_going_on(site: Site, name: str) -> None:
    ana = await site.worktree("ana")
    own = own_directory(ana.root)
    assert own is not None
    work = await gathered(site, "ana", {"a": "ana\n"})
    (own / f"{name}.lock").touch()
    await ana.show(site.trunk.base)
    assert git(ana.root, "rev-parse", "HEAD") == site.trunk.base
    (own / f"{name}.lock").touch()
    await ana.show(work.commit)
    write(ana.root, {"b": "more\n"})
    (own / f"{name}.lock").touch()
    assert await ana.gather("more\n") is not None


async def test_a_worktree_of_a_subdirectory_gathers_the_whole_repository(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"sub/a": "1\n", "top": "t\n"})
    async with open_site(repository / "sub", tmp_path / "state") as site:
        ana = await site.worktree("ana")
        assert ana.directory == ana.root / "sub"
        write(ana.root, {"sub/a": "2\n", "top": "u\n"})
        work = await ana.gather("both\n")
        assert work is not None
        assert files_at(repository, work.commit) == {"sub/a": "2", "top": "u"}


@pytest.mark.skipif(not probe().works, reason=f"no bubblewrap: {probe().reason}")
class TestInBubblewrap:
    async def test_a_member_commits_but_reaches_no_branch_tag_stash_pack_or_setting_of_the_user(
        self, tmp_path: Path
    ) -> None:
        repository = make_repository(tmp_path / "r", {"a": "1\n"})
        git(repository, "repack", "-qad")
        async with open_site(repository, repository / ".bullpen", kind="bubblewrap") as site:
            ana = await site.worktree("ana")
            before = fingerprint(repository)
            box = site.sandboxes["ana"]
            done = await box.run("echo 2 > a && git commit -qam two && git log --oneline | wc -l")
            assert (done.exit_code, done.output.strip()) == (0, "2")
            for attempt in (
                "git branch x",
                "git branch -f main",
                "git update-ref refs/heads/main HEAD",
                "git update-ref refs/heads/bullpen/team HEAD",
                "git tag t",
                "echo 3 > a; git stash",
                f"rm -rf {repository}/.git/objects/pack",
                f"rm -f {repository}/.git/objects/pack/*",
                "git config user.name evil",
                f"ls {repository}/.bullpen/bullpen.db",
            ):
                assert (await box.run(attempt)).exit_code != 0, attempt
            assert fingerprint(repository) == before
            write(ana.root, {"a": "4\n"})
            work = await ana.gather("four\n")
            assert work is not None
            assert files_at(repository, work.commit) == {"a": "4"}
        assert "error" not in git(repository, "fsck")

    async def test_a_repository_planted_in_a_worktree_runs_nothing_outside(self, tmp_path: Path) -> None:
        repository = make_repository(tmp_path / "r", {"a": "1\n"})
        mark = tmp_path / "ran-outside"
        async with open_site(repository, repository / ".bullpen", kind="bubblewrap") as site:
            ana = await site.worktree("ana")
            planted = (
                "git init -q inner && cd inner && git commit -q --allow-empty -m x && "
                f"git config core.fsmonitor 'touch {mark}; true' && git config core.hooksPath /tmp && echo x > y"
            )
            assert (await site.sandboxes["ana"].run(planted)).exit_code == 0
            await ana.gather("with a repository in it\n")
            write(ana.root, {"inner/y": "z\n"})
            await ana.gather("again\n")
            await ana.begin_anew(integrated=NOTHING)
        assert not mark.exists()


@pytest.mark.parametrize("kind", ["local", "auto"])
async def test_files_that_the_users_filters_store_otherwise_are_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As with git-lfs, which people install for all of their repositories: in the sandbox, HOME is another."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for key, value in (("clean", "tr A-Z a-z"), ("smudge", "tr a-z A-Z"), ("required", "true")):
        git(tmp_path, "config", "--global", f"filter.loud.{key}", value)
    files = {".gitattributes": "*.loud filter=loud\n", "x.loud": "x\n", "y.loud": "y\n", "a": "a\n"}
    repository = make_repository(tmp_path / "r", files)
    async with open_site(repository, tmp_path / "state", kind=kind) as site:
        worktree = await site.worktree("ana")
        assert (worktree.root / "x.loud").read_text() == "X\n"
        (worktree.root / "x.loud").touch()
        assert await worktree.gather("nothing") is None
        write(worktree.root, {"y.loud": "Y\nMORE\n"})
        work = await worktree.gather("more")
        assert work is not None
        assert git(repository, "diff", "--name-only", work.base, work.commit) == "y.loud"
        assert git(repository, "show", f"{work.commit}:y.loud") == "y\nmore"


async def test_what_is_made_in_a_sparse_or_shallow_clone_has_everything_else_too(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"kept/a": "1\n", "left/b": "2\n"})
    write(origin, {"kept/a": "2\n"})
    git(origin, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    git(tmp_path, "clone", "-q", "--sparse", str(origin), "sparse")
    git(tmp_path / "sparse", "sparse-checkout", "set", "kept")
    for name in ("shallow", "sparse"):
        async with open_site(tmp_path / name, tmp_path / f"{name}-state") as site:
            work = await gathered(site, "ana", {"kept/a": "3\n", "kept/new": "n\n"})
            assert not await site.integrate(site.submission("ana", work))
            assert files_at(tmp_path / name, "bullpen/team") == {"kept/a": "3", "kept/new": "n", "left/b": "2"}
            worktree = await site.worktree("ana")
            assert await worktree.begin_anew(integrated=frozenset({work.commit})) is None
            assert (worktree.root / "kept/new").exists()


def make_sparse(directory: Path) -> Path:
    """A checkout of `kept` alone."""
    make_repository(directory / "origin", {"kept/a": "1\n", "left/b": "2\n", "left/c": "3\n"})
    git(directory, "clone", "-q", "--sparse", "origin", "sparse")
    git(directory / "sparse", "sparse-checkout", "set", "kept")
    return directory / "sparse"


async def test_what_is_made_outside_of_a_sparse_checkout_is_work_as_any_other(tmp_path: Path) -> None:
    repository = make_sparse(tmp_path)
    async with open_site(repository, tmp_path / "state") as site:
        work = await gathered(site, "ana", {"left/b": "ana\n", "left/new": "n\n", "far/new": "f\n"})
        assert not await site.integrate(site.submission("ana", work))
        made = {"kept/a": "1", "left/b": "ana", "left/c": "3", "left/new": "n", "far/new": "f"}
        assert files_at(repository, "bullpen/team") == made
        worktree = await site.worktree("ana")
        assert await worktree.begin_anew(integrated=frozenset({work.commit})) is None
        write(worktree.root, {"kept/a": "4\n"})
        more = await worktree.gather("more\n")
        assert more is not None
        assert files_at(repository, more.commit) == {**made, "kept/a": "4"}


async def test_a_conflict_outside_of_a_sparse_checkout_is_in_the_files_too(tmp_path: Path) -> None:
    async with open_site(make_sparse(tmp_path), tmp_path / "state") as site:
        ben = await site.worktree("ben")
        write(ben.root, {"left/b": "ben\n"})
        assert not await site.integrate(site.submission("ana", await gathered(site, "ana", {"left/b": "ana\n"})))
        with pytest.raises(Conflicting, match="it conflicts in left/b"):
            await ben.gather("ben\n")
        assert "<<<<<<<" in (ben.root / "left/b").read_text()
        write(ben.root, {"left/b": "both\n"})
        work = await ben.gather("ben\n")
        assert work is not None
        assert not await site.integrate(site.submission("ben", work))
