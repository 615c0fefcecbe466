"""What the runtime itself costs for each model turn, and where that goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.agents.meter import Asked, Spent
from bench.agents.model import goal_of, names_of
from bench.agents.schedule import Job
from bench.agents.stage import Stage, stage, troupe
from bench.crew import Child, Crew
from bench.figures import Section, Target, median
from bench.ground import Ground
from bench.options import Options
from bullpen.agent.calls import has_open_calls
from bullpen.agent.context import build_context
from bullpen.agent.guards import find_repetition
from bullpen.agent.memory import choose_pruning, context_tokens
from bullpen.domain.transcript import Turn
from bullpen.providers.limits import limits_of

LIMIT_MILLISECONDS = 10.0
HISTORY = 80
# Turns whose request has about so many messages.
SPREAD = 20
FILE_CHARACTERS = 2_000

_PURE: dict[str, Callable[[Sequence[Turn]], Any]] = {
    "build_context": build_context,
    "context_tokens": context_tokens,
    "choose_pruning": lambda turns: choose_pruning(turns, limits_of("claude-sonnet-5")),
    "find_repetition": find_repetition,
    "has_open_calls": has_open_calls,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU of turns at about that history: the whole, what asking took of it, and what each verb did."""

    turns: list[float]
    asking: list[float]
    verbs: dict[str, Spent]
    pure: dict[str, float]


def work(child: Child, stage: Stage, history: int) -> Cost:
    return child.runner.run(_work(stage, history))


async def _work(stage: Stage, history: int) -> Cost:
    jobs = [Job(turns=(history + SPREAD) // 2 + 2)]
    async with troupe(stage, jobs, 1, with_verbs=True) as it:
        await it.team.run(goal_of(1))
        [name] = names_of(1)
        turns = await it.team.store.list_turns(it.team.id, name)
        return _cost(it.provider.of(name), turns, history)


def _cost(asked: list[Asked], turns: list[Turn], history: int) -> Cost:
    near = [one for one in asked if abs(one.messages - history) <= SPREAD]
    first, last = near[0], near[-1]
    verbs = {name: spent - first.verbs.get(name, Spent()) for name, spent in last.verbs.items()}
    until = [turn for turn in turns if turn.kind == "assistant"][history // 2 - 1].seq
    shown = [turn for turn in turns if turn.seq < until]
    return Cost(
        turns=[after.cpu_before - one.cpu_before for one, after in pairwise(near)],
        asking=[one.cpu_after - one.cpu_before for one in near],
        verbs={name: spent for name, spent in verbs.items() if spent.times >= len(near) // 2},
        pure={name: _timed(function, shown) for name, function in _PURE.items()},
    )


def _timed(function: Callable[[Sequence[Turn]], Any], turns: Sequence[Turn]) -> float:
    samples = []
    for _ in range(20):
        before = time.process_time()
        function(turns)
        samples.append(time.process_time() - before)
    return float(median(samples))


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    history = 24 if options.quick else HISTORY
    section = Section("A model turn")
    section.say(
        f"""CPU of the whole process that hosts the team, all its threads, for each model turn of one member whose
        requests have {history} messages (±{SPREAD}): from one request to the next, with one call of `read_file` that
        returns {FILE_CHARACTERS:,} characters. Nothing else happens meanwhile, and waiting for the model or the disk
        costs no CPU. The median of all turns."""
    )
    rows, detailed = [], None
    for store in stores:
        for protocol in options.protocols if store == "sqlite" else options.protocols[:1]:
            found = _in_rounds(ground, options, store, protocol, history)
            whole = _milliseconds([value for cost in found for value in cost.turns])
            asking = _milliseconds([value for cost in found for value in cost.asking])
            target = Target(f"{store}, {protocol}: CPU a model turn", whole, LIMIT_MILLISECONDS, False, " ms")
            rows.append([f"{store}, {protocol}", f"{whole:.1f} ms {target.mark}", f"{asking:.1f} ms"])
            rows[-1].append(f"{whole - asking:.1f} ms")
            if store == "sqlite":
                section.targets.append(target)
            detailed = detailed or (f"{store}, {protocol}", found)
    section.table(["", "a turn", "the provider's part", "ours"], rows)
    if detailed is not None:
        _say_where(section, *detailed)
    return section


def _in_rounds(ground: Ground, options: Options, store: str, protocol: str, history: int) -> list[Cost]:
    found = []
    for number in range(options.team_rounds):
        print(f"turn: {store}, {protocol}, round {number + 1}", flush=True)
        with (
            stage(ground, store=store, format=protocol, latency_seconds=0.0, file_characters=FILE_CHARACTERS) as place,
            Crew(1) as crew,
        ):
            found.append(crew.helpers[0].call(work, place, history))
    return found


def _say_where(section: Section, what: str, found: list[Cost]) -> None:
    turns = sum(len(cost.turns) for cost in found)
    whole = _milliseconds([value for cost in found for value in cost.turns])
    asking = _milliseconds([value for cost in found for value in cost.asking])
    verbs: dict[str, Spent] = {}
    for cost in found:
        for name, spent in cost.verbs.items():
            verbs[name] = verbs.get(name, Spent()) + spent
    stored = sum(spent.cpu_seconds for spent in verbs.values()) * 1000 / turns
    section.say(f"Where it goes ({what}); under *the loop* is everything that is neither of the others:")
    rows = [["asking the model: conversion, HTTP, price", "1", f"{asking:.2f} ms"]]
    for name, spent in sorted(verbs.items(), key=lambda item: -item[1].cpu_seconds):
        each = spent.cpu_seconds * 1000 / turns
        rows.append([f"store: `{name}`", f"{spent.times / turns:.2g}", f"{each:.2f} ms"])
    rows.append(["the loop: context, guards, tools, tasks", "1", f"{max(whole - asking - stored, 0.0):.2f} ms"])
    rows += [
        [f"· `{name}` alone", "", f"{_milliseconds([cost.pure[name] for cost in found]):.2f} ms"] for name in _PURE
    ]
    section.table(["part", "times a turn", "CPU a turn"], rows)


def _milliseconds(seconds: Sequence[float]) -> float:
    return float(median(seconds)) * 1000
