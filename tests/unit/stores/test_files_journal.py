"""All or nothing: whatever step a kill, a power cut or a full disk comes at."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.domain.task import TaskChanges, TaskStatus
from bullpen.errors import LeaseLost, StoreRemoved, StoreUnavailable
from bullpen.stores.files import FilesStore, journal
from bullpen.stores.files.journal import Changes, Journal
from bullpen.stores.files.layout import LOCK
from bullpen.stores.files.roster import LISTED
from tests.unit.stores.files_board import content_of, default_team, files, kinds, put, put_task, user_of


class Killed(BaseException):
    """Nothing that runs after this may look at the disk: the process is gone."""


HEADER_LENGTH = 96
STEPS = ("_move", "_replace", "_append", "_mark")


def die_before_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    left = iter(range(number))

    def dying(step: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            if next(left, None) is None:
                raise Killed
            step(*args)

        return run

    for name in STEPS:
        monkeypatch.setattr(journal, name, dying(getattr(journal, name)))


def no_foreign(path: str, data: bytes) -> None:
    return None


def small_changes() -> Changes:
    return Changes(
        files={"a.json": b'{"a": 1}\n', "deep/er/b.json": b"{}\n", "gone.json": None},
        appends={"log.jsonl": (4, b'{"n": 2}\n{"n": 3}\n')},
        marks={"index/ready/any/0/1": True, "index/ready/any/0/2": False},
    )


def a_directory(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    put(root / "gone.json", "{}")
    put(root / "log.jsonl", "one\n")
    put(root / "index/ready/any/0/2", "")
    (root / ".teams").mkdir()
    return root


def user_files(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in content_of(root).items() if not path.endswith(".journal")}


def records_in(root: Path) -> bytes:
    """Without the room for more."""
    return (root / ".teams/.journal").read_bytes().rstrip(b"\0")


# -- the journal itself ------------------------------------------------------------------


def test_a_record_is_applied_by_whoever_finds_it_and_a_torn_one_never_was(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    before = user_files(root)
    Journal(str(root), no_foreign).commit(small_changes())
    whole = records_in(root)
    Journal(str(root), no_foreign).recover()
    after = user_files(root)
    assert after["log.jsonl"] == b'one\n{"n": 2}\n{"n": 3}\n'
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        torn = tmp_path / f"torn{length}"
        shutil.copytree(a_directory(tmp_path / str(length)), torn)
        # In the room that was made for it, or where the file ends.
        room = bytes(500) if length > HEADER_LENGTH and length % 2 else b""
        (torn / ".teams/.journal").write_bytes(whole[:length] + room)
        found = Journal(str(torn), no_foreign)
        # The last byte is a newline that nothing depends on.
        assert found.recover() is (length == len(whole) - 1)
        assert user_files(torn) == (after if length == len(whole) - 1 else before)
        assert not found.is_pending()
        found.commit(small_changes())
        found.recover()
        assert user_files(torn) == after


@pytest.mark.parametrize("number", range(6))
def test_applying_can_stop_anywhere_and_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = a_directory(tmp_path)
    found = Journal(str(root), no_foreign)
    found.commit(small_changes())
    with monkeypatch.context() as patch:
        die_before_step(patch, number)
        if number < 5:
            with pytest.raises(Killed):
                found.recover()
        else:
            found.recover()
    if number < 5:
        assert found.is_pending()
        found.recover()
    assert not found.is_pending()
    assert user_files(root) == {
        "a.json": b'{"a": 1}\n',
        "deep/er/b.json": b"{}\n",
        "log.jsonl": b'one\n{"n": 2}\n{"n": 3}\n',
        "index/ready/any/0/1": b"",
    }


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("one\n", "one\nA\nB\n"),
        ("one", "one\nA\nB\n"),
        ("one\nA\n", "one\nA\nB\n"),
        ("one\nA\nB\n", "one\nA\nB\n"),
        ("one\nforeign\n", "one\nforeign\nA\nB\n"),
        ("one\nforeign", "one\nforeign\nA\nB\n"),
        ("one\nA\nforeign\n", "one\nA\nforeign\nB\n"),
        ("one\nA\nB\nforeign\n", "one\nA\nB\nforeign\n"),
    ],
)
def test_an_append_completes_what_is_missing_and_overwrites_nobody(tmp_path: Path, there: str, expected: str) -> None:
    root = a_directory(tmp_path)
    (root / "log.jsonl").write_text(there)
    for _ in range(2):
        journal.apply(str(root), Changes(appends={"log.jsonl": (4, b"A\nB\n")}))
        assert (root / "log.jsonl").read_text() == expected


def test_a_line_of_ours_is_found_in_an_inbox_that_was_emptied_before_it_was_written(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    put(root / "ann_inbox.jsonl", "x" * 100)
    found = Journal(str(root), no_foreign)
    found.commit(Changes(appends={"ann_inbox.jsonl": (100, b'{"id": 7}\n')}))
    (root / "ann_inbox.jsonl").write_text('{"id": 7}\n')
    found.recover()
    assert (root / "ann_inbox.jsonl").read_text() == '{"id": 7}\n'


def test_a_torn_line_of_ours_is_completed(tmp_path: Path) -> None:
    root = a_directory(tmp_path)
    (root / "log.jsonl").write_text('one\n{"n": 1}\n{"n"')
    journal.apply(str(root), Changes(appends={"log.jsonl": (4, b'{"n": 1}\n{"n": 2}\n')}))
    assert (root / "log.jsonl").read_text() == 'one\n{"n": 1}\n{"n": 2}\n'


# -- through the verbs -------------------------------------------------------------------


async def a_chain(store: FilesStore) -> int:
    """One blocker with three dependents: completing it changes five files and more."""
    team = await store.create_team("default")
    user = user_of(team.id)
    await store.create_task(user, "blocker")
    for _ in range(3):
        await store.create_task(user, "dependent", blocked_by=[1])
    return team.id


async def check_chain(store: FilesStore, team_id: int) -> bool:
    """Everything or nothing of the completion has happened; which?"""
    blocker, *others = await store.list_tasks(team_id)
    dependents = [task for task in others if task.blocked_by]
    is_done = blocker.status is TaskStatus.COMPLETED
    assert [task.open_blockers for task in dependents] == [0 if is_done else 1] * 3
    told = await kinds(store, team_id)
    assert told.count(EventKind.TASK_COMPLETED) == (1 if is_done else 0)
    assert told.count(EventKind.TASK_UNBLOCKED) == (3 if is_done else 0)
    worker = await store.register_worker()
    cat = (await store.join_member(worker.id, team_id, "cat")).ref
    claimed = await store.claim_next_task(cat)
    assert claimed is not None
    assert claimed.id == (2 if is_done else 1)
    return is_done


async def test_a_kill_at_any_step_of_applying_leaves_the_whole_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    while True:
        directory = tmp_path / str(steps)
        async with files(directory) as store:
            team_id = await a_chain(store)
            with monkeypatch.context() as patch:
                die_before_step(patch, steps)
                try:
                    await store.complete_task(user_of(team_id), 1)
                except Killed:
                    pass
                else:
                    break
            # Another process, while this one is frozen at the moment of its death.
            async with files(directory) as other:
                assert await check_chain(other, team_id), "it was in the journal, so it has happened"
        steps += 1
    assert steps > 8


@pytest.mark.parametrize("is_recovered", [False, True], ids=["applied", "recovered"])
async def test_what_somebody_did_who_was_killed_right_after_it_is_seen_by_those_who_had_looked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recovered: bool
) -> None:
    """Members of a large team are read again only if somebody has written since."""
    note_applied = journal._note_applied

    def die_behind_it(descriptor: int, end: int) -> None:
        note_applied(descriptor, end)
        raise Killed

    async with files(tmp_path) as store, files(tmp_path) as other:
        team = await store.create_team("crew")
        worker = await other.register_worker()
        *_, member = [await other.join_member(worker.id, team.id, f"m{number}") for number in range(LISTED)]
        assert await other.take_mail(member.ref) is None
        assert await other.find_work(member.ref) is None
        with monkeypatch.context() as patch:
            if is_recovered:
                die_before_step(patch, 0)
            else:
                patch.setattr(journal, "_note_applied", die_behind_it)
            with pytest.raises(Killed):
                await store.lapse_worker(worker.id, renewals_seen=None)
        if is_recovered:
            monkeypatch.setattr(journal, "_note_applied", die_behind_it)
            async with files(tmp_path) as third:
                with pytest.raises(Killed):
                    await third.list_teams()
            monkeypatch.setattr(journal, "_note_applied", note_applied)
        with pytest.raises(LeaseLost):
            await other.find_work(member.ref)
        with pytest.raises(LeaseLost):
            await other.set_member_status(member.ref, MemberStatus.IDLE)


async def test_a_kill_before_the_record_is_whole_leaves_nothing_of_the_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with files(tmp_path / "live") as store:
        team_id = await a_chain(store)
        size = len(records_in(tmp_path / "live"))
        await store.complete_task(user_of(team_id), 1)
        whole = records_in(tmp_path / "live")
    assert len(whole) > size > 0
    for length in (size, size + 1, size + 50, (size + len(whole)) // 2, len(whole) - 2):
        directory = tmp_path / str(length)
        async with files(directory) as store:
            again = await a_chain(store)
        # The same bytes at the end of another store's journal: cut off, they mean nothing there.
        with (directory / ".teams/.journal").open("wb") as file:
            file.write(whole[:HEADER_LENGTH] + whole[size:length])
        async with files(directory) as store:
            assert not await check_chain(store, again)


async def test_after_a_power_cut_everything_that_was_acknowledged_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, dead = tmp_path / "live", tmp_path / "dead"
    async with files(live) as store:
        team_id = await a_chain(store)
    assert (live / ".teams/.journal").read_bytes() == b""
    # What was on the disk when the last flush of everything ended …
    shutil.copytree(live, dead)
    async with files(live) as store:
        user = user_of(team_id)
        await store.complete_task(user, 1)
        for number in range(3):
            await store.send(user, "lead", f"mail {number}")
        await store.create_task(user, "five")
        await store.update_task(user, 5, TaskChanges(description="more"))
        # … and of all that followed, only the journal reached it, and parts of some files.
        shutil.copy(live / ".teams/.journal", dead / ".teams/.journal")
        for name in (".tasks/task_2.json", ".teams/default/lead_inbox.jsonl", ".teams/default/events.jsonl"):
            half = (live / name).read_bytes()
            (dead / name).write_bytes(half[: len(half) * 2 // 3])
        expected = {path: data for path, data in content_of(live).items() if ".index" not in path and "/." not in path}
    monkeypatch.setattr(journal, "boot_id", lambda: "another-boot")
    monkeypatch.setattr("bullpen.stores.files.reconcile.boot_id", lambda: "another-boot")
    async with files(dead) as store:
        assert [message.content for message in await store.list_mail(team_id, "lead")] == ["mail 0", "mail 1", "mail 2"]
        assert {path: content_of(dead)[path] for path in expected} == expected
        assert await check_chain(store, team_id)


async def test_what_somebody_else_wrote_after_a_kill_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may come by for days; then what was left to be done is the older of the two."""
    async with files(tmp_path) as store:
        team_id = await a_chain(store)
        with monkeypatch.context() as patch:
            die_before_step(patch, 0)
            with pytest.raises(Killed):
                await store.complete_task(user_of(team_id), 1)
        put_task(tmp_path, 2, status="completed", result="by hand")
        async with files(tmp_path) as other:
            first, second, *_ = await other.list_tasks(team_id)
        assert first.status is TaskStatus.COMPLETED
        assert (second.status, second.result) == (TaskStatus.COMPLETED, "by hand")


