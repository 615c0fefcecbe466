"""What another program put where files of ours belong, or made its own: it must hold up no one but who writes there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bullpen.domain.member import MemberRef
from bullpen.domain.message import Message
from bullpen.errors import StoreUnavailable
from bullpen.stores.files import FilesStore
from tests.support.mounting import mounted
from tests.unit.stores.files_board import default_team, files, put, put_task, user_of


async def goes_on(store: FilesStore, user: MemberRef) -> None:
    task = await store.create_task(user, "goes on")
    assert await store.get_task(user.team_id, task.id) == task


@pytest.mark.parametrize("obstacle", [".tasks", ".teams/default", ".teams/default/.index"])
@pytest.mark.parametrize("is_link", [True, False])
async def test_a_board_that_has_no_place_is_told_to_who_uses_it_and_holds_up_no_other_team(
    tmp_path: Path, obstacle: str, is_link: bool
) -> None:
    async with files(tmp_path) as store:
        crew = user_of((await store.create_team("crew")).id)
        default = user_of((await store.create_team("default")).id)
        kept = tmp_path / "kept"
        if (tmp_path / obstacle).exists():
            (tmp_path / obstacle).rename(kept)
        if is_link:
            (tmp_path / obstacle).symlink_to("not/mounted")
        else:
            put(tmp_path / obstacle, "in the way")
        if obstacle != ".teams/default":
            with pytest.raises(StoreUnavailable, match="there is no place for a file"):
                await store.create_task(default, "never")
        await goes_on(store, crew)
        (tmp_path / obstacle).unlink()
        if kept.exists():
            kept.rename(tmp_path / obstacle)
        assert (await store.create_task(default, "again")).id == 1


async def test_a_board_that_can_be_written_no_more_holds_up_no_other_team_when_it_is_time_to_look_at_it(
    tmp_path: Path,
) -> None:
    put_task(tmp_path, 1)
    async with files(tmp_path) as store:
        crew = user_of((await store.create_team("crew")).id)
        default = user_of(await default_team(store))
        await store.create_task(default, "ours")
        default = user_of(await default_team(store))
        (tmp_path / ".tasks").rename(tmp_path / "kept")
        (tmp_path / ".tasks").mkdir()
        put_task(tmp_path, 7)
        (tmp_path / ".teams/default/.index").rename(tmp_path / "index")
        put(tmp_path / ".teams/default/.index", "in the way")
        assert store._writing.is_time_to_look()
        await goes_on(store, crew)
        with pytest.raises(StoreUnavailable, match=r"default/\.index"):
            await store.create_task(default, "never")
        (tmp_path / ".teams/default/.index").unlink()
        assert [task.id for task in await store.list_tasks(default.team_id)] == [7]
        assert (await store.create_task(default, "again")).id == 8


@pytest.mark.parametrize("place", [".tasks", ".teams"])
async def test_a_team_whose_files_are_mounted_is_not_made_anew_and_holds_up_no_other_team(
    tmp_path: Path, place: str
) -> None:
    with mounted(tmp_path / place):
        async with files(tmp_path) as store:
            crew = await store.create_team("crew")
            old = await store.create_team("default")
            await store.create_task(user_of(old.id), "old")
            await store.delete_team(user_of(old.id))
            with pytest.raises(StoreUnavailable, match="is mounted"):
                await store.create_team("default")
            await goes_on(store, user_of(crew.id))
            assert [task.subject for task in await store.list_tasks(old.id)] == ["old"]


async def test_a_team_that_has_no_place_to_go_is_not_made_anew_upon_what_it_had(tmp_path: Path) -> None:
    """Its tasks and its mail would be the new one's."""
    async with files(tmp_path) as store:
        old = await store.create_team("default")
        await store.create_task(user_of(old.id), "old")
        await store.delete_team(user_of(old.id))
        # Another program gives this team a board as all others have one.
        (tmp_path / ".teams/default/tasks").mkdir()
        with pytest.raises(StoreUnavailable, match=r"no place for a directory at .*/default/tasks:"):
            await store.create_team("default")
        assert [task.subject for task in await store.list_tasks(old.id)] == ["old"]
        (tmp_path / ".teams/default/tasks").rmdir()
        new = await store.create_team("default")
        assert await store.list_tasks(new.id) == []
        assert [task.subject for task in await store.list_tasks(old.id)] == ["old"]


