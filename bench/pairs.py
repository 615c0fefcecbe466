"""Those who are measured in pairs of operations: claim and complete, or send and take.

Each subject runs in the processes of a crew and offers the same: `open`, `refill`
the board, a `burst` of pairs between two moments, `close`. All claimers of a
process are coroutines of one store object; the bare engines and the seeds use
threads, each with a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from bench.crew import Child
from bench.ground import create_tasks, multiply, open_sql, sqlite_connection
from bullpen.domain.member import MemberRef
from bullpen.errors import StoreUnavailable
from bullpen.store import Store
from bullpen.stores import open_store

_TRIES = 5

now_ns = time.monotonic_ns
"""CLOCK_MONOTONIC: the same in all processes of a machine."""


@dataclass(slots=True)
class Burst:
    """What the claimers of one process did between two moments."""

    first_ns: list[int] = field(default_factory=list)
    second_ns: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    ended_at: int = 0
    torn: int = 0
    refused: int = 0
    """Answered with StoreUnavailable: it waited too long for its turn."""
    parts: float = 0.0
    """Of claims that did not fit into the time: which part of them did, added up."""

    def note(self, began: int, between: int, ended: int, id: int) -> None:
        self.first_ns.append(between - began)
        self.second_ns.append(ended - between)
        self.ids.append(id)
        self.ended_at = max(self.ended_at, ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a subject works: a store's URL or a folder, and the team in it."""

    url: str
    team_id: int = 0


class Subject(Protocol):
    def open(self, place: Place, names: list[str]) -> None: ...

    def refill(self, used: list[int]) -> None:
        """As many claimable tasks as were used; not measured."""
        ...

    def burst(self, start_at: int, stop_at: int) -> Burst: ...

    def close(self) -> None: ...


# -- orders to a process --------------------------------------------------------------------


def open_subject(child: Child, key: str, kind: str, work: str, place: Place, each: int, prefix: str) -> None:
    subject = _KINDS[kind](child, work)
    subject.open(place, [f"{prefix}{number}" for number in range(each)])
    child.kept[key] = subject


def refill(child: Child, key: str, used: list[int]) -> None:
    child.kept[key].refill(used)


def burst(child: Child, key: str, start_at: int, stop_at: int) -> Burst:
    done: Burst = child.kept[key].burst(start_at, stop_at)
    return done


def close_subject(child: Child, key: str) -> None:
    child.kept.pop(key).close()


# -- the store ------------------------------------------------------------------------------


class StoreSubject:
    """Members that joined through one store object, each in a coroutine."""

    def __init__(self, child: Child, work: str) -> None:
        self._runner = child.runner
        self._pair = {"claims": self._claim_and_complete, "mail": self._send_and_take}[work]
        self._members: list[MemberRef] = []

    def open(self, place: Place, names: list[str]) -> None:
        self._runner.run(self._open(place, names))

    async def _open(self, place: Place, names: list[str]) -> None:
        self._store: Store = await open_store(place.url).__aenter__()
        self._team_id = place.team_id
        worker = await self._store.register_worker(lease_seconds=3600)
        for name in names:
            self._members.append((await self._store.join_member(worker.id, place.team_id, name)).ref)

    def refill(self, used: list[int]) -> None:
        self._runner.run(create_tasks(self._store, self._team_id, len(used)))

    def burst(self, start_at: int, stop_at: int) -> Burst:
        return self._runner.run(self._burst(start_at, stop_at))

    async def _burst(self, start_at: int, stop_at: int) -> Burst:
        done = Burst()
        await asyncio.sleep(max(0, start_at - now_ns()) / 1e9)
        async with asyncio.TaskGroup() as group:
            for me in self._members:
                group.create_task(self._work(me, stop_at, done))
        return done

    async def _work(self, me: MemberRef, stop_at: int, done: Burst) -> None:
        while now_ns() < stop_at:
            try:
                if not await self._pair(me, done):
                    return
            except StoreUnavailable:
                done.refused += 1

    async def _claim_and_complete(self, me: MemberRef, done: Burst) -> bool:
        began = now_ns()
        task = await self._store.claim_next_task(me)
        between = now_ns()
        if task is None:
            return False
        await self._complete(me, task.id, done)
        done.note(began, between, now_ns(), task.id)
        return True

    async def _complete(self, me: MemberRef, task_id: int, done: Burst) -> None:
        for _ in range(_TRIES):
            try:
                await self._store.complete_task(me, task_id, result="done")
            except StoreUnavailable:
                done.refused += 1
            else:
                return
        raise RuntimeError(f"{me.name} could not complete #{task_id}: the store is gone")

    async def _send_and_take(self, me: MemberRef, done: Burst) -> bool:
        began = now_ns()
        await self._store.send(me, me.name, "Is the schema ready?")
        between = now_ns()
        taken = await self._store.take_mail(me)
        assert taken is not None
        for message in taken.messages:
            done.note(began, between, now_ns(), message.id)
        return True

    def close(self) -> None:
        self._runner.run(self._store.__aexit__(None, None, None))


