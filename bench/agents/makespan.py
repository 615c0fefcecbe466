"""How long a team needs for a board, against the best possible schedule."""

from __future__ import annotations

from dataclasses import dataclass

from bench.agents.model import goal_of
from bench.agents.schedule import Job, chains, list_schedule, lower_bound, random_board
from bench.agents.stage import Stage, stage, troupe
from bench.crew import Child, Crew
from bench.figures import Section, Target, median
from bench.ground import Ground
from bench.options import Options
from bullpen.domain.event import EventKind

LIMIT = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    seconds: float
    asked: int
    cpu_seconds: float


def play(child: Child, stage: Stage, jobs: list[Job], teammates: int) -> Played:
    return child.runner.run(_play(stage, jobs, teammates))


async def _play(stage: Stage, jobs: list[Job], teammates: int) -> Played:
    async with troupe(stage, jobs, teammates) as it:
        await it.team.run(goal_of(teammates))
        claimed, completed = [], []
        async for event in it.team.follow_events():
            if event.kind == EventKind.TASK_CLAIMED:
                claimed.append(event.at)
            elif event.kind == EventKind.TASK_COMPLETED:
                completed.append(event.at)
            if len(completed) == len(jobs):
                break
        mates = [asked for asked in it.provider.asked if asked.member != "lead"]
        cpu_seconds = mates[-1].cpu_after - mates[0].cpu_before
        return Played(
            seconds=(max(completed) - min(claimed)).total_seconds(), asked=len(mates), cpu_seconds=cpu_seconds
        )


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    tasks, teammates, latency = (12, 3, 0.05) if options.quick else (100, 8, 0.2)
    jobs = random_board(tasks)
    turns = sum(job.turns for job in jobs)
    best, bound = list_schedule(jobs, teammates), lower_bound(jobs, teammates)
    section = Section("Makespan")
    section.say(
        f"""{tasks} tasks, each of 3 to 6 model turns ({turns} altogether) and waiting for up to three others;
        {teammates} teammates, whose model answers after {latency * 1000:g} ms. Measured from the first claim to the
        last completion, as the log has them. A task of n turns is completed by its last but one; the last is its
        member's report. No schedule can be shorter than the longest chain of tasks ({max(chains(jobs))} turns), nor
        than all turns shared out evenly, everybody's last report left out: the larger of both is the bound, {bound}
        turns. List scheduling (whoever is free takes the ready task of the longest remaining chain, and that is how
        the board is numbered) needs {best}, so the best possible schedule is
        {"those" if best == bound else "at most those"} {best} turns: {best * latency:g} s."""
    )
    rows = []
    for store in stores:
        for format in ("anthropic", "openai"):
            found = _in_rounds(ground, options, store, format, jobs, teammates, latency)
            took = median(played.seconds for played in found)
            target = Target(f"{store}, {format}: makespan, of the best schedule", took / (best * latency), LIMIT, False)
            busy = median(played.cpu_seconds / played.seconds for played in found)
            each = median(played.cpu_seconds / played.asked for played in found)
            rows.append(
                [f"{store}, {format}", f"{took:.2f} s", f"{target.measured:.3f} {target.mark}", f"{busy:.0%}"]
                + [f"{each * 1000:.1f} ms"]
            )
            if store == "sqlite":
                section.targets.append(target)
    section.table(["", "makespan", "of the best schedule", "of one core", "CPU a turn"], rows)
    return section


def _in_rounds(
    ground: Ground, options: Options, store: str, format: str, jobs: list[Job], teammates: int, latency: float
) -> list[Played]:
    found = []
    for number in range(1 if options.quick else 3):
        print(f"makespan: {store}, {format}, round {number + 1}", flush=True)
        with (
            stage(ground, store=store, format=format, latency_seconds=latency, file_characters=2000) as place,
            Crew(1) as crew,
        ):
            found.append(crew.helpers[0].call(play, place, jobs, teammates))
    return found
