"""What fails around a store: one clear error, nothing half-written, and it goes on when the cause is gone."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import math
import os
import random
import resource
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from bullpen.clock import FakeClock
from bullpen.domain.member import Liveness, MemberRef, MemberStatus
from bullpen.domain.request import RequestKind
from bullpen.errors import LeaseLost, SchemaTooNew, StoreError, StoreRemoved, StoreUnavailable, UsageError
from bullpen.maintenance import LapseWatch, Maintenance
from bullpen.store import Store
from bullpen.stores import open_store
from bullpen.stores import writer as writer_module
from bullpen.stores.bells import DatagramDoorbell
from bullpen.stores.postgresql.switchboard import life_key
from bullpen.stores.sqlite import connection as sqlite_connection
from bullpen.stores.sqlite.store import SqliteStore
from bullpen.stores.transaction import Transaction
from bullpen.stores.verbs.store import VerbStore
from tests.support.mounting import mounted
from tests.support.postgres import PrivateServer
from tests.support.processes import BOUND_SECONDS, Crew, Line
from tests.support.removing import remove_in_use
from tests.support.stores import ON_DISK, create_team, join, opened, url_in, user_of


@pytest.fixture(params=ON_DISK)
def disk_store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def disk_store_url(disk_store: str, tmp_path: Path) -> str:
    return url_in(tmp_path / "store", disk_store)


# -- roles: what the other processes do ------------------------------------------------------


async def stay_inside(line: Line, url: str, team_id: int) -> None:
    """Begin to write, and stay in the middle of it until killed."""
    loop = asyncio.get_running_loop()

    async def body(tx: Transaction) -> None:
        await tx.take_task_id(team_id)
        loop.call_soon_threadsafe(asyncio.ensure_future, line.say("inside"))
        if not url.startswith("postgres"):
            threading.Event().wait()
        await asyncio.Event().wait()

    async with opened(url) as store:
        assert isinstance(store, VerbStore)
        await store._write(body)


async def fork_inside(line: Line, url: str, team_id: int) -> None:
    """As a worker: in the middle of a write, with a child that lives on, until killed."""
    loop = asyncio.get_running_loop()
    is_born, tell = os.pipe()

    async def body(tx: Transaction) -> None:
        await tx.take_task_id(team_id)
        child = os.fork()
        if not child:
            os.write(tell, b".")
            signal.pause()
        os.read(is_born, 1)
        loop.call_soon_threadsafe(asyncio.ensure_future, line.say("inside", child=child))
        threading.Event().wait()

    async with opened(url) as store:
        assert isinstance(store, VerbStore)
        await store.register_worker()
        vars(store)["_writer"]._last_seconds.extend([math.inf, math.inf])
        await store._write(body)


async def work_with_a_child(line: Line, url: str) -> None:
    async with opened(url) as store:
        worker = await store.register_worker()
        child = os.fork()
        if not child:
            signal.pause()
        await line.say("at work", child=child, token=worker.token)
        await asyncio.Event().wait()


async def fork_while_registering(line: Line, url: str) -> None:
    """A thread forks a child that lives on, as soon as the lock of a worker has been opened, and before it is held."""
    is_open, is_forked = threading.Event(), threading.Event()
    children: list[int] = []
    lock = fcntl.flock

    def lock_slowly(descriptor: Any, how: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).parent.name.endswith(".workers"):
            is_open.set()
            # Whoever may fork now does; who has to wait for the lock uses this up.
            is_forked.wait(0.3)
        lock(descriptor, how)

    def fork() -> None:
        is_open.wait()
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
        is_forked.set()

    fcntl.flock = lock_slowly
    forking = threading.Thread(target=fork)
    forking.start()
    async with opened(url) as store:
        await store.register_worker()
        forking.join()
        await line.say("registered", child=children[0])
        await asyncio.Event().wait()


async def leave_the_store_to_a_child(line: Line, url: str, team_id: int) -> None:
    """Close it while a child that was forked meanwhile has it open, too, and goes on writing."""
    has_written, tell_parent = os.pipe()
    is_closed, tell_child = os.pipe()
    async with opened(url) as store:
        await store.create_task(user_of(team_id), "of the parent")
        if not os.fork():
            try:
                asyncio.run(_write_before_and_after(url, team_id, tell_parent, is_closed))
            finally:
                os._exit(1)
        os.close(tell_parent)
        os.read(has_written, 1)
    os.write(tell_child, b".")
    os.read(has_written, 1)
    await line.say("over")


async def _write_before_and_after(url: str, team_id: int, tell_parent: int, is_closed: int) -> None:
    async with opened(url) as store:
        await store.create_task(user_of(team_id), "of the child")
        os.write(tell_parent, b".")
        os.read(is_closed, 1)
        await store.create_task(user_of(team_id), "of the child alone")
        os.write(tell_parent, b".")
        # Without closing it, as one that is killed.
        os._exit(0)


async def use_the_store_of_a_parent(line: Line, url: str, team_id: int) -> None:
    """As a forked child, which opens none of its own."""
    said, tell = os.pipe()
    async with opened(url, patience_seconds=2.0) as store:
        await store.create_task(user_of(team_id), "of the parent")
        await store.list_tasks(team_id)
        if not os.fork():
            try:
                os.write(tell, asyncio.run(_try_everything(store, team_id)).encode())
            finally:
                os._exit(1)
        os.close(tell)
        await line.say("over", outcomes=(await asyncio.to_thread(os.read, said, 10_000)).decode())


async def _try_everything(store: Store, team_id: int) -> str:
    outcomes = []
    for verb in (store.list_tasks(team_id), store.list_tasks(team_id), store.create_task(user_of(team_id), "refused")):
        try:
            outcomes.append(str(await verb))
        except Exception as error:
            outcomes.append(f"{type(error).__name__}: {error}")
    return "\n".join(outcomes)


async def fork_while_closing(line: Line, url: str, team_id: int) -> None:
    """A thread forks as soon as the store is closing its first connection, and the child forks in turn."""
    is_closing, is_forked = threading.Event(), threading.Event()

    class Slow(apsw.Connection):
        def close(self, force: bool = False) -> None:
            super().close(force)
            is_closing.set()
            # Whoever may fork now does; who has to wait for the end of it uses this up.
            is_forked.wait(0.3)

    def fork() -> None:
        is_closing.wait()
        if not os.fork():
            signal.alarm(20)
            os._exit(_wait_for(os.fork()))
        is_forked.set()

    apsw.Connection = Slow  # type: ignore[misc]
    forking = threading.Thread(target=fork)
    forking.start()
    async with opened(url) as store:
        await store.create_task(user_of(team_id), "of the parent")
    forking.join()
    await line.say("over", status=_wait_for(-1))


def _wait_for(child: int) -> int:
    """How it ended; 0 in the child itself."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0


