"""Claims over markers: no scan, and never a task that its file does not give away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bullpen.domain.member import MemberStatus
from bullpen.domain.task import TaskChanges, TaskStatus
from bullpen.stores.files import FilesStore
from tests.unit.stores.files_board import files, hosted, put_task, user_of


async def a_board(store: FilesStore, count: int = 0) -> int:
    team = await store.create_team("default")
    for number in range(1, count + 1):
        await store.create_task(user_of(team.id), f"task {number}")
    return team.id


async def test_a_claim_opens_a_handful_of_files_however_large_the_board_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 301):
        put_task(tmp_path, number, role="painter" if number % 2 else None)
    async with files(tmp_path) as store:
        team = await store.find_team("default")
        assert team is not None
        bob = await hosted(store, team.id, "bob", role="painter")
        assert await store.claim_next_task(bob) is not None
        await store.complete_task(bob, 1)
        opened: list[str] = []
        real_open = open

        def counting(path: object, *args: object, **kwargs: object) -> object:
            opened.append(str(path))
            return real_open(path, *args, **kwargs)  # type: ignore[call-overload]

        monkeypatch.setattr("builtins.open", counting)
        task = await store.claim_next_task(bob)
        monkeypatch.undo()
        assert task is not None
        assert task.id == 2
        assert len([path for path in opened if "task_" in path]) <= 5


async def test_what_is_assigned_comes_first_then_the_lowest_number_of_its_role_or_none(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await a_board(store)
        user = user_of(team)
        bob = await hosted(store, team, "bob", role="Back End")
        await store.create_task(user, "not his", role="painter")
        await store.create_task(user, "anyone's")
        await store.create_task(user, "his role's", role="back-end")
        await store.create_task(user, "blocked", blocked_by=[1], owner="bob")
        await store.create_task(user, "his own", owner="bob")
        await store.create_task(user, "the lead's", owner="lead")
        taken = []
        while (task := await store.claim_next_task(bob)) is not None:
            taken.append(task.id)
            await store.complete_task(bob, task.id)
        assert taken == [5, 2, 3]
        await store.complete_task(user, 1)
        freed = await store.claim_next_task(bob)
        assert freed is not None
        assert freed.id == 4


async def test_a_marker_follows_role_owner_and_blockers(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await a_board(store, 3)
        user = user_of(team)
        bob = await hosted(store, team, "bob", role="painter")
        await store.update_task(user, 1, TaskChanges(role="plumber"))
        await store.update_task(user, 2, TaskChanges(owner="lead"))
        await store.update_task(user, 3, TaskChanges(add_blocked_by=(1,)))
        assert await store.claim_next_task(bob) is None
        await store.update_task(user, 3, TaskChanges(remove_blocked_by=(1,)))
        third = await store.claim_next_task(bob)
        assert third is not None
        assert third.id == 3
        await store.release_task(bob, 3)
        await store.update_task(user, 1, TaskChanges(role="Painter"))
        first = await store.claim_next_task(bob)
        assert first is not None
        assert first.id == 1


async def test_markers_that_were_removed_are_made_again(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await a_board(store, 3)
        bob = await hosted(store, team, "bob")
        assert await store.claim_next_task(bob) is not None
    shutil.rmtree(tmp_path / ".teams/default/.index")
    async with files(tmp_path) as store:
        worker = await store.register_worker(slots=1)
        member = await store.host_member(worker.id, team_id=team)
        assert member is not None
        await store.complete_task(member.ref, 1)
        task = await store.claim_next_task(member.ref)
        assert task is not None
        assert task.id == 2


OLDER: list[tuple[str, ...]] = [("task_1.json", "task_2.json"), ("task_2.json",)]


@pytest.mark.parametrize("brought_back", OLDER)
@pytest.mark.parametrize("is_open", [True, False], ids=["meanwhile", "between"])
async def test_tasks_that_are_brought_back_as_they_were_can_be_claimed_again(
    tmp_path: Path, brought_back: tuple[str, ...], is_open: bool
) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        user = user_of(team)
        await store.create_task(user, "first")
        await store.create_task(user, "second", blocked_by=[1])
        before = {name: (tmp_path / ".tasks" / name).read_bytes() for name in brought_back}
        for number in (1, 2):
            await store.complete_task(user, number)
        if is_open:
            bring_back(tmp_path, before)
            await claim_the_rest(store, team)
    if not is_open:
        bring_back(tmp_path, before)
        async with files(tmp_path) as store:
            await claim_the_rest(store, team)


async def test_a_task_that_a_backup_brings_back_with_its_old_time_can_be_claimed_again(tmp_path: Path) -> None:
    task, backup = tmp_path / ".tasks/task_1.json", tmp_path / "backup.json"
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        await store.create_task(user_of(team), "first")
    # Written long ago: nobody reads it again for its youth.
    os.utime(task, (1, 1))
    shutil.copy2(task, backup)
    async with files(tmp_path) as store:
        await store.complete_task(user_of(team), 1)
        backup.rename(task)
        await claim_the_rest(store, team)


async def test_a_blocker_that_alone_is_brought_back_completed_holds_nobody(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    async with files(here) as store:
        team = (await store.create_team("default")).id
        user = user_of(team)
        await store.create_task(user, "first")
        await store.create_task(user, "second", blocked_by=[1])
    shutil.copytree(here, there)
    async with files(there) as store:
        await store.complete_task(user, 1)
    for path in (here / ".tasks").iterdir():
        # Written long ago: nobody reads it again for its youth.
        os.utime(path, (1, 1))
    async with files(here) as store:
        bob = await hosted(store, team, "bob")
        await store.create_task(user, "third", role="painter")
        bring_back(here, {"task_1.json": (there / ".tasks/task_1.json").read_bytes()})
        task = await store.claim_next_task(bob)
        assert task is not None
        assert task.id == 2


def bring_back(directory: Path, content: dict[str, bytes]) -> None:
    """As git and backups do: by replacing the file."""
    for name, data in content.items():
        (directory / "brought").write_bytes(data)
        (directory / "brought").rename(directory / ".tasks" / name)


async def claim_the_rest(store: FilesStore, team: int) -> None:
    left = [task.id for task in await store.list_tasks(team) if task.status is TaskStatus.PENDING]
    bob = await hosted(store, team, "bob")
    for number in left:
        task = await store.claim_next_task(bob)
        assert task is not None
        assert task.id == number
        await store.complete_task(bob, number)
    assert left


async def test_stale_markers_are_passed_over(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await a_board(store, 2)
        bob = await hosted(store, team, "bob")
        await store.complete_task(user_of(team), 1)
        for stale in (1, 77, 5000):
            shard = tmp_path / f".teams/default/.index/ready/any/{stale // 1000}"
            shard.mkdir(parents=True, exist_ok=True)
            (shard / str(stale)).touch()
        task = await store.claim_next_task(bob)
        assert task is not None
        assert task.id == 2
        await store.complete_task(bob, 2)
        assert await store.claim_next_task(bob) is None


async def test_owners_and_roles_of_any_text_become_no_paths(tmp_path: Path) -> None:
    put_task(tmp_path, 1, owner="../../../etc/passwd")
    put_task(tmp_path, 2, role="a/../../b " + "x" * 180)
    put_task(tmp_path, 3, owner="Ünï Cödé", status="in_progress")
    async with files(tmp_path) as store:
        team = await store.find_team("default")
        assert team is not None
        bob = await hosted(store, team.id, "bob", role="a/../../b " + "x" * 180)
        task = await store.claim_next_task(bob)
        assert task is not None
        assert task.id == 2
    inside = {path.name for path in tmp_path.iterdir()}
    assert inside == {".tasks", ".teams"}
    assert not any(".." in name for _, names, _ in os.walk(tmp_path) for name in names)


async def test_a_member_leaves_only_if_no_task_could_become_its(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await a_board(store)
        user = user_of(team)
        bob = await hosted(store, team, "bob", role="painter")
        await store.set_member_status(bob, MemberStatus.IDLE)
        await store.create_task(user, "somebody else's", role="plumber")
        await store.create_task(user, "blocked, but his", role="painter", blocked_by=[1])
        assert await store.leave_if_nothing(bob) == "task"
        await store.delete_task(user, 2)
        assert await store.leave_if_nothing(bob) is None


async def test_two_store_objects_see_each_others_writes_at_once(tmp_path: Path) -> None:
    async with files(tmp_path) as one, files(tmp_path) as other:
        team = await a_board(one, 4)
        bob = await hosted(one, team, "bob")
        eve = await hosted(other, team, "eve")
        taken = []
        for store, ref in ((one, bob), (other, eve), (one, bob), (other, eve)):
            task = await store.claim_next_task(ref)
            assert task is not None
            await store.complete_task(ref, task.id)
            taken.append(task.id)
        assert taken == [1, 2, 3, 4]
        assert await other.claim_next_task(eve) is None
