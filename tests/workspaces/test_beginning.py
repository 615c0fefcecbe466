"""What a team begins from: any state in which a user's repository may be works, or gets one clear line."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bullpen.errors import UsageError
from bullpen.workspaces import beginning
from bullpen.workspaces.beginning import Repository, Unfit, begin_trunk, snapshot, survey
from bullpen.workspaces.worktrees import Worktrees
from tests.support.repository import files_at, fingerprint, git, make_repository, surveyed, write


async def made_in(repository: Path, state: Path, *, include_unsaved: bool = False) -> Path:
    """A worktree of a team that begins there."""
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=include_unsaved)
    return (await Worktrees(trunk, state).make("ana")).root


def content(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and path.name != ".git"
    }


async def test_a_worktree_begins_at_head_and_nothing_of_the_users_is_touched(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n", "d/b": "2\n"})
    write(repository, {"a": "changed\n", "new": "n\n"})
    before = fingerprint(repository)
    root = await made_in(repository, tmp_path / "state")
    assert content(root) == {"a": "1\n", "d/b": "2\n"}
    assert fingerprint(repository) == before


async def test_unsaved_work_is_taken_along_as_a_snapshot_that_changes_neither_index_nor_stash(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n", "gone": "g\n", ".gitignore": "*.log\n"})
    write(repository, {"a": "staged\n"})
    git(repository, "add", "a")
    write(repository, {"a": "worked on\n", "new": "n\n", "x.log": "ignored\n"})
    (repository / "gone").unlink()
    before = fingerprint(repository)
    found = await surveyed(repository)
    assert sorted(found.unsaved) == ["a", "gone", "new"]
    root = await made_in(repository, tmp_path / "state", include_unsaved=True)
    assert content(root) == {"a": "worked on\n", "new": "n\n", ".gitignore": "*.log\n"}
    assert fingerprint(repository) == before


async def test_a_snapshot_is_a_commit_upon_head(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r")
    write(repository, {"new": "n\n"})
    commit = await snapshot(await surveyed(repository))
    assert git(repository, "rev-parse", f"{commit}^") == git(repository, "rev-parse", "HEAD")
    assert files_at(repository, commit)["new"] == "n"


async def test_what_each_worktree_gets_a_copy_of_is_no_unsaved_work_and_in_no_snapshot(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a.md": "1\n"})
    write(repository, {".env": "KEY=secret\n", "conf/own.ini": "mine\n"})
    include = [".env", "conf", "*.md", "../*"]
    found = await survey(repository, include=include)
    assert isinstance(found, Repository)
    assert found.unsaved == ()
    assert sorted(found.copied) == [".env", "conf/own.ini"]
    # What git has is work as ever, whatever is copied.
    write(repository, {"a.md": "changed\n", "new": "n\n"})
    found = await survey(repository, include=include)
    assert isinstance(found, Repository)
    assert sorted(found.unsaved) == ["a.md", "new"]
    assert files_at(repository, await snapshot(found)) == {"a.md": "changed", "new": "n"}


async def test_a_snapshot_of_a_sparse_checkout_has_what_is_new_outside_of_it(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"kept/a": "1\n", "left/b": "2\n"})
    git(tmp_path, "clone", "-q", "--sparse", str(origin), "sparse")
    repository = tmp_path / "sparse"
    git(repository, "sparse-checkout", "set", "kept")
    write(repository, {"left/new": "n\n", "far/new": "f\n"})
    before = fingerprint(repository)
    commit = await snapshot(await surveyed(repository))
    assert files_at(repository, commit) == {"kept/a": "1", "left/b": "2", "left/new": "n", "far/new": "f"}
    assert fingerprint(repository) == before


async def test_a_team_of_the_same_name_gets_a_branch_of_its_own_whatever_the_case(tmp_path: Path) -> None:
    found = await surveyed(make_repository(tmp_path / "r"))
    names = [(await begin_trunk(found, name, include_unsaved=False)).branch for name in ("crew", "Crew", "crew")]
    assert names == ["bullpen/crew", "bullpen/Crew-2", "bullpen/crew-3"]


async def test_a_branch_called_bullpen_is_in_the_way_and_that_is_said(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r")
    git(repository, "branch", "bullpen")
    with pytest.raises(UsageError, match="your branch `bullpen` is in the way of bullpen/crew"):
        await begin_trunk(await surveyed(repository), "crew", include_unsaved=False)


async def test_a_detached_head_a_subdirectory_and_another_worktree_of_the_user_work(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"sub/a": "1\n"})
    git(repository, "checkout", "-q", "--detach")
    found = await surveyed(repository / "sub")
    assert (found.branch, found.prefix, found.root) == ("", "sub", repository)
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    assert (await surveyed(tmp_path / "other")).branch == "other"
    assert content(await made_in(tmp_path / "other", tmp_path / "state")) == {"sub/a": "1\n"}


async def test_shallow_and_sparse_clones_work(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"kept/a": "1\n", "left/b": "2\n"})
    write(origin, {"kept/a": "2\n"})
    git(origin, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    assert content(await made_in(tmp_path / "shallow", tmp_path / "s1")) == {"kept/a": "2\n", "left/b": "2\n"}
    git(tmp_path, "clone", "-q", "--sparse", str(origin), "sparse")
    git(tmp_path / "sparse", "sparse-checkout", "set", "kept")
    assert (await made_in(tmp_path / "sparse", tmp_path / "s2") / "kept/a").read_text() == "2\n"


async def test_hooks_of_the_user_are_not_run(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r")
    for name in ("post-checkout", "pre-commit", "reference-transaction"):
        hook = repository / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        hook.chmod(0o755)
    await made_in(repository, tmp_path / "state")
    assert not (tmp_path / "ran").exists()


async def test_without_a_repository_or_a_commit_all_work_in_the_directory(tmp_path: Path) -> None:
    assert await survey(tmp_path) == Unfit("it is no git repository", is_git=False)
    git(tmp_path, "init", "-q")
    found = await survey(tmp_path)
    assert isinstance(found, Unfit)
    assert "no commit yet" in found.why


async def test_a_bare_repository_is_refused_with_what_to_do(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(UsageError, match="clone it, and work in the clone"):
        await survey(tmp_path / "bare")


async def test_submodules_and_missing_lfs_are_said(tmp_path: Path) -> None:
    if shutil.which("git-lfs"):
        pytest.skip("git-lfs is installed here")
    inner = make_repository(tmp_path / "inner")
    repository = make_repository(tmp_path / "r", {".gitattributes": "*.bin filter=lfs\n"})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "inner")
    git(repository, "commit", "-qm", "submodule")
    notes = " ".join((await surveyed(repository)).notes)
    assert "submodules are not checked out" in notes
    assert "git-lfs is not installed" in notes
    found = await survey(repository, setup="git submodule update --init && make")
    assert isinstance(found, beginning.Repository)
    assert "submodules" not in " ".join(found.notes)


async def test_names_that_are_one_file_here_and_two_in_git_are_said(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"Makefile": "1\n", "makefile": "2\n"})
    assert (await surveyed(repository)).notes == ()
    git(repository, "config", "core.ignoreCase", "true")
    [note] = (await surveyed(repository)).notes
    assert note.endswith("these are two in git: Makefile, makefile")


async def test_the_disk_that_counts_is_that_of_the_worktrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "r", {"a": "x" * 1_000_000})
    (tmp_path / "full").mkdir()

    def usage(path: Path) -> object:
        return shutil._ntuple_diskusage(10, 9, 1 if path == tmp_path / "full" else 10**12)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert isinstance(await survey(repository), beginning.Repository)
    assert isinstance(await survey(repository, place=tmp_path / "full/not/there/yet"), Unfit)


async def test_a_disk_that_is_nearly_full_and_an_old_git_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "r", {"a": "x" * 1_000_000})
    monkeypatch.setattr(beginning.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    found = await survey(repository)
    assert isinstance(found, Unfit)
    assert "MB of disk are free" in found.why
    monkeypatch.setattr(beginning, "OLDEST_GIT", (99, 0))
    found = await survey(repository)
    assert isinstance(found, Unfit)
    assert "too old" in found.why


async def test_a_small_repository_needs_room_for_what_is_made_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 0, 50_000_000))
    found = await survey(repository)
    assert isinstance(found, Unfit)
    assert found.why == "only 50 MB of disk are free, and worktrees need about 100 MB"


async def test_files_that_git_does_not_have_are_copied_and_never_committed(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    write(repository, {".env": "KEY=1\n", "conf/local.ini": "x\n", "other": "o\n"})
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    made = await Worktrees(trunk, tmp_path / "state", include=[".env", "conf/*.ini"]).make("ana")
    assert content(made.root) == {"a": "1\n", ".env": "KEY=1\n", "conf/local.ini": "x\n"}
    exclude = f"core.excludesFile={made.own}/bullpen-exclude"
    assert git(made.root, "-c", exclude, "status", "--porcelain", "-uall") == ""


async def test_nothing_is_copied_from_outside_of_the_repository_or_to_outside_of_the_worktree(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    write(tmp_path, {"outside/secret": "s\n", "target/mine": "m\n"})
    (repository / "tracked").symlink_to(tmp_path / "target")
    git(repository, "add", "tracked")
    git(repository, "commit", "-qm", "a link")
    (repository / "tracked").unlink()
    write(repository, {"tracked/here": "h\n", "sub/.env": "e\n", ".bullpen/worktrees/team/ben/.env": "ben's\n"})
    (repository / "out").symlink_to(tmp_path / "outside")
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    include = ["out/*", "tracked/*", "../outside/*", "**/.env", ".git/config"]
    made = await Worktrees(trunk, repository / ".bullpen", include=include).make("ana")
    assert content(made.root) == {"a": "1\n", "sub/.env": "e\n"}
    assert not (tmp_path / "target/here").exists()
    assert {path.name for path in (repository / ".bullpen/worktrees/team").iterdir()} == {".ready", "ana", "ben"}


async def test_what_is_to_be_copied_and_is_not_there_is_said(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    write(repository, {".env": "KEY=1\n"})
    found = await survey(repository, include=[".env", ".evn", "conf/*.ini"])
    assert isinstance(found, beginning.Repository)
    assert found.notes == ("worktree.include in the settings: there is no .evn, conf/*.ini here",)


async def test_a_worktree_that_a_kill_left_half_made_is_made_again(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    worktrees = Worktrees(trunk, tmp_path / "state")
    root = worktrees.directory / "ana"
    git(repository, "worktree", "add", "-q", "--detach", "--no-checkout", str(root))
    made = await worktrees.make("ana")
    assert made.is_new
    assert content(made.root) == {"a": "1\n"}
    assert not (await worktrees.make("ana")).is_new


async def test_a_worktree_that_somebody_removed_is_made_again_from_what_its_member_made(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    worktrees = Worktrees(trunk, tmp_path / "state")
    made = await worktrees.make("ana")
    write(made.root, {"a": "2\n"})
    git(made.root, "commit", "-qam", "two")
    git(repository, "update-ref", trunk.member_ref("ana"), git(made.root, "rev-parse", "HEAD"))
    shutil.rmtree(made.root)
    assert content((await worktrees.make("ana")).root) == {"a": "2\n"}


async def test_worktrees_that_are_made_at_the_same_moment_are_all_made(tmp_path: Path) -> None:
    """A team of many begins at once, and git itself fails now and then when it adds two at once."""
    repository = make_repository(tmp_path / "r", {"a": "1\n"})
    trunk = await begin_trunk(await surveyed(repository), "team", include_unsaved=False)
    worktrees = Worktrees(trunk, tmp_path / "state")
    made = await asyncio.gather(*(worktrees.make(f"m{number}") for number in range(40)))
    assert len({one.own for one in made}) == 40
