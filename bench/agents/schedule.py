"""The best possible schedule of a board: what a team without any cost of its own would need, in model turns.

A task of `turns` turns is completed by its last but one, which frees what it blocks; the last is the member's
report, during which it is not free yet. Finding the best schedule is hard in general, but it cannot be shorter than
the longest chain of tasks, nor than all turns shared out evenly (`lower_bound`). List scheduling (whoever is free
takes a ready task) gives one that is possible (`list_schedule`): where both are equal, it is the best, else the best
is between them.

Turns of exactly one length end at exactly the same moments, and a schedule may live on that: who becomes free takes
the urgent task whose last blocker is completed in that same moment. With turns of which each is a little longer or
shorter, as they are in life, it comes a little too early and takes another one, and whoever only knows what is ready
now needs several turns more (`anomaly`): that is list scheduling, and no cost of any runtime. Clients that do nothing
but ask are 9% above the best on some boards. What is measured here are the others: those on which the best schedule is
known, and turns that differ by as much as a runtime may make them longer cost nothing but their own length
(`steady_board`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

UNEVENNESS = 0.05
STEADY = 1.005
TRIALS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task of the board. `blocked_by` are numbers, from 1."""

    turns: int
    blocked_by: tuple[int, ...] = ()


def steady_board(size: int, teammates: int) -> list[Job]:
    """The first random board whose list schedule is the best, also if turns are not of exactly one length."""
    boards = (random_board(size, seed=seed) for seed in count(1))
    return next(board for board in boards if _is_proved(board, teammates) and anomaly(board, teammates) <= STEADY)


def _is_proved(board: Sequence[Job], teammates: int) -> bool:
    return list_schedule(board, teammates) == lower_bound(board, teammates)


def anomaly(jobs: Sequence[Job], teammates: int) -> float:
    """How many times as long as its turns are longer on average list scheduling takes if each is longer by chance, in
    nine of ten trials."""
    chance = random.Random(0)
    trials = sorted(
        list_schedule(jobs, teammates, turn=lambda: chance.uniform(1, 1 + UNEVENNESS)) for _ in range(TRIALS)
    )
    return trials[TRIALS * 9 // 10 - 1] / (list_schedule(jobs, teammates) * (1 + UNEVENNESS / 2))


def random_board(size: int, *, seed: int, reach: int = 24) -> list[Job]:
    """Each task waits for up to three others; numbered by urgency, because a board hands tasks out by number."""
    chance = random.Random(seed)
    jobs = []
    for number in range(1, size + 1):
        near = range(max(1, number - reach), number)
        blockers = chance.sample(near, min(len(near), chance.choice((0, 1, 2, 3))))
        jobs.append(Job(turns=chance.randint(3, 6), blocked_by=tuple(sorted(blockers))))
    return _by_urgency(jobs)


def _by_urgency(jobs: Sequence[Job]) -> list[Job]:
    """The longest chain first. A blocker's is longer than that of what waits for it, so it keeps the lower number."""
    rest = chains(jobs)
    order = sorted(range(len(jobs)), key=lambda index: -rest[index])
    number = {index + 1: place for place, index in enumerate(order, 1)}
    return [
        Job(turns=jobs[index].turns, blocked_by=tuple(sorted(number[blocker] for blocker in jobs[index].blocked_by)))
        for index in order
    ]


def lower_bound(jobs: Sequence[Job], teammates: int) -> int:
    """No schedule completes the last task in fewer turns."""
    # Everybody's last report may come after the last completion.
    shared = math.ceil((sum(job.turns for job in jobs) - teammates) / teammates)
    return max(max(chains(jobs)), shared)


def chains(jobs: Sequence[Job]) -> list[int]:
    """For each task, the turns from its beginning to the completion of the last one that waits for it."""
    rest = [0] * len(jobs)
    for index in reversed(range(len(jobs))):
        rest[index] += jobs[index].turns - 1
        for blocker in jobs[index].blocked_by:
            rest[blocker - 1] = max(rest[blocker - 1], rest[index])
    return rest


def list_schedule(jobs: Sequence[Job], teammates: int, *, turn: Callable[[], float] = lambda: 1) -> float:
    """When the last task is completed if whoever is free takes the ready task of the lowest number."""
    waits_for = [len(job.blocked_by) for job in jobs]
    ready = [index for index, blockers in enumerate(waits_for) if not blockers]
    # What happens when: a task is completed (0, task), a member is free (1, -).
    agenda: list[tuple[float, int, int]] = []
    free, now, last = teammates, 0.0, 0.0
    while ready or agenda:
        while free and ready:
            index = heapq.heappop(ready)
            free -= 1
            completed = now + sum(turn() for _ in range(jobs[index].turns - 1))
            heapq.heappush(agenda, (completed, 0, index))
            heapq.heappush(agenda, (completed + turn(), 1, index))
        now, is_free, index = heapq.heappop(agenda)
        if is_free:
            free += 1
            continue
        last = now
        for later, job in enumerate(jobs):
            if index + 1 in job.blocked_by:
                waits_for[later] -= 1
                if not waits_for[later]:
                    heapq.heappush(ready, later)
    return last
