"""A crowd on PostgreSQL: many members over several workers drain a large board.

- How long an offered task waits until somebody has claimed it, with 10, 100 and 1,000 idle members.
- What idle members ask: as the server itself logged it.
- How long a board takes, what a task costs the server, and whether everything was done once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from bench.figures import Section, Target, count, median, milliseconds, percentile
from bench.ground import Ground, multiply, open_sql
from bench.machines.fleet import LOG_SETTINGS, Effort, Observer, begin, is_query, spawn, workers, write_script
from bench.options import Options
from bullpen.domain.event import EventKind
from bullpen.domain.member import USER, MemberRef, MemberStatus
from bullpen.store import Store
from bullpen.stores import open_store
from tests.support.invariants import check_crowd
from tests.support.postgres import PrivateServer, create_database

IDLE_QUERIES = 2.0
# A latency that grows with the crowd would grow a hundredfold.
GROWTH = 2.0
TABLES = ("task", "turn", "tool_call", "event", "message", "reservation", "operation", "member", "account")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    workers: int
    crowds: tuple[int, ...]
    offers: int
    tasks: int
    idle_seconds: float

    @property
    def members(self) -> int:
        return self.crowds[-1]


FULL = Size(workers=4, crowds=(10, 100, 1_000), offers=100, tasks=20_000, idle_seconds=40.0)
QUICK = Size(workers=2, crowds=(10, 60), offers=20, tasks=400, idle_seconds=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What was executed for so many members in so many seconds, without the frames of transactions and with them."""

    queries: int
    statements: int
    members: int
    seconds: float
    kinds: Counter[str]

    @property
    def each_minute(self) -> float:
        return self.queries / self.members / self.seconds * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    seconds: float
    claims: list[float]
    """What a claim took, one after the other, of one who claimed beside them."""
    effort: Effort
    worker_cpu_seconds: float
    connections: int
    rows: dict[str, int]
    bytes: dict[str, int]
    checked: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    waits: dict[int, list[float]]
    idle: Idle
    drain: Drain