async def write_under_a_limit(line: Line, url: str, team_id: int, limit: int) -> None:
    """No file may grow beyond the limit: send until that fails, then lift it and send again."""
    async with opened(url) as store:
        user = user_of(team_id)
        await store.send(user, "lead", "before")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        sent, error = await _send_until_refused(store, user)
        await line.say("refused", sent=sent, type=type(error).__name__, text=str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await store.send(user, "lead", "after")
        await line.say("went on")


async def look_and_write(line: Line, url: str, team_id: int) -> None:
    async with opened(url) as store:
        letters = [message.content for message in await store.list_mail(team_id, "lead", limit=100_000)]
        await line.say("saw", letters=len(letters), first=letters[:1], last=letters[-1:])
        await store.create_task(user_of(team_id), "written")
        await line.say("wrote")


async def hold_the_database(line: Line, path: str) -> None:
    """A program that is not Bullpen, in the middle of its own transaction."""
    database = apsw.Connection(path)
    database.execute("BEGIN EXCLUSIVE")
    await line.say("locked")
    await line.hear("let go")
    database.execute("ROLLBACK")
    await line.say("free")


async def _send_until_refused(store: Store, user: MemberRef) -> tuple[int, StoreError]:
    for sent in range(10_000):
        try:
            await store.send(user, "lead", f"{sent} " + "x" * 20_000)
        except StoreError as error:
            return sent, error
    raise AssertionError("there was no end of the disk")


# -- the disk --------------------------------------------------------------------------------------


async def test_a_full_disk_is_told_changes_nothing_and_is_no_problem_any_more_when_there_is_room(
    disk_store: str, tmp_path: Path, crew: Crew
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, size="8m"):
        url = url_in(disk / "store", disk_store)
        async with opened(url) as store:
            team, user = await create_team(store)
            ballast = _fill(disk, leave=400_000)
            sent, error = await _send_until_refused(store, user)
            assert isinstance(error, StoreUnavailable)
            assert "full" in str(error)
            assert sent > 0
            # Many at once, large and small, until there is not a byte left: each is told its own fate.
            _fill(disk, leave=0, name="rest")
            outcomes = await asyncio.gather(
                *(store.send(user, "lead", f"at once {index} " + "x" * (index % 5) * 2_000) for index in range(40)),
                return_exceptions=True,
            )
            assert all(isinstance(outcome, StoreUnavailable | list) for outcome in outcomes)
            assert any(isinstance(outcome, StoreUnavailable) for outcome in outcomes)

            (disk / "rest").unlink()
            ballast.unlink()
            assert (await store.create_task(user, "there is room again")).id == 1
            told = [f"at once {index}" for index, outcome in enumerate(outcomes) if isinstance(outcome, list)]
            stored = [message.content.split(" x")[0] for message in await store.list_mail(team.id, "lead", limit=9999)]
            assert [letter.strip() for letter in stored] == [*map(str, range(sent)), *told]
        await _check_in_another_process(crew, url, team.id, letters=len(stored))
        _check_database(disk_store, disk / "store")


async def test_nobody_is_refused_for_what_a_full_disk_has_undone(disk_store: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, size="8m"):
        async with opened(url_in(disk / "store", disk_store)) as store:
            team, _ = await create_team(store)
            ana = (await join(store, team.id, "ana")).ref
            ballast = _fill(disk, leave=0)
            # They are committed together: the first to leave would end the incarnation of the others.
            outcomes = await asyncio.gather(
                *(store.shut_down_member(ana, reason="x" * 200_000) for _ in range(8)), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
            ballast.unlink()
            assert (await store.get_member(team.id, "ana")).status is MemberStatus.WORKING
            assert (await store.shut_down_member(ana)).status is MemberStatus.SHUTDOWN


def _fill(disk: Path, *, leave: int, name: str = "ballast") -> Path:
    room = os.statvfs(disk)
    size = room.f_bavail * room.f_frsize - leave
    path = disk / name
    with path.open("wb") as file, suppress(OSError):
        for _ in range(max(size, 0) // 4096):
            file.write(b"\0" * 4096)
            file.flush()
    return path


def _check_database(disk_store: str, directory: Path) -> None:
    if disk_store == "sqlite-file":
        database = apsw.Connection(str(directory / "bullpen.db"))
        assert database.pragma("integrity_check") == "ok"
        database.close()


async def _check_in_another_process(crew: Crew, url: str, team_id: int, *, letters: int) -> None:
    other = crew.start(look_and_write, url=url, team_id=team_id)
    assert (await other.hear("saw"))["letters"] == letters
    await other.hear("wrote")
    await other.join()


async def test_a_new_store_on_a_full_disk_is_refused_and_made_when_there_is_room(
    disk_store: str, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, size="2m"):
        ballast = _fill(disk, leave=0)
        async with opened(url_in(disk / "store", disk_store)) as store:
            assert await store.list_teams() == []
            with pytest.raises(StoreUnavailable):
                await store.create_team("crew")
            with pytest.raises(StoreUnavailable):
                await store.register_worker()
            assert await store.list_teams() == []
            ballast.unlink()
            team = await store.create_team("crew")
            assert [team] == await store.list_teams()
            await store.register_worker()


async def test_a_limit_of_file_size_is_told_changes_nothing_and_can_be_lifted(disk_store_url: str, crew: Crew) -> None:
    async with opened(disk_store_url) as store:
        team, _ = await create_team(store)
    child = crew.start(write_under_a_limit, url=disk_store_url, team_id=team.id, limit=2_000_000)
    refused = await child.hear("refused")
    assert refused["type"] == StoreUnavailable.__name__, refused["text"]
    await child.hear("went on")
    await child.join()
    async with opened(disk_store_url) as store:
        letters = [message.content.split(" x")[0] for message in await store.list_mail(team.id, "lead", limit=100_000)]
        assert letters == ["before", *map(str, range(refused["sent"])), "after"]


@contextmanager
def _read_only(directory: Path) -> Iterator[None]:
    """Root may write everywhere, except in a file system that is mounted read-only."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True, capture_output=True)
    else:
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-o", "remount,rw", str(directory)], check=True, capture_output=True)
        else:
            for path in (directory, *directory.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)


async def test_a_read_only_directory_is_told_and_written_again_when_it_can_be(disk_store: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, size="8m"):
        url = url_in(disk / "store", disk_store)
        async with opened(url) as store:
            team, user = await create_team(store)
        with _read_only(disk):
            with suppress(StoreUnavailable):
                async with opened(url) as store:
                    assert [one.name for one in await store.list_teams()] == ["crew"]
            with pytest.raises(StoreUnavailable):
                async with opened(url) as store:
                    await store.create_task(user, "refused")
            with pytest.raises(StoreUnavailable):
                async with opened(url_in(disk / "another", disk_store)) as store:
                    await store.create_team("refused")
        async with opened(url) as store:
            task = await store.create_task(user, "written")
            assert [task] == await store.list_tasks(team.id)
            assert task.id == 1


# -- what is not a store ------------------------------------------------------------------------------


async def test_nothing_is_written_into_a_store_that_was_removed_while_it_was_open(
    disk_store_url: str, tmp_path: Path
) -> None:
    """As by `git clean -fdx`: what is accepted is in the store that is there, where others find it."""
    async with opened(disk_store_url) as store:
        team, user = await create_team(store)
        await store.create_task(user, "gone")
        assert len(await store.list_tasks(team.id)) == 1
        remove_in_use(tmp_path / "store")
        async with opened(disk_store_url) as other:
            await create_team(other)
            accepted = [await other.create_task(user, "new")]
            for _ in range(2):
                with suppress(StoreUnavailable):
                    accepted.append(await store.create_task(user, "refused, or written"))
            found = await other.list_tasks(team.id)
            assert found == accepted
            with suppress(StoreUnavailable):
                assert await store.list_tasks(team.id) == found


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_store_that_was_removed_is_missed_by_whoever_waits_and_by_every_verb(
    disk_store_url: str, tmp_path: Path, is_replaced: bool
) -> None:
    """Its ids mean others in a store that takes its place; and none is made by whoever had it."""
    url = disk_store_url
    async with opened(url, poll_interval_seconds=0.05) as store, asyncio.timeout(BOUND_SECONDS):
        team, user = await create_team(store)
        async with store.listen_events(team.id) as bell:
            bell.clear()
            remove_in_use(tmp_path / "store")
            if is_replaced:
                async with opened(url) as other:
                    await create_team(other)
            await bell.wait()
        for verb in (store.list_tasks(team.id), store.create_task(user, "refused"), store.register_worker()):
            with pytest.raises(StoreRemoved, match="was removed or replaced while it was in use"):
                await verb
    assert (tmp_path / "store").exists() == is_replaced


async def test_who_follows_a_log_that_is_replaced_by_an_older_one_is_told(tmp_path: Path) -> None:
    """Its position is no longer one of this log; that is nobody's wrong argument."""
    async with opened(f"files:{tmp_path}/store", poll_interval_seconds=0.05) as store, asyncio.timeout(BOUND_SECONDS):
        team, user = await create_team(store)
        log = tmp_path / "store" / ".teams" / team.name / "events.jsonl"
        older = log.read_bytes()
        await store.create_task(user, "later")
        followed = store.follow_events(team.id)
        assert [(await anext(followed)).kind for _ in range(2)] == ["TeamCreated", "TaskCreated"]
        log.write_bytes(older)
        with pytest.raises(StoreRemoved, match="the log was replaced by another one while it was followed"):
            await anext(followed)
        with pytest.raises(UsageError, match="not a position"):
            await anext(store.follow_events(team.id, after="77777"))


async def test_who_finds_the_journal_unreadable_keeps_nobody_else_out(tmp_path: Path) -> None:
    async with opened(f"files:{tmp_path}") as store, opened(f"files:{tmp_path}") as other:
        team, user = await create_team(store)
        journal = tmp_path / ".teams/.journal"
        journal.rename(tmp_path / "journal")
        journal.mkdir()
        for verb in (store.create_task(user, "refused"), store.list_tasks(team.id)):
            with pytest.raises(StoreUnavailable, match="cannot be used"):
                await verb
        journal.rmdir()
        (tmp_path / "journal").rename(journal)
        async with asyncio.timeout(BOUND_SECONDS):
            await other.create_task(user, "written")


async def test_a_look_that_the_disk_breaks_off_is_told_as_what_may_be_tried_again(tmp_path: Path) -> None:
    async with opened(url_in(tmp_path, "sqlite-file")) as store:
        team, user = await create_team(store)
        await store.create_task(user, "written")
        await store.list_teams()
        # What has been written last lies there and cannot be read: for SQLite, an error of the disk.
        os.truncate(tmp_path / "bullpen.db-wal", 0)
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await store.list_tasks(team.id)


async def test_who_comes_by_a_link_takes_nobody_for_dead_who_came_without(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("work.db")
    async with opened(f"sqlite:///{tmp_path}/work.db") as store, opened(f"sqlite:///{tmp_path}/link.db") as linked:
        team, _ = await create_team(store)
        ana = await join(store, team.id, "ana")
        [worker] = await linked.list_workers()
        assert await linked.probe_worker(worker) is Liveness.ALIVE
        await LapseWatch(linked).look()
        assert await store.get_member(team.id, "ana") == ana


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=tmp_path.name):
        async with opened(f"sqlite:///{tmp_path}") as store:
            await store.create_team("crew")
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_whose_name_is_not_utf8_holds_files_and_for_sqlite_is_told(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    async with opened(url_in(odd, "files")) as store:
        team, user = await create_team(store)
        member = await join(store, team.id, "ana")
        async with store.listen_member(member.ref) as bell:
            await store.send(user, "ana", "hello")
            assert await bell.wait(BOUND_SECONDS)
    with pytest.raises(UsageError, match="not UTF-8"):
        async with opened(url_in(odd, "sqlite-file")) as store:
            await create_team(store)


@pytest.mark.parametrize("kind", ON_DISK)
@pytest.mark.parametrize("name", ["loop", "loop/below", "x" * 300])
async def test_a_path_that_leads_nowhere_is_told(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreUnavailable, match=tmp_path.name):
        async with opened(url_in(tmp_path / name, kind)) as store:
            await store.create_team("crew")


@pytest.mark.parametrize("scheme", ["sqlite:///", "files:"])
@pytest.mark.parametrize("path", ["~nobody-of-this-name/board", "bo\0ard"])
async def test_what_is_no_path_is_the_callers_mistake(scheme: str, path: str) -> None:
    with pytest.raises(UsageError, match="bo"):
        open_store(f"{scheme}{path}")


async def test_a_file_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(StoreError):
        async with opened(f"files:{path}") as store:
            await store.create_team("crew")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("length", [10, 100_000])
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, length: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("n" * length)
    with pytest.raises(StoreError, match=r"notes\.txt") as refused:
        async with opened(f"sqlite:///{path}") as store:
            await store.create_team("crew")
    assert not refused.value.retryable
    assert path.read_text() == "n" * length
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "table",
    [
        "invoice (number INTEGER)",
        "schema_version (version TEXT)",
        "schema_version (major INTEGER, minor INTEGER)",
        "schema_version AS SELECT 'one' AS major, NULL AS minor",
    ],
)
async def test_a_database_of_another_program_is_left_alone(tmp_path: Path, table: str) -> None:
    path = tmp_path / "other.db"
    with apsw.Connection(str(path)) as database:
        database.execute(f"CREATE TABLE {table}")
    database.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="not a Bullpen store") as refused:
        async with opened(f"sqlite:///{path}") as store:
            await store.create_team("crew")
    assert not refused.value.retryable
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE task SET created_at = 'yesterday'",
        "UPDATE task SET status = 'odd'",
        "UPDATE task SET handovers = '[{'",
        "UPDATE task SET handovers = '[{}]'",
        "UPDATE task SET subject = CAST(x'ff' AS TEXT)",
        "UPDATE event_line SET at = 'yesterday'",
        "UPDATE event_line SET data = '{'",
        "UPDATE event_line SET actor = CAST(x'ff' AS TEXT)",
    ],
)
async def test_rows_that_cannot_be_read_back_are_told_as_damage(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "bullpen.db"
    async with opened(f"sqlite:///{path}") as store:
        team, user = await create_team(store)
        await store.create_task(user, "One")
    with apsw.Connection(str(path)) as database:
        database.execute(damage)
    database.close()
    async with opened(f"sqlite:///{path}") as store:
        verb = store.list_events if "event_line" in damage else store.list_tasks
        with pytest.raises(StoreError, match="damaged"):
            await verb(team.id)


async def test_a_store_that_was_closed_refuses_to_look_and_to_write(store_url: str) -> None:
    async with opened(store_url) as store:
        team, user = await create_team(store)
        assert await store.list_tasks(team.id) == []
    for verb in (store.list_tasks(team.id), store.create_task(user, "refused"), store.last_position(team.id)):
        with pytest.raises(UsageError, match="closed: open it again"):
            await verb


async def test_whoever_waits_when_its_store_is_closed_is_told(store_url: str) -> None:
    async def follow(store: Store, team_id: int) -> None:
        async for _ in store.follow_events(team_id):
            followed.set()

    followed = asyncio.Event()
    async with opened(store_url) as store:
        team, _ = await create_team(store)
        following = asyncio.create_task(follow(store, team.id))
        await followed.wait()
    with pytest.raises((UsageError, StoreUnavailable), match="closed"):
        await asyncio.wait_for(following, BOUND_SECONDS)


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """Left behind by a process that was killed as it began to create the store."""
    path = tmp_path / "bullpen.db"
    path.touch()
    async with opened(f"sqlite:///{path}") as store:
        assert await store.list_teams() == []
        team, _ = await create_team(store)
        assert [team] == await store.list_teams()


# -- versions ----------------------------------------------------------------------------------------


async def test_a_store_of_a_newer_major_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite-file")
    async with opened(url) as store:
        _, user = await create_team(store)
    _change_database(tmp_path, "UPDATE schema_version SET major = major + 1")
    with pytest.raises(SchemaTooNew, match="upgrade"):
        async with opened(url):
            pass
    _change_database(tmp_path, "UPDATE schema_version SET major = major - 1")
    async with opened(url) as store:
        assert (await store.create_task(user, "as before")).id == 1


async def test_a_store_of_a_newer_minor_version_works(tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite-file")
    async with opened(url) as store:
        team, user = await create_team(store)
    _change_database(
        tmp_path,
        "UPDATE schema_version SET minor = minor + 7",
        "ALTER TABLE task ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",
        "CREATE TABLE future (id INTEGER)",
    )
    async with opened(url) as store:
        task = await store.create_task(user, "in an old version's words")
        await store.claim_task(user, task.id)
        assert [one.id for one in await store.list_tasks(team.id)] == [1]


def _change_database(directory: Path, *statements: str) -> None:
    database = apsw.Connection(str(directory / "bullpen.db"))
    for statement in statements:
        database.execute(statement)
    database.close()


async def test_files_of_a_newer_version_are_refused_and_not_touched(tmp_path: Path) -> None:
    url = url_in(tmp_path, "files")
    async with opened(url) as store:
        _, user = await create_team(store)
    [config] = [path for path in tmp_path.rglob("config.json") if "bullpen" in json.loads(path.read_text())]
    original = config.read_text()
    newer = json.loads(original)
    newer["bullpen"] += 1
    config.write_text(json.dumps(newer))
    async with opened(url) as store:
        with pytest.raises(SchemaTooNew, match="upgrade"):
            await store.find_team("crew")
        with pytest.raises(SchemaTooNew, match="upgrade"):
            await store.create_team("crew")
    assert json.loads(config.read_text()) == newer
    config.write_text(original)
    async with opened(url) as store:
        assert (await store.create_task(user, "as before")).id == 1


# -- others who hold the store -------------------------------------------------------------------------


async def test_a_database_that_another_program_has_locked_is_told_and_goes_on(
    tmp_path: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_MS", 200)
    async with opened(url_in(tmp_path, "sqlite-file")) as store:
        team, user = await create_team(store)
        other = crew.start(hold_the_database, path=str(tmp_path / "bullpen.db"))
        await other.hear("locked")
        with pytest.raises(StoreUnavailable, match="another program"):
            await store.create_task(user, "refused")
        assert await store.list_tasks(team.id) == [], "who only looks is not held up"
        await other.say("let go")
        await other.hear("free")
        assert (await store.create_task(user, "written")).id == 1


async def test_while_another_program_has_locked_the_database_the_loop_goes_on(
    tmp_path: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where commits were quick until now, so that a lone verb runs in the loop itself."""
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_MS", 20_000)
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with opened(url_in(tmp_path, "sqlite-file")) as store:
        team, user = await create_team(store)
        other = crew.start(hold_the_database, path=str(tmp_path / "bullpen.db"))
        await other.hear("locked")
        waiting = asyncio.create_task(store.create_task(user, "waits"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done(), "the loop stood still until the verb was given up"
        await other.say("let go")
        await other.hear("free")
        assert (await waiting).id == 1
        assert [task.subject for task in await store.list_tasks(team.id)] == ["waits"]


async def test_a_process_killed_in_the_middle_of_a_write_leaves_nothing_of_it_and_holds_up_nobody(
    shared_store_url: str, crew: Crew
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        for number in range(1, 6):
            child = crew.start(stay_inside, url=shared_store_url, team_id=team.id)
            await child.hear("inside")
            waiting = asyncio.create_task(store.create_task(user, "next"))
            child.kill()
            assert (await asyncio.wait_for(waiting, BOUND_SECONDS)).id == number


async def test_a_child_of_a_killed_process_holds_neither_the_store_nor_its_life(
    disk_store_url: str, crew: Crew
) -> None:
    async with opened(disk_store_url) as store:
        _, user = await create_team(store)
        parent = crew.start(fork_inside, url=disk_store_url, team_id=user.team_id)
        orphan = (await parent.hear("inside"))["child"]
        try:
            parent.kill()
            assert (await store.create_task(user, "next")).id == 1
            [worker] = await store.list_workers()
            assert await store.probe_worker(worker) is Liveness.DEAD
        finally:
            os.kill(orphan, signal.SIGKILL)


async def test_a_child_that_is_forked_while_a_worker_registers_does_not_hold_its_life(
    disk_store_url: str, crew: Crew
) -> None:
    parent = crew.start(fork_while_registering, url=disk_store_url)
    orphan = (await parent.hear("registered"))["child"]
    try:
        parent.kill()
        async with opened(disk_store_url) as store:
            [worker] = await store.list_workers()
            assert await store.probe_worker(worker) is Liveness.DEAD
    finally:
        os.kill(orphan, signal.SIGKILL)


async def test_what_a_forked_child_has_written_is_there_when_its_parent_has_closed_the_store(
    disk_store_url: str, crew: Crew
) -> None:
    # Nobody else has it open: else SQLite would not tidy up behind the parent.
    async with opened(disk_store_url) as store:
        _, user = await create_team(store)
    parent = crew.start(leave_the_store_to_a_child, url=disk_store_url, team_id=user.team_id)
    await parent.hear("over")
    async with opened(disk_store_url) as store:
        tasks = await store.list_tasks(user.team_id)
        assert [task.subject for task in tasks] == ["of the parent", "of the child", "of the child alone"]
        assert (await store.create_task(user, "next")).id == 4


async def test_the_store_of_its_parent_is_closed_for_a_forked_child(disk_store_url: str, crew: Crew) -> None:
    """The threads by which it would be used are not there: nobody must wait for them."""
    async with opened(disk_store_url) as store:
        _, user = await create_team(store)
        parent = crew.start(use_the_store_of_a_parent, url=disk_store_url, team_id=user.team_id)
        outcomes = (await parent.hear("over"))["outcomes"].splitlines()
        assert outcomes == ["UsageError: this store has been closed: open it again"] * 3
        assert [task.subject for task in await store.list_tasks(user.team_id)] == ["of the parent"]


async def test_a_child_that_is_forked_while_its_parent_closes_the_store_may_fork_in_turn(
    tmp_path: Path, crew: Crew
) -> None:
    url = url_in(tmp_path, "sqlite-file")
    async with opened(url) as store:
        _, user = await create_team(store)
    parent = crew.start(fork_while_closing, url=url, team_id=user.team_id)
    assert (await parent.hear("over"))["status"] == 0


@contextmanager
def _impatient(store: Store) -> Iterator[None]:
    """It soon gives up waiting for others; only here, since what is to succeed has all the time that it needs."""
    before, vars(store)["_patience_seconds"] = vars(store)["_patience_seconds"], 0.3
    yield
    vars(store)["_patience_seconds"] = before


async def test_whoever_holds_the_store_for_ever_is_named_and_the_waiting_verb_never_happens(
    disk_store_url: str, crew: Crew
) -> None:
    async with opened(disk_store_url) as store:
        team, user = await create_team(store)
        child = crew.start(stay_inside, url=disk_store_url, team_id=team.id)
        await child.hear("inside")
        with _impatient(store):
            with pytest.raises(StoreUnavailable, match=rf"\b{child.pid}\b"):
                await store.create_task(user, "given up")
            with pytest.raises(StoreUnavailable, match=rf"\b{child.pid}\b"):
                await store.register_worker()
        child.kill()
        task = await store.create_task(user, "written")
        assert (task.id, task.subject) == (1, "written")
        assert [task] == await store.list_tasks(team.id)
        assert await store.list_workers() == []


@pytest.mark.parametrize(("store", "lock"), [("sqlite-file", "bullpen.db.gate"), ("files", ".teams/.lock")])
async def test_whoever_waits_is_told_in_time_whatever_the_lock_file_says(tmp_path: Path, store: str, lock: str) -> None:
    async with opened(url_in(tmp_path, store)) as waiting:
        _, user = await create_team(waiting)
        with (tmp_path / lock).open("r+b") as file:
            file.write(b"\xff" * 40)
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            with _impatient(waiting), pytest.raises(StoreUnavailable, match="another process holds the store"):
                await asyncio.wait_for(waiting.create_task(user, "given up"), BOUND_SECONDS)


async def test_a_store_can_be_closed_while_another_process_holds_it(
    disk_store_url: str, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CLOSE_PATIENCE_SECONDS", 0.2)
    async with opened(disk_store_url) as store:
        team, user = await create_team(store)
        child = crew.start(stay_inside, url=disk_store_url, team_id=team.id)
        await child.hear("inside")
        with _impatient(store), pytest.raises(StoreUnavailable):
            await store.create_task(user, "given up")
    with pytest.raises(UsageError, match="closed"):
        await store.create_task(user, "too late")
    # The abandoned thread still waits at the gate. What is opened meanwhile must not be taken for the gate then.
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(16)]
        child.kill()
        await asyncio.to_thread(vars(store)["_writer"]._thread.join, BOUND_SECONDS)
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * 16
    async with opened(disk_store_url) as store:
        assert (await store.create_task(user, "written")).id == 1


# -- callers who are cancelled ---------------------------------------------------------------------------


async def test_a_caller_cancelled_while_its_verb_waits_takes_it_back(disk_store_url: str, crew: Crew) -> None:
    async with opened(disk_store_url) as store:
        team, user = await create_team(store)
        child = crew.start(stay_inside, url=disk_store_url, team_id=team.id)
        await child.hear("inside")
        waiting = [asyncio.create_task(store.create_task(user, f"task {index}")) for index in range(5)]
        await asyncio.sleep(0)
        for task in waiting[:4]:
            task.cancel()
        outcomes = await asyncio.gather(*waiting[:4], return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), "they need not wait"
        child.kill()
        stored = await waiting[4]
        assert (stored.id, stored.subject) == (1, "task 4")
        assert [stored] == await store.list_tasks(team.id)


async def test_a_caller_cancelled_after_its_verb_began_waits_for_its_end(disk_store_url: str) -> None:
    async with opened(disk_store_url) as store:
        team, user = await create_team(store)
        async with _stuck_verb(store, team.id) as (stuck, let_go):
            for _ in range(3):
                stuck.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not stuck.done(), "it was told before its verb had ended"
            let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await stuck
        assert (await store.get_team(team.id)).next_task_id == 2, "what had begun has happened"
        assert (await store.create_task(user, "next")).id == 2


async def test_what_the_database_refuses_of_one_verb_does_not_spoil_those_that_are_committed_with_it(
    tmp_path: Path,
) -> None:
    async with opened(url_in(tmp_path, "sqlite-file")) as store:
        team, user = await create_team(store)
        ana = (await join(store, team.id, "ana")).ref
        assert isinstance(store, SqliteStore)
        assert store._write_cursor is not None
        store._write_cursor.connection.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
        async with _stuck_verb(store, team.id) as (stuck, let_go):
            too_big = store.record_turn(ana, "note", "x" * 200_000)
            verbs = store.create_task(user, "one"), too_big, store.create_task(user, "two")
            running = asyncio.gather(*verbs, return_exceptions=True)
            for _ in range(3):
                await asyncio.sleep(0)
            let_go.set()
            one, refused, two = await running
            await stuck
        assert isinstance(refused, StoreError)
        assert [one, two] == await store.list_tasks(team.id)


@asynccontextmanager
async def _stuck_verb(store: Store, team_id: int) -> AsyncIterator[tuple[asyncio.Task[None], threading.Event]]:
    """A verb that takes a number and then stays in the writer's thread until it is let go."""
    begun, let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def body(tx: Transaction) -> None:
        await tx.take_task_id(team_id)
        loop.call_soon_threadsafe(begun.set)
        let_go.wait(BOUND_SECONDS)

    assert isinstance(store, VerbStore)
    # While commits are quick a verb that is alone runs in the loop itself, where nobody could cancel it.
    vars(store)["_writer"]._last_seconds.extend([math.inf, math.inf])
    stuck = asyncio.create_task(store._write(body))
    await begun.wait()
    try:
        yield stuck, let_go
    finally:
        let_go.set()


async def test_verbs_cancelled_at_any_moment_happen_entirely_or_not_at_all(
    shared_store_url: str, chance: random.Random
) -> None:
    async with opened(shared_store_url) as store:
        team, user = await create_team(store)
        returned: list[int] = []
        for _ in range(60):
            verbs = [asyncio.create_task(store.create_task(user, "task", blocked_by=())) for _ in range(3)]
            # Let the loop turn a few times: the cancellation meets the verb before, during or after its work.
            for _ in range(chance.choice((0, 1, 2, 3, 5, 8, 13, 21, 34, 55))):
                await asyncio.sleep(0)
            victim = chance.choice(verbs)
            victim.cancel()
            outcomes = await asyncio.gather(*verbs, return_exceptions=True)
            assert all(
                not isinstance(one, BaseException)
                for verb, one in zip(verbs, outcomes, strict=True)
                if verb is not victim
            )
            returned += [outcome.id for outcome in outcomes if not isinstance(outcome, BaseException)]
        tasks = await store.list_tasks(team.id)
        assert [task.id for task in tasks] == list(range(1, len(tasks) + 1)), "a number was lost or given twice"
        assert set(returned) <= {task.id for task in tasks}
        assert len(returned) == len(set(returned))
        events = [
            event.data["task"] for event in await store.list_events(team.id, limit=10_000) if "task" in event.data
        ]
        assert sorted(events) == [task.id for task in tasks], "a verb without its event, or the other way round"


async def test_who_is_cancelled_while_it_closes_a_store_leaves_nothing_open(disk_store_url: str) -> None:
    async with opened(disk_store_url) as store:
        _, user = await create_team(store)
    # What another test left open must not be closed in between.
    gc.collect()
    before = _open_files(), _threads()
    for steps in range(1, 12):
        closing = open_store(disk_store_url)
        await closing.__aenter__()
        await asyncio.gather(*(closing.create_task(user, "task") for _ in range(2)), closing.list_teams())
        leaving = asyncio.create_task(closing.__aexit__(None, None, None))
        for _ in range(steps):
            await asyncio.sleep(0)
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving
    gc.collect()
    assert (_open_files(), _threads()) == before


def _open_files() -> list[str]:
    names = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sorted(name for name in names if "store" in name)


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("bullpen-"))


# -- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
async def test_a_jump_of_the_clock_kills_nobody(shared_store_url: str, days: int) -> None:
    clock = FakeClock()
    async with opened(shared_store_url, clock=clock) as store:
        team, user = await create_team(store)
        worker = await store.register_worker(slots=1)
        await store.spawn_member(user, "ana")
        hosted = await store.host_member(worker.id)
        assert hosted is not None
        cat = (await join(store, team.id, "cat")).ref
        watch, maintenance = LapseWatch(store), Maintenance(store)
        await watch.look()
        await maintenance.run_once()

        clock.jump(days * 86_400)
        assert await watch.look() == []
        await maintenance.run_once()
        assert await store.probe_worker(worker) is Liveness.ALIVE
        for member in (hosted.ref, cat):
            now = await store.get_member(team.id, member.name)
            assert (now.incarnation, now.status) == (member.incarnation, MemberStatus.WORKING)
            await store.send(member, "lead", "still here")
        first = await store.create_task(user, "after the jump")
        assert (await store.claim_next_task(cat)) is not None
        await store.complete_task(cat, first.id)
        assert (await store.renew_worker(worker.id)).renewals == 1


async def test_an_observer_that_was_suspended_gives_everyone_another_lease(shared_store_url: str) -> None:
    """A laptop that was closed for an hour: observer and observed wake up at the same moment."""
    clock = FakeClock()
    async with opened(shared_store_url, clock=clock) as store:
        team, _ = await create_team(store)
        cat = (await join(store, team.id, "cat")).ref
        [worker] = await store.list_workers()
        watch = LapseWatch(store)
        assert await watch.look() == []
        clock.advance(3600)
        assert await watch.look() == []
        await store.renew_worker(worker.id)
        for _ in range(5):
            clock.advance(worker.lease_seconds / 5)
            assert await watch.look() == []
        await store.send(cat, "lead", "still here")
        for _ in range(5):
            clock.advance(worker.lease_seconds / 5)
            await watch.look()
        with pytest.raises(LeaseLost):
            await store.send(cat, "lead", "but it stopped renewing")


# -- the doorbell -----------------------------------------------------------------------------------------


async def test_a_verb_does_not_fail_because_its_rings_cannot_be_sent(
    disk_store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells = tmp_path / "run"
    bells.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(bells)[:40] if len(str(bells)) > 40 else str(bells))
    async with opened(disk_store_url) as store:
        assert isinstance(store, VerbStore)
        _, user = await create_team(store)
        directory: Any = vars(store._doorbell)["_directory"]
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.write_text("not a directory")
        try:
            for number in range(1, 4):
                assert (await store.create_task(user, "written")).id == number
            with pytest.raises(StoreUnavailable, match="doorbell"):
                await store.register_worker()
            assert await store.list_workers() == [], "a worker that nobody can wake is not one"
        finally:
            directory.unlink()
        await store.register_worker()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may write in directories of others")
async def test_who_leaves_where_nothing_can_be_removed_any_more_has_left(disk_store_url: str, tmp_path: Path) -> None:
    """As on a disk that has become read-only."""
    async with opened(disk_store_url) as other:
        async with opened(disk_store_url) as store:
            assert isinstance(store, VerbStore)
            assert isinstance(store._doorbell, DatagramDoorbell)
            await store.register_worker()
            directory = store._doorbell._directory
            directory.rename(tmp_path / "moved")
            directory.touch()
        directory.unlink()
        assert await other.list_workers() == []


async def test_nothing_is_left_in_the_runtime_directory_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo -E` keeps the variable: what root made there, its owner could not enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chown(directory, 12345, -1)
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        async with opened(url_in(Path(directory, "store"), "sqlite-file")) as store:
            await store.register_worker()
        assert os.listdir(directory) == ["store"]


@pytest.mark.parametrize("letter", [b"", b"\xff", b"[", b"5", b'["m"]', b'[["m",[],{}]]', b"[" * 50_000])
async def test_a_letter_that_makes_no_sense_is_passed_over(tmp_path: Path, letter: bytes) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    async with opened(url_in(tmp_path, "sqlite-file")) as store:
        assert isinstance(store, VerbStore)
        await store.register_worker()
        [mailbox] = vars(store._doorbell)["_directory"].iterdir()
        async with store.listen_wanted() as bell:
            bell.clear()
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hand:
                for each in (letter, b'[["w"]]'):
                    hand.sendto(each, str(mailbox))
            assert await bell.wait(BOUND_SECONDS)
    assert complaints == []


async def test_a_member_whose_ring_was_lost_is_found_by_the_safety_net(
    disk_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(disk_store_url, poll_interval_seconds=0.05) as store, opened(disk_store_url) as other:
        team, user = await create_team(store)
        me = (await join(store, team.id, "ana")).ref
        await store.set_member_status(me, MemberStatus.IDLE)
        monkeypatch.setattr(DatagramDoorbell, "send", lambda *_: None)
        async with store.listen_member(me) as bell:
            for change in (other.send(user, "ana", "hello"), other.create_task(user, "for anyone")):
                bell.clear()
                await change
                assert await bell.wait(BOUND_SECONDS), "something waits for it and nobody looks"


async def test_a_member_that_was_forced_out_is_found_by_the_safety_net(
    disk_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for nothing any more that could come, so nothing else would wake it."""
    async with opened(disk_store_url, poll_interval_seconds=0.05) as store, opened(disk_store_url) as other:
        team, user = await create_team(store)
        me = (await join(store, team.id, "ana")).ref
        await store.set_member_status(me, MemberStatus.IDLE)
        monkeypatch.setattr(DatagramDoorbell, "send", lambda *_: None)
        async with store.listen_member(me) as bell:
            await other.open_request(user, RequestKind.SHUTDOWN, "ana", timeout_seconds=0.0)
            assert await bell.wait(BOUND_SECONDS)
            bell.clear()
            await other.expire_requests()
            assert await bell.wait(BOUND_SECONDS), "it sleeps under an incarnation that is over"
            with pytest.raises(LeaseLost):
                await store.find_work(me)


# -- sessions ----------------------------------------------------------------------------------------------


async def test_a_child_of_a_killed_process_holds_no_session(postgres_url: str, crew: Crew) -> None:
    parent = crew.start(work_with_a_child, url=postgres_url)
    told = await parent.hear("at work")
    parent.kill()
    try:
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
            await connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{BOUND_SECONDS}s",))
            await connection.execute("SELECT pg_advisory_lock(%s)", (life_key(told["token"]),))
    finally:
        os.kill(told["child"], signal.SIGKILL)


# -- a server that dies ------------------------------------------------------------------------------------


async def test_a_killed_server_is_told_and_the_store_goes_on_when_it_is_back(private_postgres: PrivateServer) -> None:
    async with opened(private_postgres.url, patience_seconds=1) as store:
        team, user = await create_team(store)
        me = (await join(store, team.id, "ana")).ref
        await store.set_member_status(me, MemberStatus.IDLE)
        async with store.listen_member(me) as bell:
            await asyncio.to_thread(private_postgres.kill9)
            with pytest.raises(StoreUnavailable):
                await store.create_task(user, "refused")
            with pytest.raises(StoreUnavailable):
                await store.list_tasks(team.id)
            await asyncio.to_thread(private_postgres.start)
            task = await store.create_task(user, "written")
            assert (task.id, [task]) == (1, await store.list_tasks(team.id))
            bell.clear()
            if await store.find_work(me) is None:
                assert await bell.wait(BOUND_SECONDS)
            assert await store.find_work(me) == "task"
            assert await store.claim_next_task(me) is not None