@pytest.mark.parametrize("kind", ["pipe", "link to itself"])
async def test_what_is_no_file_holds_up_nobody_who_completes_the_verb_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    task = tmp_path / ".tasks/task_2.json"
    async with files(tmp_path) as store:
        team_id = await a_chain(store)
        with monkeypatch.context() as patch:
            die_before_step(patch, 0)
            with pytest.raises(Killed):
                await store.complete_task(user_of(team_id), 1)
        task.unlink()
        if kind == "pipe":
            os.mkfifo(task)
        else:
            task.symlink_to(task.name)
        async with asyncio.timeout(10), files(tmp_path, patience_seconds=5.0) as other:
            assert await check_chain(other, team_id)


@pytest.mark.parametrize("kind", ["pipe", "link to itself", "directory"])
async def test_the_journal_is_emptied_whatever_another_program_has_put_in_the_place_of_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    task = tmp_path / ".tasks/task_2.json"
    async with files(tmp_path) as store:
        user = user_of(await a_chain(store))
        task.unlink()
        if kind == "pipe":
            os.mkfifo(task)
        elif kind == "directory":
            task.mkdir()
        else:
            task.symlink_to(task.name)
        # More than it holds: it is emptied while the store is in use, and when it is left.
        await store.send(user, "lead", "x" * journal.MAX_BYTES)
        assert records_in(tmp_path) == b""
        await store.send(user, "lead", "more")
    assert records_in(tmp_path) == b""
    assert caplog.text == ""