# -- threads --------------------------------------------------------------------------------


def _in_threads(works: Iterable[Callable[[int, Burst], None]], start_at: int, stop_at: int) -> Burst:
    """Each works until the moment; what they did is added up."""
    bursts: list[Burst] = []
    failures: list[BaseException] = []

    def run(work: Callable[[int, Burst], None], done: Burst) -> None:
        time.sleep(max(0, start_at - now_ns()) / 1e9)
        try:
            work(stop_at, done)
        except BaseException as error:
            failures.append(error)

    threads = []
    for work in works:
        done = Burst()
        bursts.append(done)
        threads.append(threading.Thread(target=run, args=(work, done)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    total = Burst()
    for done in bursts:
        total.first_ns += done.first_ns
        total.second_ns += done.second_ns
        total.ids += done.ids
        total.parts += done.parts
        total.torn += done.torn
        total.ended_at = max(total.ended_at, done.ended_at)
    return total


class BareSubject:
    """The engine's own limit: two transactions in a loop, on the same tables, with nothing around them."""

    begin: str
    mark: Callable[[str], str]

    def __init__(self, child: Child, work: str) -> None:
        self._work = work
        self._stack = ExitStack()
        self._loops: list[Callable[[int, Burst], None]] = []

    def open(self, place: Place, names: list[str]) -> None:
        self._place = place
        for name in names:
            self._loops.append(self._loop(self._connect(place.url), name))

    def refill(self, used: list[int]) -> None:
        with ExitStack() as stack:
            execute = open_sql(self._place.url, stack)
            [(last,)] = execute(f"SELECT max(id) FROM task WHERE team_id = {self._place.team_id}")
            multiply(execute, self._place.team_id, last + 1, last + len(used))

    def burst(self, start_at: int, stop_at: int) -> Burst:
        return _in_threads(self._loops, start_at, stop_at)

    def close(self) -> None:
        self._stack.close()

    def _connect(self, url: str) -> Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]:
        raise NotImplementedError

    def _loop(
        self, execute: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]], name: str
    ) -> Callable[[int, Burst], None]:
        first, second = (self._sql(statement) for statement in _BARE[self._work])
        team_id, begin = self._place.team_id, self.begin

        def loop(stop_at: int, done: Burst) -> None:
            while (began := now_ns()) < stop_at:
                execute(begin, ())
                rows = execute(first, (name, name, team_id))
                execute("COMMIT", ())
                between = now_ns()
                if not rows:
                    return
                execute(begin, ())
                execute(second, (team_id, rows[0][0]))
                execute("COMMIT", ())
                done.note(began, between, now_ns(), rows[0][0])

        return loop

    def _sql(self, statement: str) -> str:
        raise NotImplementedError


_NOW = "'2026-01-01T00:00:00.000000+00:00'"

# What one writes by hand: a single probe of the partial index of claimable tasks.
_BARE = {
    "claims": (
        f"""
        UPDATE task SET status = 'in_progress', owner = ?, owner_key = ?, claimed_at = {_NOW}, updated_at = {_NOW}
        WHERE (team_id, id) = (
            SELECT team_id, id FROM task
            WHERE team_id = ? AND role_key = '' AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
            ORDER BY id LIMIT 1 <skip locked>)
        RETURNING id
        """,
        f"""
        UPDATE task SET status = 'completed', result = 'done', finished_at = {_NOW}, updated_at = {_NOW}
        WHERE team_id = ? AND id = ?
        """,
    ),
    "mail": (
        f"""
        INSERT INTO message
            (recipient, recipient_key, team_id, sender, type, content, origin, wakes, sent_at, extra)
        VALUES (?, ?, ?, 'bench', 'message', 'Is the schema ready?', 'agent', <true>, {_NOW}, '{{}}')
        RETURNING id
        """,
        f"UPDATE message SET delivered_at = {_NOW} WHERE team_id = ? AND id = ?",
    ),
}


