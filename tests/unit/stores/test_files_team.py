"""Rosters: readable in one file while a team is small, one file for each member when it is large."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from bullpen.clock import FakeClock
from bullpen.domain.member import USER, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.request import RequestKind
from bullpen.domain.task import TaskStatus
from bullpen.errors import Conflict, LeaseLost, StoreUnavailable
from bullpen.maintenance.lapse import LapseWatch
from bullpen.stores.files.roster import LISTED
from tests.unit.stores.files_board import files, hosted, put, user_of


async def test_a_small_team_is_one_file_with_names_roles_and_states(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("crew", goal="ship it")
        await store.spawn_member(user_of(team.id), "ana", role="painter")
    config = json.loads((tmp_path / ".teams/crew/config.json").read_text())
    assert (config["name"], config["goal"]) == ("crew", "ship it")
    assert [(member["name"], member["role"], member["status"]) for member in config["members"]] == [
        ("lead", "lead", "idle"),
        ("user", "user", "idle"),
        ("ana", "painter", "wanted"),
    ]
    assert not (tmp_path / ".teams/crew/members").exists()


async def test_a_large_team_is_seen_alike_by_every_process(tmp_path: Path) -> None:
    clock = FakeClock()
    async with files(tmp_path, clock=clock) as one, files(tmp_path, clock=clock) as other:
        team = await one.create_team("crew")
        workers = {store: await store.register_worker() for store in (one, other)}
        names = [f"m{number}" for number in range(LISTED + 10)]
        refs = {}
        for index, name in enumerate(names):
            clock.advance(1)
            store = (one, other)[index % 2]
            refs[name] = (await store.join_member(workers[store].id, team.id, name)).ref
        assert [member.name for member in await other.list_members(team.id)] == ["lead", "user", *names]
        # One who stands in the config, and one who never did.
        for name in (names[0], names[-1]):
            await other.set_member_status(refs[name], MemberStatus.IDLE)
            assert (await one.get_member(team.id, name)).status is MemberStatus.IDLE
        await one.send(user_of(team.id), names[-1], "hello")
        assert (await other.get_member(team.id, names[0])).status is MemberStatus.IDLE
        await one.lapse_worker(workers[other].id, renewals_seen=None)
        states = {member.name: member.status for member in await other.list_members(team.id)}
        assert [states[name] for name in names[1::2]] == [MemberStatus.SHUTDOWN] * (len(names) // 2)
        assert MemberStatus.SHUTDOWN not in [states[name] for name in names[::2]]
    async with files(tmp_path, clock=clock) as store:
        assert len(await store.list_members(team.id)) == len(names) + 2


@pytest.mark.parametrize("is_deleted", [False, True], ids=["lives", "deleted"])
async def test_what_a_member_does_counts_also_when_its_team_is_no_longer_large(
    tmp_path: Path, is_deleted: bool
) -> None:
    inboxes = [tmp_path / f".teams/crew/stranger{number}_inbox.jsonl" for number in range(LISTED)]
    async with files(tmp_path) as store:
        team = await store.create_team("crew")
        ann = await hosted(store, team.id, "ann")
        for inbox in inboxes:
            put(inbox, [])
        await store.set_member_status(ann, MemberStatus.IDLE)
        # Strangers are members as long as their files are there, and the team is.
        if is_deleted:
            await store.delete_team(user_of(team.id))
        else:
            for inbox in inboxes:
                inbox.unlink()
        await store.shut_down_member(ann)
        assert (await store.get_member(team.id, "ann")).status is MemberStatus.SHUTDOWN
        with pytest.raises(LeaseLost):
            await store.take_mail(ann)


async def test_a_name_that_somebody_wrote_into_a_members_file_never_leads_out_of_the_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    async with files(directory) as store:
        team = await store.create_team("crew")
        worker = await store.register_worker()
        for number in range(LISTED):
            await store.join_member(worker.id, team.id, f"m{number}")
        record = max((directory / ".teams/crew/members").iterdir())
        put(directory / ".teams/crew/members/odd.json", {**json.loads(record.read_text()), "name": "../../../out"})
        receipts = await store.send(user_of(team.id), None, "to all", type=MessageType.BROADCAST)
        assert len(receipts) == LISTED + 1
    assert os.listdir(tmp_path) == ["store"]


async def test_what_lies_beside_the_records_of_members_is_no_member_and_hides_none(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("crew", settings={"max_teammates": LISTED + 5})
        for number in range(LISTED + 5):
            await store.spawn_member(user_of(team.id), f"m{number}")
        before = await store.list_members(team.id)
    directory = tmp_path / ".teams/crew/members"
    newest = f"m{LISTED + 4}"
    for name in (f"{newest}.json~", f"{newest}.json.orig", f"{newest} (copy).json", f"{newest}-copy.json"):
        shutil.copy(directory / f"{newest}.json", directory / name)
    for number in range(20):
        (directory / f"nobody{number}.json").symlink_to("nothing")
    async with files(tmp_path) as store:
        assert await store.list_members(team.id) == before


@pytest.mark.parametrize("damage", ["<<<<<<< HEAD", '{"name": "NAME", "kind": "emperor"}'])
async def test_a_record_of_a_member_that_was_damaged_is_told_and_not_written_over(tmp_path: Path, damage: str) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("crew", settings={"max_teammates": LISTED + 5})
        for number in range(LISTED + 5):
            await store.spawn_member(user_of(team.id), f"m{number}")
        whole = await store.create_team("whole")
    newest = f"m{LISTED + 4}"
    record = put(tmp_path / f".teams/crew/members/{newest}.json", damage.replace("NAME", newest))
    kept = record.read_bytes()
    async with files(tmp_path) as store:
        with pytest.raises(StoreUnavailable, match=f"{newest}.json is .*repair it"):
            await store.find_team("crew")
        assert [found.id for found in await store.list_teams()] == [whole.id]
        await store.spawn_member(user_of(whole.id), "bob")
    assert record.read_bytes() == kept


async def test_a_change_that_was_refused_leaves_a_large_roster_as_it_was(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("crew", settings={"max_teammates": LISTED + 5})
        for number in range(LISTED + 5):
            await store.spawn_member(user_of(team.id), f"m{number}")
        before = await store.list_members(team.id)
        for name in ("late", "later"):
            try:
                await store.spawn_member(user_of(team.id), name)
            except Conflict:
                continue
            raise AssertionError("there was no room")
        assert await store.list_members(team.id) == before


COUNTERS = [
    None,
    "<<<<<<< HEAD",
    '{"next_team_id": null, "next_worker_id": "2"}',
    '{"next_team_id": 2, "next_worker_id": 1}',
]


@pytest.mark.parametrize("left", COUNTERS)
async def test_no_id_comes_twice_where_the_counters_were_left_behind(tmp_path: Path, left: str | None) -> None:
    """A copy without the files whose names begin with a dot, a merge that nobody finished, or what git had of them."""
    async with files(tmp_path) as store:
        teams = [await store.create_team(name) for name in ("crew", "troop")]
        host = await store.register_worker()
        await store.join_member(host.id, teams[0].id, "ana")
        shutil.copytree(tmp_path / ".teams", tmp_path / "copy/.teams", ignore=shutil.ignore_patterns(".*"))
    if left is not None:
        (tmp_path / "copy/.teams/.store.json").write_text(left)
    async with files(tmp_path / "copy") as store:
        new = await store.create_team("new")
        assert [(team.id, team.name) for team in await store.list_teams()] == [
            (teams[0].id, "crew"),
            (teams[1].id, "troop"),
            (new.id, "new"),
        ]
        await store.create_task(user_of(new.id), "its own")
        assert await store.list_tasks(teams[0].id) == []
        worker = await store.register_worker()
        assert worker.id != host.id, "or it would be taken for the host of ana"
        assert (await store.join_member(worker.id, teams[0].id, "ana")).worker_id == worker.id


async def test_a_worker_that_has_stopped_keeps_its_number_where_the_counters_are_older(tmp_path: Path) -> None:
    counters = tmp_path / ".teams/.store.json"
    async with files(tmp_path) as store:
        team = await store.create_team("crew")
        first = await store.register_worker()
        before = counters.read_bytes()
        stopped, alive = [await store.register_worker() for _ in range(2)]
        await store.stop_worker(stopped.id)
        ana = await store.join_member(alive.id, team.id, "ana")
        counters.write_bytes(before)
        new = await store.register_worker()
        assert new.id not in (first.id, stopped.id, alive.id)
        assert (await store.renew_worker(alive.id)).token == alive.token
        assert (await store.get_member(team.id, "ana")).ref == ana.ref


async def test_mail_and_requests_go_on_where_another_program_wrote_its_record_over_ours(tmp_path: Path) -> None:
    """As the seeds' programs do when they make a team of a name that is there, and empty its inboxes."""
    async with files(tmp_path) as store:
        team = await store.create_team("crew")
        bob = await hosted(store, team.id, "bob")
        await store.send(user_of(team.id), "bob", "old")
        await store.take_mail(bob)
        await store.open_request(bob, RequestKind.PERMISSION, USER, content="old")
    put(tmp_path / ".teams/crew/config.json", {"name": "crew", "members": [{"name": "bob", "status": "idle"}]})
    put(tmp_path / ".teams/crew/bob_inbox.jsonl", "")
    async with files(tmp_path) as store:
        found = await store.find_team("crew")
        assert found is not None
        await store.send(user_of(found.id), "bob", "new")
        bob = await hosted(store, found.id, "bob")
        mail = await store.take_mail(bob)
        assert mail is not None
        assert [message.content for message in mail.messages] == ["new"]
        await store.open_request(bob, RequestKind.PERMISSION, USER, content="new")
        assert [request.content for request in await store.list_requests(found.id)] == ["old", "new"]


