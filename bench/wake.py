"""Waking: from just before a verb in one process to a waiter in another having returned from `bell.wait`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import psycopg

from bench.crew import Child, Crew
from bench.figures import Section, Target, median, milliseconds, percentile
from bench.ground import Ground, make_board
from bench.options import Options
from bench.pairs import Place, now_ns
from bullpen.domain.member import USER, MemberRef, MemberStatus
from bullpen.store import Bell, Store
from bullpen.stores import open_store

WAITER = "waiter"
NOTIFY = "bare NOTIFY"
ROUND_TRIP = "bare NOTIFY there and back"
INSERT_AND_NOTIFY = "bare INSERT and NOTIFY"
FLOOR = "bare INSERT and NOTIFY, one statement"
LOCAL_LIMIT_MS = 2.0
POSTGRES_LIMIT = 1.5
_CHANNEL = "bench_wake"
_INSERT = """
    INSERT INTO message
        (recipient, recipient_key, team_id, sender, type, content, origin, wakes, sent_at, extra)
    VALUES ('bench', 'bench', %s, 'bench', 'message', 'Is the schema ready?', 'agent', true, now(), '{}')
"""
_INSERT_WITH_NOTIFY = f"WITH added AS ({_INSERT} RETURNING 1) SELECT pg_notify(%s, 'x') FROM added"


class Side(Protocol):
    """One end of a way to be woken: `wait` returns when it was woken, `ring` when it began to ring."""

    def wait(self, ready: Callable[[], None]) -> int: ...

    def ring(self) -> int: ...

    def close(self) -> None: ...


# -- orders to a process --------------------------------------------------------------------


def open_side(child: Child, key: str, kind: str, what: str, place: Place, is_waiter: bool) -> None:
    child.kept[key] = _KINDS[kind](child, what, place, is_waiter)


def wait(child: Child, key: str) -> int:
    side: Side = child.kept[key]
    return side.wait(lambda: child.say("ready"))


def ring(child: Child, key: str) -> int:
    # The waiter has said that it is ready, and needs a moment until it really sleeps.
    time.sleep(random.uniform(0.002, 0.006))
    side: Side = child.kept[key]
    return side.ring()


def close_side(child: Child, key: str) -> None:
    child.kept.pop(key).close()


# -- the store ------------------------------------------------------------------------------


class StoreSide:
    def __init__(self, child: Child, what: str, place: Place, is_waiter: bool) -> None:
        self._runner = child.runner
        self._what = what
        self._team_id = place.team_id
        self._stack = AsyncExitStack()
        self._runner.run(self._open(place.url, is_waiter))

    async def _open(self, url: str, is_waiter: bool) -> None:
        self._store: Store = await self._stack.enter_async_context(open_store(url))
        if is_waiter:
            worker = await self._store.register_worker(lease_seconds=3600)
            # A waiter for tasks and one for mail are two members: neither hears the other's ring.
            self._me = (await self._store.join_member(worker.id, self._team_id, f"{WAITER}-{self._what}")).ref
            self._bell: Bell = await self._stack.enter_async_context(self._store.listen_member(self._me))

    def wait(self, ready: Callable[[], None]) -> int:
        return self._runner.run(self._wait(ready))

    async def _wait(self, ready: Callable[[], None]) -> int:
        if self._what == "task":
            await self._store.set_member_status(self._me, MemberStatus.IDLE)
        # What rang while this loop stood still is heard now.
        await asyncio.sleep(0.002)
        self._bell.clear()
        ready()
        while True:
            await self._bell.wait()
            woke_at = now_ns()
            self._bell.clear()
            if await self._take():
                return woke_at

    async def _take(self) -> bool:
        if self._what == "mail":
            return await self._store.take_mail(self._me) is not None
        task = await self._store.claim_next_task(self._me)
        if task is not None:
            await self._store.complete_task(self._me, task.id, result="done")
        return task is not None

    def ring(self) -> int:
        return self._runner.run(self._ring())

    async def _ring(self) -> int:
        user = MemberRef(self._team_id, USER, 0)
        began = now_ns()
        if self._what == "mail":
            await self._store.send(user, f"{WAITER}-{self._what}", "Is the schema ready?")
        else:
            await self._store.create_task(user, "Analyse the REST endpoints")
        return began

    def close(self) -> None:
        self._runner.run(self._stack.aclose())


class PollingSide(StoreSide):
    """What the seeds do: look, sleep for a second, look again."""

    async def _wait(self, ready: Callable[[], None]) -> int:
        ready()
        while await self._store.find_work(self._me) is None:  # noqa: ASYNC110 - polling is what is measured
            await asyncio.sleep(1.0)
        woke_at = now_ns()
        await self._take()
        return woke_at

    def ring(self) -> int:
        time.sleep(random.uniform(0.0, 1.0))
        return super().ring()


class NotifySide:
    """PostgreSQL's own way: NOTIFY in one session, LISTEN in another."""

    def __init__(self, child: Child, what: str, place: Place, is_waiter: bool) -> None:
        self._what = what
        self._team_id = place.team_id
        self._connection = psycopg.connect(place.url, autocommit=True, prepare_threshold=0)
        if is_waiter:
            self._connection.execute(f"LISTEN {_CHANNEL}".encode())

    def wait(self, ready: Callable[[], None]) -> int:
        ready()
        self._hear()
        return now_ns()

    def _hear(self) -> str:
        # To its end: as long as the generator lives, the connection does nothing else.
        (notice,) = list(self._connection.notifies(stop_after=1))
        return notice.payload

    def ring(self) -> int:
        began = now_ns()
        match self._what:
            case "insert":
                with self._connection.transaction():
                    self._connection.execute(_INSERT, (self._team_id,))
                    self._notify()
            case "insert at once":
                self._connection.execute(_INSERT_WITH_NOTIFY, (self._team_id, _CHANNEL))
            case _:
                self._notify()
        return began

    def _notify(self) -> None:
        self._connection.execute("SELECT pg_notify(%s, 'x')", (_CHANNEL,))

    def close(self) -> None:
        self._connection.close()