async def test_after_a_power_cut_a_task_that_somebody_else_wrote_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with files(tmp_path / "live") as store:
        team_id = await a_chain(store)
        shutil.copytree(tmp_path / "live", tmp_path / "dead")
    put(tmp_path / "dead/.tasks/task_2.json", {"id": 2, "subject": "written by hand", "status": "completed"})
    monkeypatch.setattr(journal, "boot_id", lambda: "another-boot")
    monkeypatch.setattr("bullpen.stores.files.reconcile.boot_id", lambda: "another-boot")
    async with files(tmp_path / "dead") as store:
        task = await store.get_task(team_id, 2)
        assert (task.subject, task.status) == ("written by hand", TaskStatus.COMPLETED)


async def test_after_a_power_cut_what_was_done_to_a_task_of_another_program_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, dead = tmp_path / "live", tmp_path / "dead"
    put_task(live, 1)
    put_task(live, 2, blockedBy=[1])
    shutil.copytree(live, dead)
    (dead / ".teams").mkdir()
    async with files(live) as store:
        team_id = await default_team(store)
        await store.complete_task(user_of(team_id), 1, result="done")
        # Of all that we wrote only the journal reached the disk. What the other program had written is as old as ever.
        for name in (".lock", ".journal"):
            shutil.copy(live / ".teams" / name, dead / ".teams" / name)
        expected = content_of(live)
    monkeypatch.setattr(journal, "boot_id", lambda: "another-boot")
    monkeypatch.setattr("bullpen.stores.files.reconcile.boot_id", lambda: "another-boot")
    async with files(dead) as store:
        tasks = await store.list_tasks(team_id)
        assert [(task.result, task.open_blockers) for task in tasks] == [("done", 0), (None, 0)]
        for name in (".tasks/task_1.json", ".tasks/task_2.json"):
            assert content_of(dead)[name] == expected[name]