@pytest.mark.parametrize("brought_back", [None, "crew"])
async def test_whose_worker_left_no_record_is_lapsed_like_any_other(tmp_path: Path, brought_back: str | None) -> None:
    """A copy without the files whose names begin with a dot, or a team as it was before its worker stopped."""
    here, there = tmp_path / "here", tmp_path / "there"
    async with files(here) as store:
        team = (await store.create_team("crew")).id
        bob = await hosted(store, team, "bob")
        for subject in ("begun", "next"):
            await store.create_task(user_of(team), subject)
        await store.claim_next_task(bob)
        shutil.copytree(here / ".teams", there / ".teams", ignore=shutil.ignore_patterns(".*"))
    if brought_back is not None:
        shutil.rmtree(here / ".teams/crew")
        shutil.move(there / ".teams/crew", here / ".teams/crew")
        there = here
    async with files(there) as store:
        before = await store.get_member(team, "bob")
        assert before.status is MemberStatus.WORKING
        assert [worker.id for worker in await store.list_workers()] == [before.worker_id]
        with pytest.raises(LeaseLost):
            await store.renew_worker(before.worker_id or 0)
        [lapsed] = await LapseWatch(store).look()
        assert (lapsed.name, lapsed.status, lapsed.worker_id) == ("bob", MemberStatus.WANTED, None)
        assert await store.list_workers() == []
        with pytest.raises(LeaseLost):
            await store.complete_task(before.ref, 1)
        assert (await store.get_task(team, 1)).status is TaskStatus.PENDING
        worker = await store.register_worker(slots=1)
        again = await store.host_member(worker.id, team_id=team)
        assert again is not None
        assert (await store.claim_task(again.ref, 1)).owner == "bob"
        assert [one.id for one in await store.list_workers(include_stopped=True)] == [before.worker_id, worker.id]