class EchoSide(NotifySide):
    """PostgreSQL's own round trip: whoever is woken sends a notice back, and that one's arrival is what counts."""

    def __init__(self, child: Child, what: str, place: Place, is_waiter: bool) -> None:
        super().__init__(child, what, place, is_waiter)
        if not is_waiter:
            self._connection.execute(f"LISTEN {_CHANNEL}_back".encode())

    def wait(self, ready: Callable[[], None]) -> int:
        super().wait(ready)
        self._connection.execute(f"NOTIFY {_CHANNEL}_back".encode())
        return int(self._hear())

    def ring(self) -> int:
        began = super().ring()
        self._hear()
        self._connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, str(now_ns())))
        return began


_KINDS: dict[str, Callable[[Child, str, Place, bool], Any]] = {
    "store": StoreSide,
    "polling": PollingSide,
    "notify": NotifySide,
    "echo": EchoSide,
}


# -- the parent -----------------------------------------------------------------------------


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    section = Section("Waking")
    section.say(
        """From just before `send` or `create_task` in one process to a member in another process having returned from
        `bell.wait`: the commit, flushed to disk, is part of it. A bare `NOTIFY` changes nothing, so PostgreSQL flushes
        nothing for it; there and back is its round trip, of which a wake is one half. `INSERT` and `NOTIFY` in one
        transaction is the bare form of what a verb does; in one statement it is the least that a wake can be which
        leaves something durable behind, and its ratio to the round trip is what no verb can pass below. Polling once a
        second takes half a second on average whatever the store; a few were measured."""
    )
    samples = _measure(ground, options, stores)
    rows = []
    for name, latencies in samples.items():
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        rows.append([name, f"{len(latencies)}", milliseconds(p50), milliseconds(p99), _verdict(name, samples, section)])
    section.table(["", "samples", "p50", "p99", ""], rows)
    return section


def _measure(ground: Ground, options: Options, stores: list[str]) -> dict[str, list[int]]:
    sides: dict[str, tuple[str, str, Place]] = {}
    for store in stores:
        url = ground.new_url(store)
        place = Place(url=url, team_id=make_board(url, 0))
        sides[f"{store}, mail"] = ("store", "mail", place)
        sides[f"{store}, task"] = ("store", "task", place)
        if store == "postgresql":
            for name, kind, what in (
                (NOTIFY, "notify", ""),
                (ROUND_TRIP, "echo", ""),
                (INSERT_AND_NOTIFY, "notify", "insert"),
                (FLOOR, "notify", "insert at once"),
            ):
                url = ground.new_url(store)
                sides[name] = (kind, what, Place(url=url, team_id=make_board(url, 0)))
    if stores:
        url = ground.new_url(stores[0])
        sides["polling once a second"] = ("polling", "mail", Place(url=url, team_id=make_board(url, 0)))
    samples: dict[str, list[int]] = {name: [] for name in sides}
    with Crew(2) as crew:
        waiter, ringer = crew.helpers
        for name, (kind, what, place) in sides.items():
            waiter.call(open_side, name, kind, what, place, True)
            ringer.call(open_side, name, kind, what, place, False)
        turns = 10 if options.quick else 100
        print(f"wake: {turns} turns", flush=True)
        for turn in range(turns):
            for name in sides:
                if name.startswith("polling") and turn >= (2 if options.quick else 8):
                    continue
                for _ in range(1 if name.startswith("polling") else 3):
                    samples[name].append(_wake(crew, name))
        for name in sides:
            crew.call(2, close_side, name)
    return samples


def _wake(crew: Crew, name: str) -> int:
    waiter, ringer = crew.helpers
    waiter.start(wait, name)
    assert waiter.hear() == "ready"
    began: int = ringer.call(ring, name)
    woke_at: int = waiter.hear()
    return woke_at - began


def _verdict(name: str, samples: dict[str, list[int]], section: Section) -> str:
    store, _, what = name.partition(", ")
    title = f"{store}: waking by {what}"
    p50 = median(samples[name])
    if store == "postgresql":
        targets = [
            Target(f"{title}, of {engine}", p50 / median(samples[engine]), POSTGRES_LIMIT, at_least=False)
            for engine in (ROUND_TRIP, INSERT_AND_NOTIFY)
        ]
    elif store in ("sqlite", "files"):
        targets = [Target(f"{title}, p50", p50 / 1e6, LOCAL_LIMIT_MS, at_least=False, unit=" ms")]
    elif name in (INSERT_AND_NOTIFY, FLOOR):
        return f"{ROUND_TRIP.removeprefix('bare ')}: {p50 / median(samples[ROUND_TRIP]):.2f}"
    else:
        return ""
    section.targets += targets
    return ", ".join(f"{target.what.rpartition(', ')[2]}: {target.measured:.2f} {target.mark}" for target in targets)