class Arena:
    """A server of its own, with workers that host whoever is wanted."""

    def __init__(self, server: PrivateServer, folder: Path, size: Size) -> None:
        self.url = create_database(server.url)
        self.observer = Observer(server, urlsplit(self.url).path.removeprefix("/"))
        self.folder = folder
        self.size = size
        self.pids: list[int] = []

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[Store]:
        # Room for two crowds: that which is measured while it waits, and that which drains the board.
        slots = 2 * -(-self.size.members // self.size.workers) + 1
        async with open_store(self.url) as store:
            await store.create_team("first")
            async with workers(self.url, self.folder, self.size.workers, "--slots", str(slots)) as started:
                self.pids = [one.pid for one in started]
                yield store

    def worker_cpu_seconds(self) -> float:
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


async def soak(folder: Path, size: Size, server: PrivateServer) -> Soak:
    arena = Arena(server, folder, size)
    try:
        async with arena.entered() as store:
            _say("members wait for tasks")
            waits, idle = await _wait(arena, store)
            _say("the board is drained")
            drain = await _drain(arena, store)
            return Soak(waits=waits, idle=idle, drain=drain)
    finally:
        arena.observer.close()


def _say(text: str) -> None:
    print(f"soak: {text}", flush=True)


# -- waiting -----------------------------------------------------------------------------------------------------


async def _wait(arena: Arena, store: Store) -> tuple[dict[int, list[float]], Idle]:
    """One team that grows."""
    model = write_script(arena.folder / "waits.toml")
    team_id = await begin(store, arena.folder, model, name="waits", idle={"timeout_seconds": 0})
    waits: dict[int, list[float]] = {}
    there = 0
    for crowd in arena.size.crowds:
        await spawn(store, team_id, there, crowd)
        there = crowd
        await _until_idle(store, team_id, crowd)
        waits[crowd] = await _offer(store, team_id, arena.size.offers)
        _say(f"{crowd} members: a task waits {milliseconds(median(waits[crowd]) * 1e9)}")
    await _until_idle(store, team_id, there)
    return waits, await _count_idle(arena, there)


async def _until_idle(store: Store, team_id: int, crowd: int) -> None:
    async with asyncio.timeout(1_800), store.listen_events(team_id) as bell:
        while True:
            bell.clear()
            members = await store.list_members(team_id)
            idle = sum(member.status is MemberStatus.IDLE and member.worker_id is not None for member in members)
            if idle >= crowd:
                return
            await bell.wait(2.0)
            await asyncio.sleep(0.5)


async def _until_at_rest(store: Store, team_id: int) -> None:
    """Who has completed its task has still to end its work phase."""
    async with asyncio.timeout(600), store.listen_events(team_id) as bell:
        while True:
            bell.clear()
            if all(member.status is not MemberStatus.WORKING for member in await store.list_members(team_id)):
                return
            await bell.wait(1.0)


async def _offer(store: Store, team_id: int, offers: int) -> list[float]:
    """One at a time: from the moment at which it is written to that at which a member claims it."""
    user = MemberRef(team_id, USER, 0)
    waits: list[float] = []
    for number in range(offers):
        after = await store.last_position(team_id)
        task = await store.create_task(user, f"Offer {number}")
        claimed_at = None
        async with asyncio.timeout(60):
            async for event in store.follow_events(team_id, after=after):
                if event.kind == EventKind.TASK_CLAIMED and event.data["task"] == task.id:
                    claimed_at = event.at
                elif event.kind == EventKind.PHASE_ENDED and claimed_at is not None:
                    break
        assert claimed_at is not None
        waits.append((claimed_at - task.created_at).total_seconds())
    return waits


async def _count_idle(arena: Arena, members: int) -> Idle:
    with arena.observer.statements() as found:
        await asyncio.sleep(arena.size.idle_seconds)
    return Idle(
        queries=sum(number for sql, number in found.items() if is_query(sql)),
        statements=sum(found.values()),
        members=members,
        seconds=arena.size.idle_seconds,
        kinds=found,
    )


# -- draining ----------------------------------------------------------------------------------------------------


async def _drain(arena: Arena, store: Store) -> Drain:
    model = write_script(arena.folder / "drains.toml")
    team_id = await begin(store, arena.folder, model, name="drains")
    user = MemberRef(team_id, USER, 0)
    await store.create_task(user, "Task", description="Do what is to be done")
    _multiply(arena.url, team_id, arena.size.tasks)
    before, cpu = arena.observer.effort(), arena.worker_cpu_seconds()
    began = time.monotonic()
    claiming = asyncio.create_task(_claim_beside(arena.url, team_id))
    await spawn(store, team_id, 0, arena.size.members)
    connections = 0
    left = arena.size.tasks
    while left:
        await asyncio.sleep(1.0)
        connections = max(connections, sum(arena.observer.connections().values()))
        unfinished = _count_unfinished(arena.url, team_id)
        if unfinished // 1_000 != left // 1_000:
            _say(f"{unfinished:,} tasks left after {time.monotonic() - began:.0f} s")
        left = unfinished
    seconds = time.monotonic() - began
    effort = arena.observer.effort() - before
    worker_cpu = arena.worker_cpu_seconds() - cpu
    claims = await claiming
    rows, sizes = _weigh(arena.url, team_id)
    await _until_at_rest(store, team_id)
    _say("what was done is checked")
    checked = await check_crowd(store, team_id)
    return Drain(
        seconds=seconds,
        claims=claims,
        effort=effort,
        worker_cpu_seconds=worker_cpu,
        connections=connections,
        rows=rows,
        bytes=sizes,
        checked=checked,
    )


def _multiply(url: str, team_id: int, last: int) -> None:
    with ExitStack() as stack:
        multiply(open_sql(url, stack), team_id, 2, last)


async def _claim_beside(url: str, team_id: int) -> list[float]:
    """In a session of its own, ten times a second at most: claims are timed one after the other."""
    took: list[float] = []
    async with open_store(url) as store:
        worker = await store.register_worker(lease_seconds=60)
        me = (await store.join_member(worker.id, team_id, "beside")).ref
        while True:
            began = time.monotonic()
            task = await store.claim_next_task(me)
            took.append(time.monotonic() - began)
            if task is None:
                return took
            await store.complete_task(me, task.id, result="done beside")
            await store.renew_worker(worker.id)
            await asyncio.sleep(0.1)


def _count_unfinished(url: str, team_id: int) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        [(left,)] = connection.execute(
            "SELECT count(*) FROM task WHERE team_id = %s AND status IN ('pending', 'in_progress')", [team_id]
        ).fetchall()
    return int(left)


def _weigh(url: str, team_id: int) -> tuple[dict[str, int], dict[str, int]]:
    """Rows of the team, and bytes of the tables with their indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows, sizes = {}, {}
        for table in TABLES:
            where = "" if table == "operation" else f" WHERE team_id = {team_id}"
            [(rows[table],)] = connection.execute(f"SELECT count(*) FROM {table}{where}".encode()).fetchall()
            [(sizes[table],)] = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [table]).fetchall()
    return rows, sizes


# -- the page ----------------------------------------------------------------------------------------------------


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    size = QUICK if options.quick else FULL
    section = Section("A crowd")
    with PrivateServer(settings=LOG_SETTINGS) as server:
        found = asyncio.run(soak(ground.new_folder(), size, server))
    _report_waits(section, found, size)
    _report_idle(section, found.idle, size)
    _report_drain(section, found.drain, size)
    return section


def _report_waits(section: Section, found: Soak, size: Size) -> None:
    section.say(
        f"""{size.workers} workers (`bullpen worker`) host a team of scripted members, who are all idle. Tasks are
        offered one at a time, {size.offers} of them: from the moment at which a task is written to that at which a
        member claims it. Who claims then asks its model and completes it."""
    )
    section.table(
        ["members", "p50", "p99"],
        [
            [count(crowd), milliseconds(median(waits) * 1e9), milliseconds(percentile(waits, 0.99) * 1e9)]
            for crowd, waits in found.waits.items()
        ],
    )
    small, large = size.crowds[0], size.crowds[-1]
    growth = median(found.waits[large]) / median(found.waits[small])
    what = f"a task waits for its claim, {large:,} members / {small:,}"
    section.targets.append(Target(what, growth, GROWTH, at_least=False, unit=" times"))


def _report_idle(section: Section, idle: Idle, size: Size) -> None:
    section.parts.append("### Idle members")
    section.say(
        f"""{idle.members:,} idle members on {size.workers} workers, {idle.seconds:g} s: the server logged
        {idle.queries:,} queries ({idle.statements:,} statements with BEGIN, COMMIT and ROLLBACK), which is
        {idle.each_minute:.2f} for each member and minute. They are asked once for each worker, not for each member:"""
    )
    most = [(sql, number) for sql, number in idle.kinds.most_common() if is_query(sql)][:8]
    section.table(
        ["query", "each minute and worker"],
        [[f"`{sql[:70]}…`", f"{number / idle.seconds * 60 / size.workers:.0f}"] for sql, number in most],
    )
    what = f"queries of an idle member in a minute, {idle.members:,} members"
    section.targets.append(Target(what, idle.each_minute, IDLE_QUERIES, at_least=False))


def _report_drain(section: Section, drain: Drain, size: Size) -> None:
    section.parts.append("### Draining the board")
    tasks = size.tasks
    section.say(
        f"""{size.members:,} members over {size.workers} workers drain {tasks:,} tasks in {drain.seconds:,.0f} s:
        {tasks / drain.seconds:,.0f} tasks a second, with workers, server and this measurement on the same machine. A
        task is a claim, one request to a model that answers at once, two calls, and the end of a work phase. One who
        claims beside them, ten times a second at most, waits {milliseconds(median(drain.claims) * 1e9)} for a claim
        (p99 {milliseconds(percentile(drain.claims, 0.99) * 1e9)}, {len(drain.claims):,} claims)."""
    )
    effort = drain.effort
    section.table(
        ["", "each task"],
        [
            ["transactions committed", f"{effort.commits / tasks:.1f}"],
            ["reads (rolled back: they wrote nothing)", f"{effort.rollbacks / tasks:.1f}"],
            ["write-ahead log", f"{effort.wal_bytes / tasks / 1024:.1f} KiB"],
            ["CPU of the server", f"{effort.cpu_seconds / tasks * 1e3:.1f} ms"],
            ["CPU of the workers", f"{drain.worker_cpu_seconds / tasks * 1e3:.1f} ms"],
            ["rows", f"{sum(drain.rows.values()) / tasks:.1f}"],
            ["bytes of tables and indexes", f"{sum(drain.bytes.values()) / tasks / 1024:.1f} KiB"],
        ],
    )
    section.say(f"Connections at most: {drain.connections}, of which each worker has 17 and this measurement the rest.")
    section.table(
        ["table", "rows each task", "KiB each task"],
        [
            [table, f"{rows / tasks:.1f}", f"{drain.bytes[table] / tasks / 1024:.2f}"]
            for table, rows in drain.rows.items()
        ],
    )
    section.say("Afterwards, from the log: " + "; ".join(f"{what}: {n:,}" for what, n in drain.checked.items()) + ".")
    section.targets.append(Target("tasks claimed or completed twice", drain.checked["done twice"], 0, at_least=False))
