"""What waiting costs: many idle members in one process, each asleep on its bell."""

from __future__ import annotations

import asyncio
import gc
import resource
from dataclasses import dataclass

import psutil

from bench.crew import Child, Crew
from bench.figures import Section
from bench.ground import Ground, make_board
from bench.options import Options
from bench.pairs import Place
from bullpen.domain.member import MemberStatus
from bullpen.store import Store
from bullpen.stores import open_store

_CHUNK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    cpu_seconds: float
    bytes_each: float


def sleep(child: Child, place: Place, count: int, seconds: float) -> Idleness:
    return child.runner.run(_sleep(place, count, seconds))


async def _sleep(place: Place, count: int, seconds: float) -> Idleness:
    async with open_store(place.url) as store:
        worker = await store.register_worker(lease_seconds=3600)
        gc.collect()
        before = psutil.Process().memory_info().rss
        asleep: list[asyncio.Task[None]] = []
        for start in range(0, count, _CHUNK):
            names = [f"m{number}" for number in range(start, min(start + _CHUNK, count))]
            ready = [asyncio.Event() for _ in names]
            asleep += [
                asyncio.create_task(_wait(store, worker.id, place.team_id, name, event))
                for name, event in zip(names, ready, strict=True)
            ]
            await asyncio.gather(*(event.wait() for event in ready))
        # Whatever the last status change set off has ended by now.
        await asyncio.sleep(2.0)
        gc.collect()
        after = psutil.Process().memory_info().rss
        spent = _cpu_seconds()
        await asyncio.sleep(seconds)
        spent = _cpu_seconds() - spent
        for task in asleep:
            task.cancel()
        await asyncio.gather(*asleep, return_exceptions=True)
    return Idleness(cpu_seconds=spent, bytes_each=(after - before) / count)


async def _wait(store: Store, worker_id: int, team_id: int, name: str, ready: asyncio.Event) -> None:
    me = (await store.join_member(worker_id, team_id, name)).ref
    async with store.listen_member(me) as bell:
        await store.set_member_status(me, MemberStatus.IDLE)
        while True:
            bell.clear()
            await store.find_work(me)
            ready.set()
            await bell.wait()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    count, seconds = (100, 2.0) if options.quick else (1000, 10.0)
    section = Section("Waiting")
    section.say(
        f"""{count:,} idle members in one process, each waiting on its bell; nothing happens for {seconds:g} s. CPU is
        user and system time of that process, as a share of one core; memory is what the process grew by, shared out
        among the members (their rows, tasks, bells)."""
    )
    rows = []
    for store in stores:
        print(f"idle: {store}", flush=True)
        url = ground.new_url(store)
        with Crew(1) as crew:
            found = crew.helpers[0].call(sleep, Place(url=url, team_id=make_board(url, 0)), count, seconds)
        share = found.cpu_seconds / seconds
        rows.append([store, f"{found.cpu_seconds:.3f} s", f"{share:.2%}", f"{found.bytes_each / 1024:.1f} KiB"])
    section.table(["", "CPU", "of one core", "memory a member"], rows)
    return section
