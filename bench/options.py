"""What a run measures, and for how long."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.page import PAGES, Page

SECTIONS = tuple(section for page in PAGES.values() for section in page.sections)
OUT = Path("docs")
STORES = ("sqlite", "files", "postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Claimers: `each` in every one of `processes`. In one process their commits are grouped, between several not."""

    processes: int
    each: int

    @property
    def claimers(self) -> int:
        return self.processes * self.each

    def describe(self, noun: str = "claimer") -> str:
        if self.claimers == 1:
            return f"1 {noun}"
        if self.processes == 1:
            return f"{self.claimers} {noun}s in 1 process"
        if self.each == 1:
            return f"{self.claimers} {noun}s, each its own process"
        return f"{self.claimers} {noun}s in {self.processes} processes"


ALONE = Arrangement(processes=1, each=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    quick: bool
    pages: tuple[str, ...]
    only: tuple[str, ...]
    stores: tuple[str, ...]
    seconds_per_cell: float
    wanted_rounds: int | None
    out: Path

    def sections_of(self, page: Page) -> list[str]:
        return [section for section in page.sections if section in self.only]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (100, 1_000) if self.quick else (100, 1_000, 10_000, 100_000)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        shapes = [(1, 1), (1, 8), (2, 1)] if self.quick else [(1, 1), (1, 8), (8, 1), (1, 32), (4, 8)]
        return tuple(Arrangement(processes=processes, each=each) for processes, each in shapes)

    @property
    def rounds(self) -> int:
        return self.wanted_rounds or (2 if self.quick else 5)

    @property
    def team_rounds(self) -> int:
        """How often a whole team is set to work for the same number."""
        return self.wanted_rounds or (1 if self.quick else 3)

    @property
    def protocols(self) -> tuple[str, ...]:
        return ("anthropic",) if self.quick else ("anthropic", "openai")

    @property
    def burst_seconds(self) -> float:
        return self.seconds_per_cell / self.rounds


def parse(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("pages", nargs="*", help=f"what is measured and written: {', '.join(PAGES)}; else everything")
    parser.add_argument("--quick", action="store_true", help="small boards and few rounds: less than a minute")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section; may be repeated")
    parser.add_argument("--stores", default=",".join(STORES), help="which stores, with commas: %(default)s")
    parser.add_argument("--seconds-per-cell", type=float, help="how long each cell is measured, over all its rounds")
    parser.add_argument("--rounds", type=int, help="how often each number is measured, in turns")
    parser.add_argument("--out", type=Path, default=OUT, help="where pages and plot go: %(default)s")
    given = parser.parse_args(arguments)
    for name in given.pages:
        if name not in PAGES:
            parser.error(f"{name!r} is not a page: {', '.join(PAGES)}")
    stores = tuple(name for name in given.stores.split(",") if name)
    for name in stores:
        if name not in STORES:
            parser.error(f"{name!r} is not a store: {', '.join(STORES)}")
    only = tuple(given.only or (section for name in given.pages or PAGES for section in PAGES[name].sections))
    return Options(
        quick=given.quick,
        pages=tuple(name for name, page in PAGES.items() if set(page.sections) & set(only)),
        only=only,
        stores=stores,
        seconds_per_cell=given.seconds_per_cell or (0.4 if given.quick else 1.0),
        wanted_rounds=given.rounds,
        out=given.out,
    )