async def test_a_team_that_is_made_deleted_and_made_again_at_once_needs_no_place_of_its_own_yet(tmp_path: Path) -> None:
    put_task(tmp_path, 1)
    async with files(tmp_path) as store:
        found = await default_team(store)
        steps = [store.delete_team(user_of(found)), store.create_team("default")]
        steps += [store.create_team("crew"), store.create_team("next")]
        teams = await asyncio.gather(*steps)
        assert [team.name for team in await store.list_teams()] == ["default", "crew", "next"]
        assert len({team.id for team in teams}) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("locked", [".tasks", ".teams/default/lead_inbox.jsonl"])
async def test_what_belongs_to_another_user_is_told_to_who_writes_there_and_holds_up_no_other_team(
    tmp_path: Path, locked: str
) -> None:
    path = tmp_path / locked
    async with files(tmp_path) as store:
        crew = user_of((await store.create_team("crew")).id)
        default = user_of((await store.create_team("default")).id)
        await store.create_task(default, "one")
        await store.send(default, "lead", "before")
        path.chmod(0o500)
        verb = store.create_task(default, "never") if path.is_dir() else store.send(default, "lead", "never")
        with pytest.raises(StoreUnavailable, match=f"{path.name} may not be written"):
            await verb
        await goes_on(store, crew)
        path.chmod(0o700)
        await store.create_task(default, "two")
        await store.send(default, "lead", "after")
        assert [task.subject for task in await store.list_tasks(default.team_id)][-1] == "two"
        assert [letter.content for letter in await store.list_mail(default.team_id, "lead")] == ["before", "after"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("locked", [".tasks", ".team", ".teams/other"])
async def test_a_team_of_another_user_hides_no_other_team(tmp_path: Path, locked: str) -> None:
    put_task(tmp_path, 1)
    put(tmp_path / ".team/config.json", {"members": ["alice"]})
    async with files(tmp_path) as store:
        crew = await store.create_team("crew")
        await store.create_team("other")
        await store.spawn_member(user_of(crew.id), "bob")
        (tmp_path / locked).chmod(0)
        assert "crew" in [team.name for team in await store.list_teams()]
        worker = await store.register_worker(slots=1)
        member = await store.host_member(worker.id)
        assert member is not None
        assert await store.hand_back_tasks() == []
        await goes_on(store, user_of(crew.id))
        (tmp_path / locked).chmod(0o700)
        assert [team.name for team in await store.list_teams()] == ["crew", "other", "default"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_an_inbox_of_another_user_holds_up_nobody_elses_mail_and_is_read_from_where_it_was_when_it_can_be(
    tmp_path: Path,
) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("default")
        user = user_of(team.id)
        for name in ("bob", "eve"):
            await store.spawn_member(user, name)
        worker = await store.register_worker(slots=2)
        bob, eve = [member.ref for member in await store.host_members(worker.id, limit=2)]
        inbox = put(tmp_path / ".team/inbox/bob.jsonl", [{"from": "alice", "content": "one"}])
        assert [message.content for message in await mail_of(store, bob)] == ["one"]
        inbox.chmod(0)
        for name in ("bob", "eve"):
            await store.send(user, name, "ours")
        assert await store.list_due_members(worker.id) == [bob, eve]
        assert (await store.get_snapshot(team.id)).mail_for == {"bob", "eve"}
        assert [message.content for message in await mail_of(store, bob)] == ["ours"]
        inbox.chmod(0o600)
        with inbox.open("a") as file:
            file.write('{"from": "alice", "content": "two"}\n')
        assert [message.content for message in await mail_of(store, bob)] == ["two"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
async def test_what_lies_behind_a_link_to_where_another_user_lets_nobody_look_holds_up_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0)
    put_task(tmp_path, 2)
    put(tmp_path / ".team/inbox/bob.jsonl", [{"from": "alice", "content": "one"}])
    for name in (".tasks/task_1.json", ".team/inbox/eve.jsonl", ".team/config.json"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere/file")
    async with files(tmp_path) as store:
        team = await store.find_team("default")
        assert team is not None
        assert (await store.create_task(user_of(team.id), "ours")).id == 3
        assert [task.id for task in await store.list_tasks(team.id)] == [2, 3]
        assert [message.content for message in await store.list_mail(team.id, "bob")] == ["one"]
        assert await store.list_mail(team.id, "eve") == []


async def mail_of(store: FilesStore, ref: MemberRef) -> Sequence[Message]:
    mail = await store.take_mail(ref)
    return () if mail is None else mail.messages
