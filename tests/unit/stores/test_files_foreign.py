"""Boards and rosters that the seeds' own programs, people and accidents left behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberKind, MemberStatus
from bullpen.domain.message import MessageType
from bullpen.domain.task import Task, TaskChanges, TaskStatus
from bullpen.domain.transcript import TurnKind
from bullpen.errors import AlreadyClaimed, Conflict, NotFound, StoreUnavailable
from bullpen.stores.files.board import Board
from bullpen.stores.files.reconcile import _Pass
from bullpen.tools.handover import hand_over, list_blockers
from tests.unit.stores.files_board import (
    content_of,
    default_team,
    events_of,
    files,
    hosted,
    kinds,
    put,
    put_task,
    user_of,
)


async def test_a_directory_that_does_not_exist_is_an_empty_store_and_stays_missing(tmp_path: Path) -> None:
    async with files(tmp_path / "none") as store:
        assert await store.list_teams() == []
        assert await store.find_team("default") is None
        assert await store.list_workers() == []
    assert not (tmp_path / "none").exists()


async def test_looking_at_a_foreign_board_writes_nothing(tmp_path: Path) -> None:
    put_task(tmp_path, 1, status="pending", owner="")
    put(tmp_path / ".team" / "config.json", {"team_name": "x", "members": [{"name": "alice", "role": "coder"}]})
    put(tmp_path / ".team" / "inbox" / "alice.jsonl", [{"type": "message", "from": "lead", "content": "hi"}])
    before = content_of(tmp_path)
    async with files(tmp_path) as store:
        team = await default_team(store)
        await store.list_tasks(team)
        await store.list_mail(team, "alice")
        await store.list_members(team)
        await store.list_events(team)
    assert content_of(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tasks", ".team"]


@pytest.mark.parametrize("depth", [200, 400, 800])
async def test_what_is_nested_too_deeply_to_be_written_back_is_left_alone_and_the_rest_goes_on(
    tmp_path: Path, depth: int
) -> None:
    deep: Any = "deep"
    for _ in range(depth):
        deep = [deep]
    put_task(tmp_path, 1, status="pending", owner="", note=deep)
    put_task(tmp_path, 2, status="pending", owner="")
    put(tmp_path / ".team" / "config.json", {"members": [{"name": "alice", "note": deep}]})
    letters = [{"from": "lead", "content": content, "note": note} for content, note in (("odd", deep), ("hi", 1))]
    put(tmp_path / ".team" / "inbox" / "user.jsonl", letters)
    before = (tmp_path / ".tasks" / "task_1.json").read_bytes()
    async with files(tmp_path) as store:
        user = user_of(await default_team(store))
        assert (await store.create_task(user, "new")).id == 3
        user = user_of(await default_team(store))
        assert [task.id for task in await store.list_tasks(user.team_id)] == [2, 3]
        assert (await store.claim_task(user, 2)).owner == "user"
        offered = await store.list_offered_mail(user)
        assert [message.content for message in offered] == ["hi"]
        await store.acknowledge_mail(user, [offered[0].id])
        await store.send(user, "lead", "go on")
        assert EventKind.TASK_QUARANTINED in await kinds(store, user.team_id)
    assert (tmp_path / ".tasks" / "task_1.json").read_bytes() == before


async def test_a_foreign_team_has_the_same_id_at_every_look_and_keeps_it_when_it_is_adopted(tmp_path: Path) -> None:
    put_task(tmp_path, 1)
    async with files(tmp_path) as store:
        first = await default_team(store)
    async with files(tmp_path) as store:
        assert await default_team(store) == first
        await store.create_task(user_of(first), "ours")
        assert await default_team(store) == first
    assert json.loads((tmp_path / ".teams/default/config.json").read_text())["id"] == first


VARIANTS: list[dict[str, Any]] = [
    {},
    {"id": "1"},
    {"status": "pending", "owner": "", "blockedBy": []},
    {"status": "Pending", "owner": None},
    {"status": "PENDING", "blocked_by": []},
    {"blockedBy": [99]},
    {"blockedBy": ["99", "x", None]},
    {"blocked_by": [1]},
    {"blockedBy": ["#1"]},
    {"blockedBy": None},
    {"id": 7},
    {"owner": "   "},
    {"id": 1.0, "blockedBy": [3.5, 1e300, 99.0, True, -2, [2]]},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=json.dumps)
async def test_a_task_that_nobody_holds_can_be_claimed_however_it_is_written(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    put_task(tmp_path, 1, **fields)
    async with files(tmp_path) as store:
        team = await default_team(store)
        claimer = await hosted(store, team, "bob")
        task = await store.claim_next_task(claimer)
        assert task is not None
        assert (task.id, task.owner, task.status) == (1, "bob", TaskStatus.IN_PROGRESS)


HELD: list[dict[str, Any]] = [
    {"status": "in_progress", "owner": "ana"},
    {"status": "In-Progress", "owner": "ana"},
    {"owner": "ana"},
    {"status": "completed"},
    {"status": "Done"},
    {"blockedBy": [2]},
    {"blocked_by": ["2"]},
    {"blockedBy": ["#2", 3]},
    {"blockedBy": [2.0]},
]


@pytest.mark.parametrize("fields", HELD, ids=json.dumps)
async def test_a_task_that_is_held_blocked_or_finished_is_not_claimed(tmp_path: Path, fields: dict[str, Any]) -> None:
    put_task(tmp_path, 1, **fields)
    put_task(tmp_path, 2, status="in_progress", owner="ana")
    put_task(tmp_path, 3, status="completed")
    async with files(tmp_path) as store:
        team = await default_team(store)
        claimer = await hosted(store, team, "bob")
        assert await store.claim_next_task(claimer) is None
        with pytest.raises(AlreadyClaimed):
            await store.claim_task(claimer, 1)


async def test_ids_sort_as_numbers_and_are_claimed_in_that_order(tmp_path: Path) -> None:
    for number in (10, 2, 1, 30):
        put_task(tmp_path, number)
    async with files(tmp_path) as store:
        team = await default_team(store)
        assert [task.id for task in await store.list_tasks(team)] == [1, 2, 10, 30]
        claimer = await hosted(store, team, "bob")
        taken = []
        while (task := await store.claim_next_task(claimer)) is not None:
            taken.append(task.id)
            await store.complete_task(claimer, task.id)
        assert taken == [1, 2, 10, 30]
        assert (await store.create_task(user_of(team), "next")).id == 31


async def test_completing_a_foreign_blocker_frees_its_dependents(tmp_path: Path) -> None:
    put_task(tmp_path, 1)
    put_task(tmp_path, 2, blockedBy=[1])
    put_task(tmp_path, 3, blocked_by=["1", "2"])
    async with files(tmp_path) as store:
        team = await default_team(store)
        assert [task.open_blockers for task in await store.list_tasks(team)] == [0, 1, 2]
        user = user_of(team)
        await store.complete_task(user, 1)
        assert [task.open_blockers for task in await store.list_tasks(team)] == [0, 0, 1]
        await store.delete_task(user, 2)
        assert (await store.get_task(team, 3)).open_blockers == 0
        assert (await store.get_task(team, 1)).blocks == (2, 3)


async def test_a_board_written_back_by_a_program_with_floating_numbers_only_is_the_same_board(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        user = user_of(team)
        await store.create_task(user, "blocker", check="true")
        await store.create_task(user, "dependent", blocked_by=[1])
        bob = await hosted(store, team, "bob")
        await store.claim_next_task(bob)
        run = await store.start_check(bob, 1)
        assert run is not None
    for path in (tmp_path / ".tasks").iterdir():
        path.write_text(json.dumps(json.loads(path.read_text(), parse_int=float)))
    async with files(tmp_path) as store:
        tasks = await store.list_tasks(team)
        assert [(task.id, task.blocked_by, task.blocks, task.open_blockers) for task in tasks] == [
            (1, (), (2,), 0),
            (2, (1,), (), 1),
        ]
        assert tasks[0].attempt == run.attempt == 1
        assert (await store.update_task(user, 1, TaskChanges(description="more"))).id == 1
    assert '"id": 1,' in (tmp_path / ".tasks/task_1.json").read_text()


async def test_unknown_fields_and_spellings_survive_an_update(tmp_path: Path) -> None:
    path = put_task(tmp_path, 1, blocked_by=[9], active_form="Painting", colour={"r": 1}, priority="high", owner="")
    async with files(tmp_path) as store:
        team = await default_team(store)
        task = await store.update_task(user_of(team), 1, TaskChanges(description="all of it"))
        assert task.extra == {"colour": {"r": 1}, "priority": "high"}
        assert task.active_form == "Painting"
    raw = json.loads(path.read_text())
    assert raw["colour"] == {"r": 1}
    assert raw["priority"] == "high"
    assert raw["blocked_by"] == [9]
    assert raw["active_form"] == "Painting"
    assert raw["description"] == "all of it"
    assert "blockedBy" not in raw
    assert "activeForm" not in raw


async def test_what_we_do_not_change_stays_as_its_writer_wrote_it(tmp_path: Path) -> None:
    odd = {"id": "1", "owner": "", "status": "Pending", "description": "\0" + "x" * 1_000_001, "blocks": ["2", "?"]}
    seconds = {"created_at": 1709234567.5, "updated_at": 1709234567}
    first = put_task(tmp_path, 1, **odd, **seconds)
    second = put_task(tmp_path, 2, id="2", blockedBy=["1", None])
    put_task(tmp_path, 3, id="3")
    async with files(tmp_path) as store:
        team = await default_team(store)
        user = user_of(team)
        changed = await store.update_task(user, 1, TaskChanges(active_form="Testing", add_blocks=(3,)))
        assert await store.get_task(team, 1) == changed
        await store.update_task(user, 2, TaskChanges(add_blocked_by=(3,)))
        assert [task.blocked_by for task in await store.list_tasks(team)] == [(), (1, 3), (1,)]
    raw = json.loads(first.read_text())
    assert {key: raw[key] for key in odd} == {**odd, "blocks": ["2", "?", "3"]}
    assert (raw["created_at"], raw["updated_at"]) == (seconds["created_at"], changed.updated_at.timestamp())
    assert json.loads(second.read_text())["blockedBy"] == ["1", None, "3"]


async def test_our_tasks_have_the_keys_that_the_seeds_programs_look_at(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("default")
        user = user_of(team.id)
        await store.create_task(user, "first", active_form="Doing")
        await store.create_task(user, "second", blocked_by=[1])
    first, second = (json.loads((tmp_path / f".tasks/task_{number}.json").read_text()) for number in (1, 2))
    assert (first["id"], first["subject"], first["status"], first["owner"]) == (1, "first", "pending", None)
    assert (first["activeForm"], first["blocks"], first["blockedBy"]) == ("Doing", [2], [])
    assert second["blockedBy"] == [1]


@pytest.mark.parametrize("content", ['{"id": 2, "sub', "", "[1, 2]", '{"status": "sideways"}', "\x00\xff"])
async def test_a_file_that_is_no_task_is_told_once_left_alone_and_holds_its_dependents(
    tmp_path: Path, content: str
) -> None:
    put_task(tmp_path, 1)
    torn = put(tmp_path / ".tasks/task_2.json", content)
    put_task(tmp_path, 3, blockedBy=[2])
    kept = torn.read_bytes()
    for _ in range(2):
        async with files(tmp_path) as store:
            team = await default_team(store)
            assert [task.id for task in await store.list_tasks(team)][:2] == [1, 3]
            await store.create_task(user_of(team), "ours")
            told = await events_of(store, team, EventKind.TASK_QUARANTINED)
            assert [event.data["file"] for event in told] == ["task_2.json"]
            with pytest.raises(NotFound):
                await store.get_task(team, 2)
            assert (await store.get_task(team, 3)).open_blockers == 1
    assert torn.read_bytes() == kept


NO_FILES: dict[str, Callable[[Path], None]] = {
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link through a file": lambda path: path.symlink_to(f"{__file__}/nothing"),
    "a link to what no file can be called": lambda path: path.symlink_to("x" * 300),
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": lambda path: _bind(path),
}


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize(("link", "task"), [(2, 1), (1, 2)])
async def test_what_is_no_file_is_told_once_and_stops_no_other_task(
    tmp_path: Path, link: int, task: int, kind: str
) -> None:
    put_task(tmp_path, task)
    NO_FILES[kind](tmp_path / f".tasks/task_{link}.json")
    for _ in range(2):
        async with files(tmp_path) as store:
            team = await default_team(store)
            await store.create_task(user_of(team), "ours")
            assert [found.id for found in await store.list_tasks(team)][:2] == [task, 3]
            told = await events_of(store, team, EventKind.TASK_QUARANTINED)
            assert [event.data["file"] for event in told] == [f"task_{link}.json"]
            with pytest.raises(NotFound):
                await store.get_task(team, link)


async def test_a_file_that_is_emptied_to_be_written_anew_while_it_is_taken_up_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = put_task(tmp_path, 1)
    settle = _Pass.settle

    def settle_late(found: _Pass) -> list[Task]:
        task.write_text("")
        return settle(found)

    async with files(tmp_path) as store:
        team = await default_team(store)
        with monkeypatch.context() as patch:
            patch.setattr(_Pass, "settle", settle_late)
            await store.create_task(user_of(team), "ours")
        put_task(tmp_path, 1, subject="anew", status="completed")
    async with files(tmp_path) as store:
        await store.create_task(user_of(team), "another", blocked_by=[1])
        assert [task.subject for task in await store.list_tasks(team)] == ["anew", "ours", "another"]
        assert (await store.get_task(team, 3)).open_blockers == 0


@pytest.mark.parametrize("half", ["", '{"id": 1, "sub'])
async def test_what_is_being_written_in_place_just_now_is_read_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    task = put_task(tmp_path, 1, role="painter")
    roster = put(tmp_path / ".team/config.json", {"members": ["alice"]})
    whole = {path: path.read_text() for path in (task, roster)}

    def write_on(_: float) -> None:
        for path, text in whole.items():
            path.write_text(text)

    async with files(tmp_path) as store:
        team = await default_team(store)
        monkeypatch.setattr("time.sleep", write_on)
        task.write_text(half)
        assert [found.role for found in await store.list_tasks(team)] == ["painter"]
        task.write_text(half)
        roster.write_text(half)
        assert (await store.update_task(user_of(team), 1, TaskChanges(description="red"))).description == "red"
        assert "alice" in {member.name for member in await store.list_members(team)}


@pytest.mark.parametrize("is_removed", [True, False])
async def test_a_verb_whose_file_is_gone_before_it_is_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    task = put_task(tmp_path, 1)
    update = Board.update

    def update_late(board: Board, changed: Task) -> None:
        task.write_text("")
        os.utime(task, (0, 0))
        if is_removed:
            task.unlink()
        update(board, changed)

    async with files(tmp_path) as store:
        team = await default_team(store)
        await store.create_task(user_of(team), "another")
        monkeypatch.setattr(Board, "update", update_late)
        with pytest.raises(StoreUnavailable, match="another program"):
            await store.complete_task(user_of(team), 1)
        assert EventKind.TASK_COMPLETED not in await kinds(store, team)


async def test_a_torn_file_that_is_whole_again_is_taken_up(tmp_path: Path) -> None:
    put_task(tmp_path, 1)
    put(tmp_path / ".tasks/task_2.json", '{"id": 2, ')
    async with files(tmp_path) as store:
        team = await default_team(store)
        await store.create_task(user_of(team), "three")
        put_task(tmp_path, 2, role="painter")
    async with files(tmp_path) as store:
        painter = await hosted(store, team, "pia", role="painter")
        await store.complete_task(user_of(team), 1)
        task = await store.claim_next_task(painter)
        assert task is not None
        assert task.id == 2


async def test_of_two_files_that_claim_one_id_each_is_the_task_of_its_file_name(tmp_path: Path) -> None:
    put_task(tmp_path, 3, subject="three")
    put(tmp_path / ".tasks/task_7.json", {"id": 3, "subject": "says three"})
    put(tmp_path / ".tasks/task_03.json", {"id": 3, "subject": "padded"})
    async with files(tmp_path) as store:
        team = await default_team(store)
        assert [(task.id, task.subject) for task in await store.list_tasks(team)] == [(3, "three"), (7, "says three")]
        assert (await store.create_task(user_of(team), "ours")).id == 8
        told = await events_of(store, team, EventKind.TASK_QUARANTINED)
        assert [event.data["file"] for event in told] == ["task_03.json"]
    assert json.loads((tmp_path / ".tasks/task_03.json").read_text()) == {"id": 3, "subject": "padded"}


async def test_a_blocker_that_is_itself_or_a_ring_of_strangers_never_crashes(tmp_path: Path) -> None:
    put_task(tmp_path, 1, blockedBy=[1])
    put_task(tmp_path, 2, blockedBy=[3])
    put_task(tmp_path, 3, blockedBy=[2])
    async with files(tmp_path) as store:
        team = await default_team(store)
        await store.create_task(user_of(team), "ours", blocked_by=[2])
        assert [task.open_blockers for task in await store.list_tasks(team)] == [0, 1, 1, 1]
        await store.update_task(user_of(team), 2, TaskChanges(remove_blocked_by=(3,)))
        assert (await store.get_task(team, 2)).open_blockers == 0


async def test_a_task_added_by_another_program_is_found_by_the_next_claim(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        claimer = await hosted(store, team, "bob")
        await store.create_task(user_of(team), "ours")
        assert await store.claim_next_task(claimer) is not None
        await store.complete_task(claimer, 1)
        assert await store.claim_next_task(claimer) is None
        put_task(tmp_path, 5, subject="theirs")
        task = await store.claim_next_task(claimer)
        assert task is not None
        assert task.id == 5
        created = await events_of(store, team, EventKind.TASK_CREATED)
        assert [event.data["task"] for event in created] == [1, 5]
        assert (await store.create_task(user_of(team), "after theirs")).id == 6


async def test_a_task_that_another_program_completed_in_place_frees_its_dependents_at_the_next_open(
    tmp_path: Path,
) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        await store.create_task(user_of(team), "blocker")
        await store.create_task(user_of(team), "dependent", blocked_by=[1])
    path = tmp_path / ".tasks/task_1.json"
    put(path, {**json.loads(path.read_text()), "status": "completed", "owner": "alice"})
    async with files(tmp_path) as store:
        claimer = await hosted(store, team, "bob")
        task = await store.claim_next_task(claimer)
        assert task is not None
        assert (task.id, task.open_blockers) == (2, 0)
        assert EventKind.TASK_COMPLETED in await kinds(store, team)


async def test_a_claim_looks_again_at_what_another_program_has_taken_meanwhile(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        for _ in range(2):
            await store.create_task(user_of(team), "wanted")
        claimer = await hosted(store, team, "bob")
        path = tmp_path / ".tasks/task_1.json"
        put(path, {**json.loads(path.read_text()), "status": "in_progress", "owner": "alice"})
        task = await store.claim_next_task(claimer)
        assert task is not None
        assert task.id == 2
        assert (await store.get_task(team, 1)).owner == "alice"


async def test_the_seeds_way_of_clearing_blockers_is_understood(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        await store.create_task(user_of(team), "blocker")
        await store.create_task(user_of(team), "dependent", blocked_by=[1])
        path = tmp_path / ".tasks/task_2.json"
        put(path, {**json.loads(path.read_text()), "blockedBy": []})
        assert (await store.get_task(team, 2)).open_blockers == 0


async def test_a_file_that_another_program_removed_blocks_nobody(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = (await store.create_team("default")).id
        await store.create_task(user_of(team), "blocker")
        await store.create_task(user_of(team), "dependent", blocked_by=[1])
        claimer = await hosted(store, team, "bob")
        (tmp_path / ".tasks/task_1.json").unlink()
        task = await store.claim_next_task(claimer)
        assert task is not None
        assert task.id == 2


@pytest.mark.parametrize("content", [None, "{"])
async def test_a_task_is_handed_over_without_a_blocker_that_is_gone_or_torn(
    tmp_path: Path, content: str | None
) -> None:
    put_task(tmp_path, 1, status="completed", result="done first")
    put_task(tmp_path, 3, blockedBy=[1, 2])
    if content is not None:
        put(tmp_path / ".tasks/task_2.json", content)
    async with files(tmp_path) as store:
        task = await store.get_task(await default_team(store), 3)
        assert [blocker.id for blocker in await list_blockers(store, task)] == [1]
        assert "done first" in await hand_over(store, task)


async def test_an_idle_member_is_woken_by_what_another_program_does_to_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.stores.files.store.LOOK_AGAIN_SECONDS", 0.0)
    async with files(tmp_path, poll_interval_seconds=0.01) as store:
        team = (await store.create_team("default")).id
        await store.create_task(user_of(team), "blocker", owner="lead")
        await store.create_task(user_of(team), "dependent", blocked_by=[1])
        bob = await hosted(store, team, "bob")
        await store.set_member_status(bob, MemberStatus.IDLE)
        async with store.listen_member(bob) as bell:
            put_task(tmp_path, 7)
            assert await bell.wait(60)
            task = await store.claim_next_task(bob)
            assert task is not None
            assert task.id == 7
            await store.complete_task(bob, 7)
            await store.set_member_status(bob, MemberStatus.IDLE)
            bell.clear()
            path = tmp_path / ".tasks/task_1.json"
            put(path, {**json.loads(path.read_text()), "status": "completed"})
            assert await bell.wait(60)
            task = await store.claim_next_task(bob)
            assert task is not None
            assert task.id == 2


# -- rosters -----------------------------------------------------------------------------


async def test_an_s09_roster_is_the_default_team_at_rest(tmp_path: Path) -> None:
    config = {
        "team_name": "default",
        "members": [
            {"name": "alice", "role": "coder", "status": "working"},
            {"name": "bob", "role": "tester", "status": "active", "mood": "good"},
            {"name": "../../etc", "role": "thief"},
            {"role": "nameless"},
            "carol",
            7,
        ],
    }
    put(tmp_path / ".team/config.json", config)
    put(tmp_path / ".team/inbox/dora.jsonl", [])
    async with files(tmp_path) as store:
        team = await default_team(store)
        members = {member.name: member for member in await store.list_members(team)}
        assert set(members) == {"lead", "user", "alice", "bob", "carol", "dora"}
        assert members["alice"].role == "coder"
        assert members["bob"].extra["mood"] == "good"
        for name in ("alice", "bob", "carol", "dora"):
            assert (members[name].kind, members[name].status) == (MemberKind.TEAMMATE, MemberStatus.SHUTDOWN)
        spawned = await store.spawn_member(user_of(team), "alice", prompt="go on")
        assert spawned.outcome == "revived"
        assert spawned.member.role == "coder"


async def test_whom_another_program_enters_when_the_team_is_ours_already_is_found_like_those_before(
    tmp_path: Path,
) -> None:
    mail = [{"type": "message", "from": "alice", "content": "hi"}]
    async with files(tmp_path) as store, files(tmp_path) as other:
        default = user_of((await store.create_team("default")).id)
        crew = user_of((await store.create_team("crew")).id)
        await store.spawn_member(default, "bob", role="painter")
        entries = [{"name": "alice", "role": "coder", "status": "working"}, {"name": "BOB", "role": "thief"}]
        put(tmp_path / ".team/config.json", {"members": entries})
        put(tmp_path / ".team/inbox/carol.jsonl", mail)
        put(tmp_path / ".teams/crew/dora_inbox.jsonl", mail)
        for one in (store, other):
            members = await one.list_members(default.team_id)
            assert {member.name: member.role for member in members if member.kind is MemberKind.TEAMMATE} == {
                "alice": "coder",
                "bob": "painter",
                "carol": None,
            }
            assert [letter.content for letter in await one.list_mail(default.team_id, "carol")] == ["hi"]
            assert [letter.content for letter in await one.list_mail(crew.team_id, "dora")] == ["hi"]
        await store.send(default, "alice", "welcome")
        alice = await store.spawn_member(default, "alice", prompt="go on")
        assert (alice.outcome, alice.member.role) == ("revived", "coder")
        put(tmp_path / ".team/config.json", {"members": []})
        names = [member.name for member in await other.list_members(default.team_id)]
        assert sorted(names) == ["alice", "bob", "carol", "lead", "user"]
        await store.delete_team(default)
        new = await store.create_team("default")
        assert [member.name for member in await other.list_members(new.id)] == ["lead", "user"]


@pytest.mark.parametrize(
    "config",
    [
        None,
        {"name": "graphql", "members": [{"name": "ben", "role": "backend", "status": "active"}]},
        {"team_name": "graphql", "members": {"ben": {"role": "backend"}}},
        {"members": None},
        {"members": "ben"},
        {"members": 3},
        {"members": True, "teammates": 1.5},
    ],
    ids=json.dumps,
)
async def test_a_team_directory_of_another_program_is_a_team(tmp_path: Path, config: Any) -> None:
    put(tmp_path / ".teams/graphql/ben_inbox.jsonl", [{"type": "message", "sender": "lead", "content": "hi"}])
    if config is not None:
        put(tmp_path / ".teams/graphql/config.json", config)
    async with files(tmp_path) as store:
        assert [team.name for team in await store.list_teams()] == ["graphql"]
        team = await store.find_team("GraphQL")
        assert team is not None
        assert {member.name for member in await store.list_members(team.id)} == {"lead", "user", "ben"}
        with pytest.raises(Conflict):
            await store.create_team("Graphql")
        await store.send(user_of(team.id), "ben", "welcome")
        assert [message.content for message in await store.list_mail(team.id, "ben")] == ["hi", "welcome"]
        adopted = await store.find_team("graphql")
        assert adopted is not None
        assert adopted.id == team.id


@pytest.mark.parametrize(("ours", "theirs"), [("Crew", "crew"), ("crew", "CREW"), ("Default", "default")])
async def test_a_directory_in_another_case_never_hides_our_team(tmp_path: Path, ours: str, theirs: str) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team(ours)
        await store.create_task(user_of(team.id), "work")
    put(tmp_path / f".teams/{theirs}/ben_inbox.jsonl", [{"type": "message", "sender": "lead", "content": "hi"}])
    put(tmp_path / f".teams/{theirs}/config.json", {"members": ["ben"]})
    async with files(tmp_path) as store:
        assert [found.id for found in await store.list_teams()] == [team.id]
        found = await store.find_team(theirs)
        assert found is not None
        assert found.id == team.id
        assert [task.subject for task in await store.list_tasks(team.id)] == ["work"]


async def test_what_another_program_says_of_its_team_survives_that_we_take_it_up(tmp_path: Path) -> None:
    config = put(tmp_path / ".teams/graphql/config.json", {"team_name": "graphql", "theme": [1], "members": []})
    async with files(tmp_path) as store:
        team = await store.find_team("graphql")
        assert team is not None
        await store.create_task(user_of(team.id), "ours")
    async with files(tmp_path) as store:
        await store.create_task(user_of(team.id), "another")
    stored = json.loads(config.read_text())
    assert (stored["team_name"], stored["theme"], stored["next_task_id"]) == ("graphql", [1], 3)


async def test_a_record_that_was_damaged_is_not_written_over_and_hides_no_other_team(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        broken = await store.create_team("broken")
        await store.create_team("whole")
    damaged = put(tmp_path / ".teams/broken/config.json", '{"bullpen": 1, "id": ')
    async with files(tmp_path) as store:
        assert [team.name for team in await store.list_teams()] == ["whole"]
        with pytest.raises(StoreUnavailable, match="repair it"):
            await store.find_team("broken")
        with pytest.raises(StoreUnavailable, match="repair it"):
            await store.create_team("broken")
        with pytest.raises(NotFound):
            await store.get_team(broken.id)
    assert damaged.read_text() == '{"bullpen": 1, "id": '


@pytest.mark.parametrize("name", ["../../../out", "a/b", "", "\0", "x" * 65, ["bob"], None])
@pytest.mark.parametrize("whose", ["team", "member"])
async def test_a_name_that_somebody_wrote_into_our_record_never_leads_out_of_the_store(
    tmp_path: Path, whose: str, name: Any
) -> None:
    directory = tmp_path / "store"
    async with files(directory) as store:
        team = await store.create_team("crew")
        user = user_of(team.id)
        await store.spawn_member(user, "bob")
        whole = await store.create_team("whole")
    record = directory / ".teams/crew/config.json"
    config = json.loads(record.read_text())
    (config if whose == "team" else config["members"][-1])["name"] = name
    put(record, config)
    async with files(directory) as store:
        with pytest.raises(StoreUnavailable, match=r"is no name|where str belongs"):
            await store.find_team("crew")
        with pytest.raises(NotFound):
            await store.send(user, None, "to all", type=MessageType.BROADCAST)
        assert [found.id for found in await store.list_teams()] == [whole.id]
    assert json.loads(record.read_text()) == config
    assert os.listdir(tmp_path) == ["store"]


async def test_a_deleted_team_is_read_by_its_id_after_its_name_was_taken(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        for name in ("default", "crew"):
            old = await store.create_team(name)
            await store.create_task(user_of(old.id), "old work")
            await store.send(user_of(old.id), "lead", "old mail")
            await store.delete_team(user_of(old.id))
            new = await store.create_team(name)
            assert (new.generation, await store.list_tasks(new.id), await store.list_mail(new.id, "lead")) == (
                2,
                [],
                [],
            )
            assert [task.subject for task in await store.list_tasks(old.id)] == ["old work"]
            assert [message.content for message in await store.list_mail(old.id, "lead")] == ["old mail"]
            assert EventKind.TEAM_DELETED in await kinds(store, old.id)
            assert (await store.create_task(user_of(new.id), "new work")).id == 1
    assert (tmp_path / ".teams/.deleted").is_dir()
    async with files(tmp_path) as store:
        assert [team.name for team in await store.list_teams()] == ["default", "crew"]
        assert len(await store.list_teams(include_deleted=True)) == 4


async def test_mail_to_the_old_default_team_never_reaches_the_new_one(tmp_path: Path) -> None:
    put(tmp_path / ".team/inbox/alice.jsonl", [{"type": "shutdown_request", "from": "lead", "content": "stop"}])
    async with files(tmp_path) as store:
        old = await default_team(store)
        await store.delete_team(user_of(old))
        new = await store.create_team("default")
        alice = await hosted(store, new.id, "alice")
        assert await store.take_mail(alice) is None
        assert [message.content for message in await store.list_mail(old, "alice")] == ["stop"]


async def test_a_team_that_is_renamed_takes_its_files_along(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("default")
        user = user_of(team.id)
        await store.send(user, "lead", "hello")
        await store.change_team(user, name="crew")
        assert [message.content for message in await store.list_mail(team.id, "lead")] == ["hello"]
        assert await store.find_team("default") is None
        await store.create_task(user, "in its new place")
    assert (tmp_path / ".teams/crew/tasks/task_1.json").exists()
    assert not (tmp_path / ".teams/default").exists()
    assert not (tmp_path / ".tasks").exists()


@pytest.mark.parametrize("nobody", ["", None, False, 0, []])
async def test_whom_the_seeds_programs_take_for_nobody_owns_nothing(tmp_path: Path, nobody: Any) -> None:
    """They ask `not task.get("owner")`."""
    put_task(tmp_path, 1, status="pending", owner=nobody)
    async with files(tmp_path) as store:
        user = user_of(await default_team(store))
        assert (await store.get_task(user.team_id, 1)).owner is None
        claimed = await store.claim_next_task(user)
        assert claimed is not None
        assert claimed.id == 1


@pytest.mark.parametrize("number", [2**52, 2**53 - 1])
async def test_a_task_after_whose_number_none_is_left_is_told_and_takes_up_none(tmp_path: Path, number: int) -> None:
    put_task(tmp_path, number, status="pending", owner="")
    put_task(tmp_path, 7, status="pending", owner="")
    async with files(tmp_path) as store:
        user = user_of(await default_team(store))
        assert (await store.create_task(user, "ours")).id == 8
        assert [task.id for task in await store.list_tasks(user.team_id)] == [7, 8]
        assert EventKind.TASK_QUARANTINED in await kinds(store, user.team_id)


async def test_a_line_that_is_no_turn_changes_neither_what_was_remembered_nor_its_numbers(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team = await store.create_team("crew")
        ana = await hosted(store, team.id, "ana")
        for content in ("first", "second"):
            await store.record_turn(ana, TurnKind.USER, content)
        with (tmp_path / ".teams/crew/transcripts/ana.jsonl").open("a") as transcript:
            transcript.write('{"seq": "x"}\nnot even JSON\n{"role": "user"}\n' + "{}\n" * 100_000)
        turn = await store.record_turn(ana, TurnKind.USER, "third")
        assert turn.seq == 3
        turns = await store.list_turns(team.id, "ana")
        assert [(turn.seq, turn.content) for turn in turns] == [(1, "first"), (2, "second"), (3, "third")]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a file system that keeps every year")
@pytest.mark.parametrize("seconds", [10**13, -(10**12)])
async def test_a_file_that_says_it_was_written_in_a_year_that_there_is_not_is_read(seconds: int) -> None:
    with TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        os.utime(put_task(directory, 1), (seconds, seconds))
        async with files(directory) as store:
            team = await default_team(store)
            await store.create_task(user_of(team), "ours")
            assert [task.id for task in await store.list_tasks(team)] == [1, 2]