class BareSqlite(BareSubject):
    begin = "BEGIN IMMEDIATE"

    def _connect(self, url: str) -> Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]:
        connection = sqlite_connection(url)
        connection.set_busy_timeout(60_000)
        self._stack.callback(connection.close)
        return lambda sql, values: connection.execute(sql, values).fetchall()

    def _sql(self, statement: str) -> str:
        return statement.replace("<skip locked>", "").replace("<true>", "1")


class BarePostgres(BareSubject):
    begin = "BEGIN"

    def _connect(self, url: str) -> Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]:
        connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._stack.callback(connection.close)

        def execute(sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        return execute

    def _sql(self, statement: str) -> str:
        statement = statement.replace("<skip locked>", "FOR NO KEY UPDATE SKIP LOCKED").replace("<true>", "true")
        return re.sub(r"\?(?!')", "%s", statement)


# -- the seeds ------------------------------------------------------------------------------

# To judge by how long the rest takes.
_ENOUGH_FILES = 100


class SeedSubject:
    """Scan the folder, parse every task, take the first that looks free, write it without a lock.

    A claim that does not end in time is cut off: what it would have taken follows from
    the part of the folder that it read. The seeds' agent dies of a file that another is
    just writing, or that two have written over each other; here it passes over it.
    """

    def __init__(self, child: Child, work: str) -> None:
        self._names: list[str] = []

    def open(self, place: Place, names: list[str]) -> None:
        self._folder = Path(place.url)
        self._names = names

    def refill(self, used: list[int]) -> None:
        """What was taken is put back: the folder keeps its size, which is what a claim costs here."""
        for number in used:
            write_seed_task(self._folder, number)

    def burst(self, start_at: int, stop_at: int) -> Burst:
        return _in_threads(
            [lambda stop, done, name=name: self._work(name, stop, done) for name in self._names],  # type: ignore[misc]
            start_at,
            stop_at,
        )

    def close(self) -> None:
        return None

    def _work(self, name: str, stop_at: int, done: Burst) -> None:
        while (began := now_ns()) < stop_at:
            task_id = self._claim(began, stop_at, done)
            if task_id is None:
                return
            self._set(task_id, done, status="in_progress", owner=name)
            between = now_ns()
            self._set(task_id, done, status="completed")
            done.note(began, between, now_ns(), task_id)

    def _claim(self, began: int, stop_at: int, done: Burst) -> int | None:
        paths = sorted(self._folder.glob("task_*.json"))
        listed = now_ns()
        unclaimed = []
        for count, path in enumerate(paths, start=1):
            task = _read_seed_task(path, done)
            if task.get("status") == "pending" and not task.get("owner") and not task.get("blockedBy"):
                unclaimed.append(task)
            if (now := now_ns()) > stop_at and _ENOUGH_FILES <= count < len(paths):
                done.parts += (now - began) / (listed - began + (now - listed) * len(paths) / count)
                done.ended_at = max(done.ended_at, now)
                return None
        return int(unclaimed[0]["id"]) if unclaimed else None

    def _set(self, task_id: int, done: Burst, **changes: str) -> None:
        path = self._folder / f"task_{task_id}.json"
        path.write_text(json.dumps({**_read_seed_task(path, done), **changes}, indent=2))


def _read_seed_task(path: Path, done: Burst) -> dict[str, Any]:
    try:
        task: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        done.torn += 1
        return {"id": int(path.stem.removeprefix("task_"))}
    return task


def write_seed_task(folder: Path, number: int) -> None:
    task = {
        "id": number,
        "subject": f"Task {number}",
        "description": "Do what is to be done",
        "status": "pending",
        "owner": "",
        "blockedBy": [],
        "blocks": [],
    }
    (folder / f"task_{number}.json").write_text(json.dumps(task, indent=2))


_KINDS: dict[str, Callable[[Child, str], Subject]] = {
    "store": StoreSubject,
    "bare sqlite": BareSqlite,
    "bare postgresql": BarePostgres,
    "seeds": SeedSubject,
}
