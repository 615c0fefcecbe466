"""Subjects measured in turns on boards of one size: open them in the crew, burst after burst, close them.

Whatever was claimed is remembered for each board, over all bursts and arrangements:
a number that comes twice is a task claimed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench import pairs
from bench.crew import Crew
from bench.figures import median, percentile
from bench.options import ALONE, Arrangement
from bench.pairs import Place, now_ns

# Time for every process to have read its order and to stand ready.
_LEAD_IN_NS = 30_000_000
_WARM_NS = 20_000_000
_MAX_BURSTS_PER_ROUND = 6


@dataclass(slots=True)
class Contender:
    """A subject on a board of its own."""

    name: str
    kind: str
    place: Place
    size: int = 0
    is_alone: bool = False
    """One claimer, whatever the arrangement of the others."""
    is_reset: bool = False
    """Its tasks are put back under their own numbers, so a number counts twice only within one burst."""
    claimed: set[int] = field(default_factory=set)
    spent: list[int] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.name} {self.size}"

    def arranged(self, arrangement: Arrangement) -> Arrangement:
        return ALONE if self.is_alone else arrangement


@dataclass(slots=True)
class Cell:
    """What one contender did in one arrangement: one rate for each round, all latencies."""

    rates: list[float] = field(default_factory=list)
    medians_ns: list[float] = field(default_factory=list)
    first_ns: list[int] = field(default_factory=list)
    second_ns: list[int] = field(default_factory=list)
    claims: int = 0
    doubles: int = 0
    torn: int = 0
    refused: int = 0
    is_guessed: bool = False

    @property
    def rate(self) -> float:
        return median(self.rates) if self.rates else 0.0

    def first(self, share: float) -> float:
        return percentile(self.first_ns, share) if self.first_ns else 0.0

    def second(self, share: float) -> float:
        return percentile(self.second_ns, share) if self.second_ns else 0.0


@contextmanager
def opened(crew: Crew, arrangement: Arrangement, work: str, contenders: list[Contender]) -> Iterator[None]:
    """Every contender in every process of the arrangement; the board is full and the statements are warm."""
    for contender in contenders:
        own = contender.arranged(arrangement)
        for index, helper in enumerate(crew.helpers[: own.processes]):
            helper.start(
                pairs.open_subject, contender.key, contender.kind, work, contender.place, own.each, f"m{index}x"
            )
        for helper in crew.helpers[: own.processes]:
            helper.hear()
    for contender in contenders:
        if contender.kind != "seeds":
            _warm(crew, contender.arranged(arrangement), contender)
    yield
    # Not after a failure: the processes are in no state to be asked anything, and are killed.
    for contender in contenders:
        crew.call(contender.arranged(arrangement).processes, pairs.close_subject, contender.key)


def run_round(crew: Crew, arrangement: Arrangement, contender: Contender, cell: Cell, seconds: float) -> None:
    """One turn of one contender. Small boards are emptied and refilled a few times to fill it."""
    left, pairs_done, took = seconds, 0.0, 0.0
    latencies = len(cell.first_ns)
    for _ in range(_MAX_BURSTS_PER_ROUND):
        done, elapsed = _burst(crew, arrangement, contender, cell, seconds=left)
        pairs_done, took, left = pairs_done + done, took + elapsed, left - elapsed
        if left <= 0.1 * seconds or not done:
            break
    if took:
        cell.rates.append(pairs_done / took)
    if latencies < len(cell.first_ns):
        cell.medians_ns.append(median(cell.first_ns[latencies:]))


def _warm(crew: Crew, arrangement: Arrangement, contender: Contender) -> None:
    """One process after the other: what its first look at a board costs is not what is measured."""
    for helper in crew.helpers[: arrangement.processes]:
        burst = helper.call(pairs.burst, contender.key, now_ns(), now_ns() + _WARM_NS)
        _verify(contender, Cell(), burst.ids)


def _burst(
    crew: Crew, arrangement: Arrangement, contender: Contender, cell: Cell, *, seconds: float
) -> tuple[float, float]:
    """Pairs and seconds of one burst."""
    _refill(crew, contender)
    arrangement = contender.arranged(arrangement)
    start_at = now_ns() + _LEAD_IN_NS
    stop_at = start_at + int(seconds * 1e9)
    bursts = crew.call(arrangement.processes, pairs.burst, contender.key, start_at, stop_at)
    ids = [number for burst in bursts for number in burst.ids]
    _verify(contender, cell, ids)
    cell.torn += sum(burst.torn for burst in bursts)
    cell.refused += sum(burst.refused for burst in bursts)
    ended_at = max((burst.ended_at for burst in bursts), default=0)
    took = max(0.0, (ended_at - start_at) / 1e9)
    parts = sum(burst.parts for burst in bursts)
    if len(ids) < arrangement.claimers and parts:
        return _guess(arrangement, cell, len(ids) + parts, took)
    for burst in bursts:
        cell.first_ns += burst.first_ns
        cell.second_ns += burst.second_ns
    return len(ids) + parts, took


def _guess(arrangement: Arrangement, cell: Cell, claims: float, seconds: float) -> tuple[float, float]:
    """Most were cut off: all together did so many claims, or parts of claims, in this time."""
    cell.is_guessed = True
    cell.first_ns.append(int(arrangement.claimers * seconds / claims * 1e9))
    return claims, seconds


def _refill(crew: Crew, contender: Contender) -> None:
    """A board is refilled when a twentieth is used; what is left over is as good as full."""
    if contender.spent and len(contender.spent) * 20 >= contender.size:
        crew.helpers[0].call(pairs.refill, contender.key, contender.spent)
        contender.spent = []


def _verify(contender: Contender, cell: Cell, ids: list[int]) -> None:
    cell.claims += len(ids)
    if contender.is_reset:
        cell.doubles += len(ids) - len(set(ids))
    else:
        for number in ids:
            cell.doubles += number in contender.claimed
            contender.claimed.add(number)
    if contender.size:
        contender.spent += ids
