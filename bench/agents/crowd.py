"""Many teammates in one process: do all work, does anyone starve, and what does one cost that has nothing to do?"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import psutil

from bench.agents.model import names_of
from bench.agents.schedule import Job
from bench.agents.stage import Stage, Troupe, add_task, stage, troupe
from bench.crew import Child, Crew
from bench.figures import Section, Target, median, percentile
from bench.ground import Ground
from bench.options import Options
from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberKind, MemberStatus
from bullpen.team.beginning import wake_lead

LIMIT_KILOBYTES = 200.0
TASKS_EACH = 2
TURNS_EACH = 3
LATENCY_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """`tasks` of each member; `gaps`: from a member's reply to its next request of the same task; memory when idle."""

    seconds: float
    cpu_seconds: float
    tasks: dict[str, int]
    gaps: list[float]
    bytes_each: float
    processes: int


def gather(child: Child, stage: Stage, teammates: int) -> Crowd:
    return child.runner.run(_gather(stage, teammates))


async def _gather(stage: Stage, teammates: int) -> Crowd:
    """One teammate works alone first, so that everything is imported and opened before it is weighed."""
    me = psutil.Process()
    jobs = [Job(turns=TURNS_EACH)] * (teammates * TASKS_EACH)
    async with troupe(stage, [Job(turns=TURNS_EACH)], teammates + 1) as it:
        await it.team.spawn("first", prompt="Work.")
        await wake_lead(it.team.store, it.team.id, "")
        assert it.team.hosting is not None
        async with it.team.hosting.worker(it.team):
            await _until_idle(it, 1)
            gc.collect()
            before = me.memory_info().rss
            await asyncio.gather(*(add_task(it.team, job) for job in jobs))
            await asyncio.gather(*(it.team.spawn(name) for name in names_of(teammates)))
            await _until_idle(it, len(jobs) + 1)
            gc.collect()
            after = me.memory_info().rss
            processes = len(me.children(recursive=True))
        return await _crowd(it, teammates, (after - before) / teammates, processes)


async def _until_idle(it: Troupe, tasks: int) -> None:
    """So many tasks are completed, and everybody rests."""
    async with it.team.store.listen_events(it.team.id) as bell:
        while True:
            bell.clear()
            done = await it.team.list_tasks()
            members = await it.team.list_members()
            hosted = [member for member in members if member.kind in (MemberKind.LEAD, MemberKind.TEAMMATE)]
            if sum(task.status == "completed" for task in done) == tasks and all(
                member.status is MemberStatus.IDLE for member in hosted
            ):
                return
            await bell.wait(5.0)
            # Once for many events: to look is not to weigh on what is measured.
            await asyncio.sleep(1.0)


async def _crowd(it: Troupe, teammates: int, bytes_each: float, processes: int) -> Crowd:
    names = set(names_of(teammates))
    tasks = Counter(dict.fromkeys(names, 0))
    claimed, completed = [], []
    async for event in it.team.follow_events():
        if event.kind == EventKind.TASK_CLAIMED and event.actor in names:
            claimed.append(event.at)
        elif event.kind == EventKind.TASK_COMPLETED:
            completed.append(event.at)
            tasks[event.actor] += event.actor in names
            if len(completed) == teammates * TASKS_EACH + 1:
                break
    mates = [asked for asked in it.provider.asked if asked.member in names]
    gaps = []
    for name in names:
        mine = sorted((asked.began, asked.ended) for asked in mates if asked.member == name)
        gaps += [after[0] - one[1] for one, after in pairwise(mine)]
    return Crowd(
        seconds=(max(completed) - min(claimed)).total_seconds(),
        cpu_seconds=max(asked.cpu_after for asked in mates) - min(asked.cpu_before for asked in mates),
        tasks={name: tasks[name] for name in names},
        gaps=gaps,
        bytes_each=bytes_each,
        processes=processes,
    )


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    teammates = 20 if options.quick else 500
    section = Section("A crowd")
    section.say(
        f"""{teammates} teammates in one process, {TASKS_EACH} tasks for each on one board, {TURNS_EACH} model turns a
        task, whose model answers after {LATENCY_SECONDS * 1000:g} ms. *Between* is what passes from a member's reply
        to its next request: its tool, its store, and waiting for its turn among the others. Memory is what the process
        has grown by when all have worked and rest, shared out among the teammates; the transcripts are in the store."""
    )
    print(f"crowd: {teammates} teammates", flush=True)
    with (
        stage(ground, latency_seconds=LATENCY_SECONDS, file_characters=2_000) as place,
        Crew(1) as crew,
    ):
        found = crew.helpers[0].call(gather, place, teammates)
        facts = place.facts()
    assert not facts["refusals"], facts["refusals"]
    counts = sorted(found.tasks.values())
    kilobytes = found.bytes_each / 1000
    memory = Target("memory of an idle teammate", kilobytes, LIMIT_KILOBYTES, False, " KB")
    worked = Target(f"teammates of {teammates} who had work", sum(count > 0 for count in counts), teammates, True)
    section.targets += [worked, memory]
    rows = [
        ["tasks of a teammate: fewest / median / most", f"{counts[0]} / {median(counts):g} / {counts[-1]}"],
        ["between: p50 / p99 / longest", _seconds(found.gaps)],
        ["whole board", f"{found.seconds:.1f} s, {sum(counts) * TURNS_EACH / found.seconds:.0f} turns/s"],
        ["CPU of this process", f"{found.cpu_seconds / found.seconds:.0%} of one core"],
        ["memory of an idle teammate", f"{kilobytes:.0f} KB {memory.mark}"],
        ["child processes when all rest", str(found.processes)],
    ]
    section.table(["", f"{teammates} teammates"], rows)
    return section


def _seconds(values: list[float]) -> str:
    return " / ".join(f"{value:.2f} s" for value in (median(values), percentile(values, 0.99), max(values)))
