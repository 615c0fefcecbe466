"""How long a team needs for a board, against the best possible schedule."""

from __future__ import annotations

from dataclasses import dataclass

from bench.agents.bare import play_bare
from bench.agents.model import goal_of
from bench.agents.schedule import (
    UNEVENNESS,
    Job,
    anomaly,
    chains,
    list_schedule,
    steady_board,
)
from bench.agents.stage import Stage, stage, troupe
from bench.crew import Child, Crew
from bench.figures import Section, Target, median
from bench.ground import Ground
from bench.options import Options
from bullpen.domain.event import EventKind

LIMIT = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """`bare_seconds`: by clients that only ask, just before."""

    bare_seconds: float
    seconds: float
    asked: int
    cpu_seconds: float


def play(child: Child, stage: Stage, jobs: list[Job], teammates: int) -> Played:
    bare_seconds = play_bare(child, stage, jobs, teammates)
    return child.runner.run(_play(stage, jobs, teammates, bare_seconds))


async def _play(stage: Stage, jobs: list[Job], teammates: int, bare_seconds: float) -> Played:
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
            bare_seconds=bare_seconds,
            seconds=(max(completed) - min(claimed)).total_seconds(),
            asked=len(mates),
            cpu_seconds=cpu_seconds,
        )


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    tasks, teammates, latency = (12, 3, 0.05) if options.quick else (100, 8, 0.2)
    jobs = steady_board(tasks, teammates)
    turns = sum(job.turns for job in jobs)
    best = list_schedule(jobs, teammates)
    section = Section("Makespan")
    section.say(
        f"""{tasks} tasks, each of 3 to 6 model turns ({turns} altogether) and waiting for up to three others;
        {teammates} teammates, whose model answers after {latency * 1000:g} ms. Measured from the first claim to the
        last completion, as the log has them. A task of n turns is completed by its last but one; the last is its
        member's report. No schedule can be shorter than the longest chain of tasks ({max(chains(jobs))} turns), nor
        than all turns shared out evenly, everybody's last report left out: the larger of both is the bound. List
        scheduling (whoever is free takes the ready task of the longest remaining chain, and that is how the board is
        numbered) needs no more, so the best possible schedule is {best:g} turns: {best * latency:g} s."""
    )
    section.say(
        f"""It is the first random board of which both is true: that schedule is proved to be the best, and does not
        live on turns of exactly one length. On most boards it does: somebody becomes free in the very moment in which
        the urgent task becomes ready, and with turns that differ by up to {UNEVENNESS:.0%} it takes another one. Here,
        such turns cost {anomaly(jobs, teammates):.3f} times their own length in nine of ten simulated trials. *Bare*
        is the same board played just before by {teammates} coroutines that only ask, with one
        short request a turn: how far this machine, in the state in which it was, comes to the computed schedule
        without any of ours."""
    )
    rows = []
    for store in stores:
        for protocol in options.protocols if store == "sqlite" else options.protocols[:1]:
            found = _in_rounds(ground, options, store, protocol, jobs, teammates, latency)
            what = f"{store}, {protocol}: makespan, of the best schedule"
            target = Target(what, median(played.seconds for played in found) / (best * latency), LIMIT, False)
            rows.append(_row(f"{store}, {protocol}", found, best * latency, target.mark))
            if store == "sqlite":
                section.targets.append(target)
    header = ["", "makespan", "of the best schedule", "bare, of the same", "of bare", "of one core", "CPU a turn"]
    section.table(header, rows)
    return section


def _row(what: str, found: list[Played], best_seconds: float, mark: str) -> list[str]:
    took = median(played.seconds for played in found)
    bare = median(played.bare_seconds for played in found)
    of_bare = median(played.seconds / played.bare_seconds for played in found)
    busy = median(played.cpu_seconds / played.seconds for played in found)
    each = median(played.cpu_seconds / played.asked for played in found)
    return [
        what,
        f"{took:.2f} s",
        f"{took / best_seconds:.3f} {mark}",
        f"{bare / best_seconds:.3f}",
        f"{of_bare:.3f}",
        f"{busy:.0%}",
        f"{each * 1000:.1f} ms",
    ]


def _in_rounds(
    ground: Ground, options: Options, store: str, protocol: str, jobs: list[Job], teammates: int, latency: float
) -> list[Played]:
    found = []
    for number in range(options.team_rounds):
        print(f"makespan: {store}, {protocol}, round {number + 1}", flush=True)
        with (
            stage(ground, store=store, format=protocol, latency_seconds=latency, file_characters=2000) as place,
            Crew(1) as crew,
        ):
            found.append(crew.helpers[0].call(play, place, jobs, teammates))
    return found
