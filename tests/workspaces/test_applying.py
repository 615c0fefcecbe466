"""Bringing a team's work into the user's checkout, and taking it back: real repositories, every byte compared."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from bullpen.errors import BullpenError, Conflict, NotFound
from bullpen.workspaces.application import Application, Applications, Mode, State
from bullpen.workspaces.applying import Plan, Wish, carry_out, make_plan, recover, undo
from bullpen.workspaces.beginning import Repository, snapshot, survey
from bullpen.workspaces.checkout import Checkout
from bullpen.workspaces.made import look_at_work
from tests.support.repositories import Work, git, make_repository, write
from tests.support.repository import fingerprint

FILES = {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "d/c.txt": "c\n", ".gitignore": "*.log\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", FILES)


@pytest.fixture
def work(repository: Path, tmp_path: Path) -> Work:
    return Work(repository, tmp_path / "place")


async def plan_of(work: Work, **wish: Any) -> Plan:
    return await make_plan(await Checkout.open(work.repository), await look_at_work(work.trunk), Wish(**wish))


async def apply(work: Work, **wish: Any) -> Application:
    checkout = await Checkout.open(work.repository)
    made = await look_at_work(work.trunk)
    async with checkout.locked():
        await recover(checkout)
        plan = await make_plan(checkout, made, Wish(**wish))
        assert not plan.is_nothing
        return await carry_out(checkout, plan, Wish(**wish))


async def take_back(work: Work) -> None:
    checkout = await Checkout.open(work.repository)
    async with checkout.locked():
        if not await recover(checkout):
            await undo(checkout, work.trunk.branch, work.trunk.base)


async def refused(work: Work, **wish: Any) -> str:
    """Why, and nothing was touched."""
    before, records = fingerprint(work.repository), records_of(work.repository)
    with pytest.raises(BullpenError) as told:
        await apply(work, **wish)
    assert fingerprint(work.repository) == before
    assert records_of(work.repository) == records
    assert not (work.repository / ".git/index.lock").exists()
    return str(told.value)


def records_of(repository: Path) -> list[str]:
    return sorted(path.name for path in (repository / ".git").glob("bullpen-apply/*"))


def status(repository: Path) -> list[str]:
    return git(repository, "status", "--porcelain", "-uall").splitlines()


def content(repository: Path) -> dict[str, str]:
    found = (path for path in repository.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(repository).as_posix(): path.read_text() for path in found}


def snapshot_of(repository: Path) -> Any:
    async def take() -> str:
        found = await survey(repository)
        assert isinstance(found, Repository)
        return await snapshot(found)

    return take()


# -- the three ways --------------------------------------------------------------------------------------------------


async def test_a_merge_brings_the_teams_commits_in_a_commit_of_the_users(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\ntwo\nthree\n", "new/n.txt": "n\n"}, task=1)
    work.commit({"b.txt": None}, task=2, member="ben")
    applied = await apply(work, goal="Make it good")
    assert applied.mode is Mode.MERGE
    assert content(repository) == {"a.txt": "ONE\ntwo\nthree\n", "new/n.txt": "n\n", "d/c.txt": "c\n"} | {
        ".gitignore": "*.log\n"
    }
    assert status(repository) == []
    assert git(repository, "log", "-1", "--format=%an <%ae> %cn %P %s") == (
        f"Uma User <uma@example.org> Uma User {work.trunk.base} {work.tip} Merge bullpen/demo: Make it good"
    )
    assert "- work for 2 (ben, #2)" in git(repository, "log", "-1", "--format=%b")
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"


async def test_a_squash_is_one_commit(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    work.commit({"b.txt": "B\n"}, task=2)
    await apply(work, mode=Mode.SQUASH, message="Both\n\nof them")
    assert git(repository, "log", "-1", "--format=%P|%an|%B") == f"{work.trunk.base}|Uma User|Both\n\nof them\n"
    assert status(repository) == []
    assert content(repository)["b.txt"] == "B\n"


async def test_a_patch_changes_files_only(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n", "b.txt": None, "new.txt": "n\n"}, task=1)
    index = (repository / ".git/index").read_bytes()
    await apply(work, mode=Mode.PATCH)
    assert (repository / ".git/index").read_bytes() == index
    assert status(repository) == [" M a.txt", " D b.txt", "?? new.txt"]
    assert git(repository, "rev-parse", "HEAD") == work.trunk.base


async def test_one_task_alone_is_taken(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\ntwo\nthree\n"}, task=1)
    second = work.commit({"b.txt": "B\n"}, task=2, member="ben")
    third = work.commit({"b.txt": "BB\n"}, task=3)
    await apply(work, commits=(second,))
    assert content(repository)["a.txt"] == FILES["a.txt"]
    assert content(repository)["b.txt"] == "B\n"
    assert git(repository, "log", "--first-parent", "--format=%an") == "Uma User\nUma User"
    assert git(repository, "log", "-1", "--format=%an", "HEAD^2") == "ben"
    await apply(work)
    assert content(repository)["a.txt"] == "ONE\ntwo\nthree\n"
    assert content(repository)["b.txt"] == "BB\n"
    git(repository, "reset", "-q", "--hard", work.trunk.base)
    assert "it may build on other work of the team" in await refused(work, commits=(third,))


@pytest.mark.parametrize("mode", Mode)
async def test_kinds_of_files_come_as_they_are(repository: Path, tmp_path: Path, mode: Mode) -> None:
    """Executable, a link, a directory for a file and a file for a directory, odd names, binary, line ends."""
    git(repository, "config", "core.autocrlf", "true")
    write(repository, {".gitattributes": "*.dos text eol=crlf\n*.bin binary\n", "x.dos": "x\r\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "attributes")
    before = fingerprint(repository)
    work = Work(repository, tmp_path / "place")
    work.enter(work.tip)
    shutil.rmtree(work.place / "d")
    (work.place / "a.txt").unlink()
    name = os.fsdecode(b"odd \xff\nname")
    write(work.place, {"d": "a file\n", "a.txt/deep/er": "x\n", "run.sh": "#!\n", "z.bin": b"\r\n\0", "y.dos": "y\n"})
    (work.place / name).write_bytes(b"odd\n")
    (work.place / "run.sh").chmod(0o755)
    (work.place / "link").symlink_to("b.txt")
    made = work.save(task=1)
    git(repository, "update-ref", work.trunk.ref, made)
    await apply(work, mode=mode)
    assert (repository / "d").read_bytes() == b"a file\r\n"
    assert (repository / "a.txt/deep/er").exists()
    assert (repository / name).read_bytes() == b"odd\r\n"
    assert os.readlink(repository / "link") == "b.txt"
    assert (repository / "run.sh").stat().st_mode & stat.S_IXUSR
    assert (repository / "y.dos").read_bytes() == b"y\r\n"
    assert (repository / "z.bin").read_bytes() == b"\r\n\0"
    if mode is not Mode.PATCH:
        assert status(repository) == []
    await take_back(work)
    assert fingerprint(repository) == before


# -- what is not saved -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
async def test_unrelated_unsaved_work_stays_and_everything_comes_back(repository: Path, work: Work, mode: Mode) -> None:
    git(repository, "stash", "list")
    write(repository, {"b.txt": "stashed\n"})
    git(repository, "stash", "push", "-q")
    write(repository, {"b.txt": "staged\n"})
    git(repository, "add", "b.txt")
    write(repository, {"b.txt": "and more\n", "mine.txt": "new\n", "x.log": "ignored\n"})
    before, was = fingerprint(repository), status(repository)
    work.commit({"a.txt": "ONE\n", "new/n.txt": "n\n"}, task=1)
    await apply(work, mode=mode)
    expected = [] if mode is not Mode.PATCH else [" M a.txt", "?? new/n.txt"]
    assert sorted(status(repository)) == sorted([*was, *expected])
    assert (repository / "b.txt").read_text() == "and more\n"
    assert git(repository, "show", ":b.txt") == "staged"
    await take_back(work)
    assert fingerprint(repository) == before


@pytest.mark.parametrize("mode", Mode)
async def test_unsaved_work_is_never_overwritten(repository: Path, work: Work, mode: Mode) -> None:
    work.commit({".gitignore": "", "a.txt": "ONE\n", "new.txt": "n\n", "x.log/y": "y\n", "b.txt": None}, task=1)
    write(repository, {"a.txt": "mine\n", "new.txt": "mine too\n", "x.log": "ignored\n", "b.txt": "changed\n"})
    said = await refused(work, mode=mode)
    assert said.startswith("not applied, for you have unsaved work in a.txt, b.txt, new.txt, x.log/y: commit it,")


async def test_what_is_staged_is_never_overwritten(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    write(repository, {"a.txt": "staged\n"})
    git(repository, "add", "a.txt")
    write(repository, {"a.txt": FILES["a.txt"]})
    said = await refused(work)
    assert "what you have staged in a.txt" in said
    assert "apply with --patch" in said
    # A patch leaves the index alone: nothing is lost.
    await apply(work, mode=Mode.PATCH)
    assert git(repository, "show", ":a.txt") == "staged"


async def test_nothing_is_written_through_a_link_of_the_users(repository: Path, work: Work, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / "out").symlink_to(tmp_path / "elsewhere")
    work.commit({"out/x": "x\n"}, task=1)
    assert "unsaved work in out/x" in await refused(work)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_directory_with_the_users_files_does_not_make_room(repository: Path, work: Work) -> None:
    write(repository, {"d/mine.txt": "m\n"})
    work.enter(work.tip)
    shutil.rmtree(work.place / "d")
    write(work.place, {"d": "file\n"})
    git(repository, "update-ref", work.trunk.ref, work.save())
    assert "unsaved work in d:" in await refused(work)


async def test_what_the_user_has_already_is_no_obstacle(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n", "new.txt": "n\n"}, task=1)
    write(repository, {"new.txt": "n\n"})
    await apply(work)
    assert status(repository) == []


# -- begun from unsaved work -----------------------------------------------------------------------------------------


@pytest.fixture
async def upon(repository: Path, tmp_path: Path) -> Work:
    """A team that began with unsaved work: a change, a new file, a deletion."""
    write(repository, {"a.txt": "one\ntwo\nthree\nmine\n", "draft.txt": "draft\n", "b.txt": None})
    base = await snapshot_of(repository)
    return Work(repository, tmp_path / "place", base=base, is_snapshot=True)


async def test_work_upon_unsaved_work_comes_into_the_files_beside_it(repository: Path, upon: Work) -> None:
    before = fingerprint(repository)
    upon.commit({"a.txt": "ONE\ntwo\nthree\nmine\n", "draft.txt": "draft, better\n"}, task=1)
    upon.commit({"b.txt": "b is back\n", "new.txt": "n\n"}, task=2)
    applied = await apply(upon)
    assert applied.mode is Mode.PATCH
    assert content(repository)["a.txt"] == "ONE\ntwo\nthree\nmine\n"
    assert content(repository)["draft.txt"] == "draft, better\n"
    assert status(repository) == [" M a.txt", " M b.txt", "?? draft.txt", "?? new.txt"]
    await take_back(upon)
    assert fingerprint(repository) == before


async def test_work_beside_unsaved_work_can_be_committed_without_it(repository: Path, upon: Work) -> None:
    before = fingerprint(repository)
    head = git(repository, "rev-parse", "HEAD")
    upon.commit({"d/c.txt": "C\n"}, task=1, member="ben")
    upon.commit({"a.txt": "ONE\ntwo\nthree\nmine\n"}, task=2)
    await apply(upon, mode=Mode.MERGE)
    assert status(repository) == [" M a.txt", " D b.txt", "?? draft.txt"]
    assert git(repository, "show", "HEAD:a.txt") == "ONE\ntwo\nthree"
    assert content(repository)["a.txt"] == "ONE\ntwo\nthree\nmine\n"
    # Without the snapshot in its history.
    log = git(repository, "log", "--format=%an", f"{head}..HEAD")
    assert log == "Uma User\nana\nben"
    await take_back(upon)
    assert fingerprint(repository) == before


async def test_work_that_builds_on_unsaved_work_is_not_committed_without_it(repository: Path, upon: Work) -> None:
    upon.commit({"draft.txt": "draft, better\n"}, task=1)
    for mode in (Mode.MERGE, Mode.SQUASH):
        said = await refused(upon, mode=mode)
        assert said == (
            "not applied: what the team made in draft.txt builds on work that you have not committed; commit that "
            "first, or apply with --patch"
        )
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "mine")
    assert (await apply(upon)).mode is Mode.MERGE
    assert git(repository, "show", "HEAD:draft.txt") == "draft, better"
    assert status(repository) == []


async def test_unsaved_work_that_went_on_is_in_the_way(repository: Path, upon: Work) -> None:
    upon.commit({"draft.txt": "draft, better\n"}, task=1)
    write(repository, {"draft.txt": "draft, worse\n"})
    assert "unsaved work in draft.txt" in await refused(upon)


# -- what the user did meanwhile -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
async def test_what_was_committed_meanwhile_is_merged(repository: Path, work: Work, mode: Mode) -> None:
    work.commit({"a.txt": "ONE\ntwo\nthree\n", "b.txt": "B\n"}, task=1)
    write(repository, {"a.txt": "one\ntwo\nTHREE\n", "mine.txt": "m\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "mine")
    before = fingerprint(repository)
    await apply(work, mode=mode)
    assert content(repository)["a.txt"] == "ONE\ntwo\nTHREE\n"
    assert content(repository)["mine.txt"] == "m\n"
    await take_back(work)
    assert fingerprint(repository) == before


@pytest.mark.parametrize("mode", Mode)
async def test_a_conflict_is_told_before_anything_is_touched(repository: Path, work: Work, mode: Mode) -> None:
    work.commit({"a.txt": "ONE\ntwo\nthree\n", "b.txt": "B\n"}, task=1)
    write(repository, {"a.txt": "1\ntwo\nthree\n"})
    git(repository, "commit", "-qam", "mine")
    assert await refused(work, mode=mode) == (
        "not applied, nothing was touched: main and bullpen/demo both changed a.txt since the team began; "
        "`git merge bullpen/demo` lets you resolve it by hand"
    )


async def test_on_another_branch_only_the_teams_work_comes(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "old")
    write(repository, {"b.txt": "main went on\n"})
    git(repository, "commit", "-qam", "main")
    work = Work(repository, tmp_path / "place")
    work.commit({"a.txt": "ONE\n"}, task=1)
    git(repository, "checkout", "-q", "old")
    before = fingerprint(repository)
    await apply(work)
    assert content(repository)["a.txt"] == "ONE\n"
    assert content(repository)["b.txt"] == "b\n"
    assert git(repository, "log", "--format=%an", "main..old") == "Uma User\nana"
    await take_back(work)
    assert fingerprint(repository) == before


async def test_a_detached_head_moves_and_no_branch_does(repository: Path, work: Work) -> None:
    git(repository, "checkout", "-q", "--detach")
    before = fingerprint(repository)
    work.commit({"a.txt": "ONE\n"}, task=1)
    applied = await apply(work)
    assert git(repository, "rev-parse", "HEAD") == applied.commit
    assert git(repository, "rev-parse", "main") == work.trunk.base
    await take_back(work)
    assert fingerprint(repository) == before


async def test_what_came_later_is_applied_upon_what_was_applied(repository: Path, work: Work) -> None:
    """Again and again, each time in another way; undone in the reverse order."""
    states = []
    for number, mode in enumerate((Mode.PATCH, Mode.PATCH), 1):
        work.commit({"a.txt": f"{number}\n", f"n{number}.txt": "n\n"}, task=number)
        states.append(fingerprint(repository))
        await apply(work, mode=mode)
        assert content(repository)["a.txt"] == f"{number}\n"
    assert (await plan_of(work, mode=Mode.PATCH)).is_nothing
    while states:
        await take_back(work)
        assert fingerprint(repository) == states.pop()
    for number, mode in enumerate((Mode.SQUASH, Mode.MERGE, Mode.SQUASH), 3):
        work.commit({"a.txt": f"{number}\n"}, task=number)
        states.append(fingerprint(repository))
        await apply(work, mode=mode)
        assert content(repository)["a.txt"] == f"{number}\n"
    assert (await plan_of(work)).is_nothing
    while states:
        await take_back(work)
        assert fingerprint(repository) == states.pop()
    with pytest.raises(NotFound, match="nothing of bullpen/demo is applied"):
        await take_back(work)


async def test_what_the_user_merged_or_took_back_by_hand_is_seen(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    git(repository, "merge", "-q", "bullpen/demo")
    assert (await plan_of(work)).is_nothing
    work.commit({"a.txt": "TWO\n"}, task=2)
    assert len((await plan_of(work)).commits) == 1
    await apply(work, mode=Mode.SQUASH)
    git(repository, "reset", "-q", "--hard", "HEAD^")
    assert len((await plan_of(work)).commits) == 1
    await apply(work, mode=Mode.PATCH)
    git(repository, "checkout", "-q", ".")
    assert len((await plan_of(work, mode=Mode.PATCH)).commits) == 1


async def test_in_the_middle_of_something_else_nothing_is_applied(repository: Path, work: Work) -> None:
    work.commit({"b.txt": "B\n"}, task=1)
    git(repository, "checkout", "-qb", "other")
    write(repository, {"a.txt": "other\n"})
    git(repository, "commit", "-qam", "other")
    git(repository, "checkout", "-q", "main")
    write(repository, {"a.txt": "main\n"})
    git(repository, "commit", "-qam", "main")
    with pytest.raises(AssertionError):
        git(repository, "merge", "other")
    assert "a merge is going on" in await refused(work)
    git(repository, "merge", "--abort")
    (repository / ".git/index.lock").touch()
    with pytest.raises(Conflict, match=r"another git is at work in .*: wait for it, or remove .*index\.lock if"):
        await apply(work)
    (repository / ".git/index.lock").unlink()
    git(repository, "checkout", "-q", "bullpen/demo")
    assert "bullpen/demo itself is checked out: `git switch main`, then apply" in await refused(work)
    git(repository, "checkout", "-q", "--orphan", "fresh")
    assert "there is no commit on fresh yet" in await refused(work)


async def test_hooks_are_not_run_and_the_stash_stays(repository: Path, work: Work, tmp_path: Path) -> None:
    for name in ("pre-commit", "post-merge", "post-checkout", "reference-transaction", "pre-merge-commit"):
        hook = repository / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        hook.chmod(0o755)
    shutil.move(repository / ".git/hooks", tmp_path / "hooks")
    work.commit({"a.txt": "ONE\n"}, task=1)
    shutil.move(tmp_path / "hooks", repository / ".git/hooks")
    await apply(work)
    await take_back(work)
    assert not (tmp_path / "ran").exists()


async def test_without_a_name_for_the_user_nothing_is_committed(
    repository: Path, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    git(repository, "config", "--remove-section", "user")
    git(repository, "config", "user.useConfigOnly", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "git does not know who you are" in await refused(work)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "ada@example.org")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.org")
    await apply(work)
    assert git(repository, "log", "-1", "--format=%an") == "Ada"


async def test_a_sparse_checkout_stays_sparse(repository: Path, work: Work) -> None:
    work.commit({"d/c.txt": "C\n", "a.txt": "ONE\n"}, task=1)
    git(repository, "sparse-checkout", "set", "nothing")
    assert not (repository / "d").exists()
    before = fingerprint(repository)
    await apply(work)
    assert status(repository) == []
    assert not (repository / "d").exists()
    assert git(repository, "show", "HEAD:d/c.txt") == "C"
    await take_back(work)
    assert fingerprint(repository) == before


async def test_a_submodule_is_no_obstacle_and_its_files_are_left_alone(repository: Path, tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
    git(repository, "commit", "-qm", "submodule")
    write(repository, {"inner/a.txt": "mine\n"})
    work = Work(repository, tmp_path / "place")
    work.enter(work.tip)
    write(work.place, {"b.txt": "B\n"})
    first = git(inner, "rev-parse", "HEAD")
    write(inner, {"b.txt": "second\n"})
    git(inner, "commit", "-qam", "second")
    newer = git(inner, "rev-parse", "HEAD")
    git(work.place, "update-index", "--cacheinfo", f"160000,{newer},inner")
    git(work.place, "commit", "-qam", "both")
    git(repository, "update-ref", work.trunk.ref, git(work.place, "rev-parse", "HEAD"))
    assert git(repository, "rev-parse", "bullpen/demo:inner") == newer
    assert (await plan_of(work, mode=Mode.PATCH)).left == ("inner",)
    await apply(work)
    assert git(repository, "rev-parse", "HEAD:inner") == newer
    assert git(repository / "inner", "rev-parse", "HEAD") == first
    assert (repository / "inner/a.txt").read_text() == "mine\n"
    await take_back(work)
    assert git(repository, "rev-parse", ":inner") == first


async def test_another_worktree_of_the_users_is_applied_to_where_the_team_began(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    main = fingerprint(repository)
    work = Work(tmp_path / "side", tmp_path / "place")
    work.commit({"a.txt": "ONE\n"}, task=1)
    await apply(work)
    assert (tmp_path / "side/a.txt").read_text() == "ONE\n"
    assert status(tmp_path / "side") == []
    await take_back(work)
    assert status(tmp_path / "side") == []
    assert fingerprint(repository) == main


# -- undoing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
async def test_what_was_changed_since_is_not_destroyed(repository: Path, work: Work, mode: Mode) -> None:
    work.commit({"a.txt": "ONE\n", "b.txt": None, "new.txt": "n\n"}, task=1)
    await apply(work, mode=mode)
    write(repository, {"a.txt": "edited\n", "b.txt": "mine\n"})
    after = fingerprint(repository)
    with pytest.raises(Conflict, match=r"a\.txt, b\.txt: changed since, and undoing would destroy that"):
        await take_back(work)
    assert fingerprint(repository) == after


async def test_newer_commits_are_not_dropped(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    applied = await apply(work)
    write(repository, {"b.txt": "newer\n"})
    git(repository, "commit", "-qam", "newer")
    after = fingerprint(repository)
    with pytest.raises(Conflict, match=rf"main has 1 newer commit, .*`git revert -m 1 {str(applied.commit)[:7]}`"):
        await take_back(work)
    git(repository, "checkout", "-qb", "other")
    with pytest.raises(Conflict, match=r"applied to main, and you are on other: `git switch main`"):
        await take_back(work)
    git(repository, "checkout", "-q", "main")
    assert fingerprint(repository)["refs"].replace("refs/heads/other", "") != ""
    assert fingerprint(repository)["HEAD"] == after["HEAD"]


async def test_newer_work_elsewhere_survives_undoing(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    await apply(work)
    write(repository, {"b.txt": "staged since\n", "mine.txt": "m\n"})
    git(repository, "add", "b.txt")
    await take_back(work)
    assert status(repository) == ["M  b.txt", "?? mine.txt"]
    assert content(repository)["a.txt"] == FILES["a.txt"]


async def test_what_was_staged_in_these_files_since_is_not_destroyed(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    await apply(work)
    write(repository, {"a.txt": "staged\n"})
    git(repository, "add", "a.txt")
    write(repository, {"a.txt": "ONE\n"})
    with pytest.raises(Conflict, match=r"a\.txt: staged since"):
        await take_back(work)
    assert git(repository, "show", ":a.txt") == "staged"


async def test_the_branch_comes_back_if_nothing_else_would_hold_the_work(repository: Path, work: Work) -> None:
    work.commit({"a.txt": "ONE\n"}, task=1)
    tip = work.tip
    await apply(work)
    git(repository, "update-ref", "-d", work.trunk.ref)
    await take_back(work)
    assert work.tip == tip


# -- whatever is killed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.MERGE, Mode.PATCH])
async def test_cut_off_at_any_step_it_can_be_undone_or_repeated(
    repository: Path, work: Work, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename, each removal and each writing down is a place where the process may die."""
    write(repository, {"b.txt": "staged\n"})
    git(repository, "add", "b.txt")
    work.enter(work.tip)
    shutil.rmtree(work.place / "d")
    write(work.place, {"a.txt": "ONE\n", "d": "a file\n", "e/f.txt": "f\n"})
    git(repository, "update-ref", work.trunk.ref, work.save(task=1))
    before = fingerprint(repository)

    class Killed(BaseException):
        pass

    for deadly in range(1, 100):
        with monkeypatch.context() as patched:
            count = 0

            def counted(function: Any, deadly: int = deadly) -> Any:
                def call(*words: Any, **more: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == deadly:
                        raise Killed
                    return function(*words, **more)

                return call

            patched.setattr(os, "replace", counted(os.replace))
            patched.setattr(os, "unlink", counted(os.unlink))
            patched.setattr(Path, "unlink", counted(Path.unlink))
            patched.setattr(Path, "rmdir", counted(Path.rmdir))
            # Nobody is left to clean up.
            patched.setattr(Applications, "_roll_back", lambda *_: _nothing())
            try:
                await apply(work, mode=mode)
            except Killed:
                is_over = False
            else:
                is_over = True
        records = Applications(await Checkout.open(repository)).list_all()
        if deadly % 2 and not (records and records[-1].state is State.APPLIED):
            assert (await apply(work, mode=mode)).state is State.APPLIED
            assert (repository / "d").read_text() == "a file\n"
            records = Applications(await Checkout.open(repository)).list_all()
        if records:
            await take_back(work)
        assert fingerprint(repository) == before, f"killed at step {deadly}"
        assert "bullpen" not in " ".join(os.listdir(repository))
        if is_over:
            break
    assert deadly > 8


async def _nothing() -> None:
    pass


HOLDS_THE_LOCK = """
import asyncio, sys
from bullpen.workspaces.checkout import Checkout

async def main():
    checkout = await Checkout.open(sys.argv[1])
    async with checkout.locked():
        await checkout.git.run("-c", f"alias.wait=!cat {sys.argv[2]}", "wait")

asyncio.run(main())
"""


async def test_what_a_killed_apply_left_running_is_waited_for(
    repository: Path, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it writes while what it wrote is removed."""
    work.commit({"a.txt": "ONE\n"}, task=1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = (sys.executable, "-c", HOLDS_THE_LOCK, str(repository), str(gate))
    process = await asyncio.create_subprocess_exec(*words)
    opened = await _open_when_read(gate, process)
    process.kill()
    await process.wait()
    monkeypatch.setattr("bullpen.workspaces.checkout.LOCK_SECONDS", 0.1)
    with pytest.raises(Conflict, match="another git is at work"):
        await apply(work)
    monkeypatch.undo()
    os.close(opened)
    await apply(work)
    assert content(repository)["a.txt"] == "ONE\n"


async def _open_when_read(gate: Path, process: asyncio.subprocess.Process) -> int:
    """As soon as somebody waits for what comes through it."""
    while True:
        assert process.returncode is None
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            await asyncio.sleep(0.01)


async def test_a_failure_in_the_middle_leaves_everything_as_it_was(
    repository: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.commit({"a.txt": "ONE\n", "b.txt": "B\n", "new/x": "x\n"}, task=1)
    before = fingerprint(repository)
    replaced = os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith("b.txt") and not (repository / ".git/bullpen-apply").joinpath("1/full").exists():
            (repository / ".git/bullpen-apply/1/full").touch()
            raise OSError(28, "No space left on device")
        replaced(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(Conflict, match=r"nothing was applied: .*No space left on device"):
        await apply(work)
    assert fingerprint(repository) == before
    assert not (repository / ".git/bullpen-apply").exists()


async def test_a_file_that_is_saved_at_the_last_moment_is_kept(
    repository: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.commit({"a.txt": "ONE\n", "b.txt": "B\n"}, task=1)
    begin = Applications.begin

    async def begin_and_save(self: Applications, one: Application, new: Path) -> Application:
        begun = await begin(self, one, new)
        write(repository, {"b.txt": "saved just now\n"})
        return begun

    monkeypatch.setattr(Applications, "begin", begin_and_save)
    with pytest.raises(Conflict, match=r"nothing was applied: b\.txt was changed just now"):
        await apply(work)
    assert content(repository)["a.txt"] == FILES["a.txt"]
    assert content(repository)["b.txt"] == "saved just now\n"
    assert git(repository, "rev-parse", "HEAD") == work.trunk.base