async def test_a_team_that_is_made_anew_is_moved_whole_whenever_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(5):
        directory = tmp_path / str(steps)
        async with files(directory) as store:
            old = await a_chain(store)
            await store.delete_team(user_of(old))
            with monkeypatch.context() as patch:
                die_before_step(patch, steps)
                with pytest.raises(Killed):
                    await store.create_team("default", goal="again")
            async with files(directory) as other:
                new = await other.find_team("default")
                assert new is not None
                assert (new.goal, new.generation) == ("again", 2)
                assert await other.list_tasks(new.id) == []
                assert len(await other.list_tasks(old)) == 4
                assert await kinds(other, new.id) == [EventKind.TEAM_CREATED]


# -- the disk ----------------------------------------------------------------------------


def full(*args: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_disk_that_is_full_before_the_record_is_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with files(tmp_path) as store:
        team_id = await a_chain(store)
        before = content_of(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await store.complete_task(user_of(team_id), 1)
        after = content_of(tmp_path)
        for path in (".teams/.journal", ".teams/default/events.jsonl", ".tasks/task_1.json"):
            assert after[path].rstrip(b"\0") == before[path].rstrip(b"\0"), "but for the room in the journal"
        await store.complete_task(user_of(team_id), 1)
        assert await check_chain(store, team_id)


async def test_a_disk_that_is_full_while_applying_loses_nothing_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with files(tmp_path) as store:
        team_id = await a_chain(store)
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_append", full)
            task = await store.complete_task(user_of(team_id), 1)
            assert task.status is TaskStatus.COMPLETED
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await store.create_task(user_of(team_id), "no room")
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await store.list_tasks(team_id)
        assert await check_chain(store, team_id)
        assert len(await store.list_tasks(team_id)) == 4


async def test_what_a_full_disk_kept_from_being_applied_is_not_forgotten_when_a_team_is_moved_right_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move makes a group of its own: what was committed before it is applied before it."""
    replace = journal._replace
    refusals = iter([full])

    def full_at_first(path: str, data: bytes) -> None:
        next(refusals, replace)(path, data)

    async with files(tmp_path) as store:
        crew = await store.create_team("crew")
        old = await store.create_team("default")
        await store.delete_team(user_of(old.id))
        with monkeypatch.context() as patch, (tmp_path / LOCK).open() as lock:
            patch.setattr(journal, "_replace", full_at_first)
            # Both wait for the gate, so they begin as one group.
            fcntl.flock(lock, fcntl.LOCK_EX)
            adding = asyncio.create_task(store.create_task(user_of(crew.id), "kept"))
            making = asyncio.create_task(store.create_team("default"))
            for _ in range(10):
                await asyncio.sleep(0)
            fcntl.flock(lock, fcntl.LOCK_UN)
            task = await adding
            assert (await making).generation == 2
        assert await store.get_task(crew.id, task.id) == task
        assert (await store.create_task(user_of(crew.id), "next")).id == task.id + 1


async def test_whoever_is_concerned_is_rung_once_a_verb_is_stored_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has happened when its record is flushed; while the files are written, the woken are on their way."""
    steps: list[str] = []

    def noted(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            steps.append(name)
            return step(*args)

        return run

    async with files(tmp_path) as store:
        team_id = await a_chain(store)
        monkeypatch.setattr(store._bell, "send", noted("ring", store._bell.send))
        monkeypatch.setattr(journal, "_flush_data", noted("flush", journal._flush_data))
        monkeypatch.setattr(journal, "apply", noted("apply", journal.apply))
        await store.create_task(user_of(team_id), "new")
        assert steps == ["flush", "ring", "apply"]
        steps.clear()
        monkeypatch.setattr(journal, "_flush_data", noted("flush", full))
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.create_task(user_of(team_id), "no room")
        assert steps == ["flush"], "nobody is rung for what is not stored"


async def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    put(tmp_path / "file", "in the way")
    async with files(tmp_path / "file/store") as store:
        assert await store.list_teams() == []
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await store.create_team("crew")
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    async with files(sealed) as store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "makedirs", _read_only)
            with pytest.raises(StoreUnavailable, match="cannot be written: Read-only file system"):
                await store.create_team("crew")
        await store.create_team("crew")


def _read_only(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


async def test_whoever_waits_too_long_is_told_who_holds_the_store(tmp_path: Path) -> None:
    holder = f"""
import fcntl, os, sys
file = open({str(tmp_path / ".teams/.lock")!r}, "r+")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(f"{{os.getpid():<10}}"); file.flush()
print("held", flush=True)
sys.stdin.read()
"""
    async with files(tmp_path, patience_seconds=1.0) as store:
        await store.create_team("crew")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", holder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"held\n"
        with pytest.raises(StoreUnavailable, match=f"process {process.pid}"):
            await store.create_team("late")
        with pytest.raises(StoreUnavailable, match=f"process {process.pid}"):
            await store.list_teams()
        await process.communicate(b"")
        assert [team.name for team in await store.list_teams()] == ["crew"]


async def test_a_store_that_was_brought_back_from_a_copy_is_locked_anew_and_goes_on(tmp_path: Path) -> None:
    async with files(tmp_path / "store") as store:
        await store.create_team("old")
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        await store.create_team("lost")
        shutil.rmtree(tmp_path / "store")
        with pytest.raises(StoreRemoved):
            await store.create_team("refused")
        shutil.copytree(tmp_path / "copy", tmp_path / "store")
        async with files(tmp_path / "store") as other:
            await other.create_team("new")
            await store.create_team("newer")
            assert [team.name for team in await other.list_teams()] == ["old", "new", "newer"]


async def test_a_store_without_a_mark_of_its_own_is_given_one(tmp_path: Path) -> None:
    """As those that an older Bullpen made."""
    lock = tmp_path / ".teams/.lock"
    async with files(tmp_path) as store:
        await store.create_team("crew")
    os.truncate(lock, 32)
    async with files(tmp_path) as store, files(tmp_path) as other:
        assert len(await store.list_teams()) == 1
        await other.create_team("troop")
        assert len(await store.list_teams()) == 2
        await store.create_team("third")
    assert lock.stat().st_size == 48


# -- real kills --------------------------------------------------------------------------

VICTIM = """
import asyncio, sys
from pathlib import Path
from bullpen.clock import SystemClock
from bullpen.domain.member import MemberRef, MemberStatus
from bullpen.stores.files import FilesStore

async def main():
    directory, team_id = Path(sys.argv[1]), int(sys.argv[2])
    user = MemberRef(team_id, "user", 0)
    async with FilesStore("files:", directory, SystemClock()) as store:
        while True:
            blocker = await store.create_task(user, "blocker")
            for _ in range(2):
                await store.create_task(user, "dependent", blocked_by=[blocker.id])
            await store.complete_task(user, blocker.id)
            await store.send(user, "lead", f"done {blocker.id}")
            print(blocker.id, flush=True)

asyncio.run(main())
"""


async def test_a_process_killed_at_any_moment_leaves_whole_verbs(tmp_path: Path) -> None:
    async with files(tmp_path) as store:
        team_id = (await store.create_team("default")).id
    acknowledged: list[int] = []
    for rounds in range(1, 7):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", VICTIM, str(tmp_path), str(team_id), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        acknowledged += [int(await process.stdout.readline()) for _ in range(rounds)]
        process.send_signal(signal.SIGKILL)
        rest, _ = await process.communicate()
        acknowledged += [int(line) for line in rest.splitlines()]
    async with files(tmp_path) as store:
        await _check_whole(store, user_of(team_id), acknowledged)


async def _check_whole(store: FilesStore, user: MemberRef, acknowledged: list[int]) -> None:
    tasks = {task.id: task for task in await store.list_tasks(user.team_id)}
    assert list(tasks) == list(range(1, len(tasks) + 1))
    for task in tasks.values():
        assert all(task.id in tasks[dependent].blocked_by for dependent in task.blocks)
        assert all(task.id in tasks[blocker].blocks for blocker in task.blocked_by)
        open_ones = [blocker for blocker in task.blocked_by if tasks[blocker].status is not TaskStatus.COMPLETED]
        assert task.open_blockers == len(open_ones)
    events = await store.list_events(user.team_id, limit=10_000)
    created = [event.data["task"] for event in events if event.kind == EventKind.TASK_CREATED]
    completed = [event.data["task"] for event in events if event.kind == EventKind.TASK_COMPLETED]
    sent = [event.data["message"] for event in events if event.kind == EventKind.MESSAGE_SENT]
    assert created == list(tasks)
    assert completed == [task.id for task in tasks.values() if task.status is TaskStatus.COMPLETED]
    mail = await store.list_mail(user.team_id, "lead", limit=10_000)
    assert [message.id for message in mail] == sent
    assert {f"done {number}" for number in acknowledged} <= {message.content for message in mail}
    assert len(mail) == len({message.content for message in mail})
