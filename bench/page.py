"""The pages, one for each subject: a summary of the targets, then every section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.figures import Section, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    file: str
    sections: tuple[str, ...]
    opening: str


_STORES = """\
# Benchmarks

Written by `make bench BENCH_ARGS=stores`; do not edit. Whole teams are measured on [a page of their
own](benchmarks-agents.md). All numbers of a section were measured in one run and in turns (A B A B …):
ratios hold on other machines, absolute numbers do not. A ratio is the median of the ratios of neighbouring turns.
Flushes are real: `synchronous=FULL` and `synchronous_commit=on` throughout."""

_AGENTS = """\
# Benchmarks of whole teams

Written by `make bench BENCH_ARGS=agents`; do not edit. A lead and teammates, with everything stored durably; the
model is the tests' protocol server in a process of its own, which checks every request as strictly as the real APIs
do. CPU does not include that server, nor waiting; on a machine that is busy with other work even CPU time is longer,
because caches and cores are shared, and everything that is measured by the clock is much longer."""

_APART = """\
# Benchmarks of working apart

Written by `make bench BENCH_ARGS=apart`; do not edit. What isolation costs above what git itself costs."""

_MACHINES = """\
# Benchmarks across machines

Written by `make bench BENCH_ARGS=machines`; do not edit. One PostgreSQL and several workers (`bullpen worker`), with
scripted models. What the numbers mean for larger installations: [scaling](scaling.md)."""

PAGES: Mapping[str, Page] = {
    "stores": Page(file="benchmarks.md", sections=("claims", "mail", "wake", "idle", "start"), opening=_STORES),
    "apart": Page(file="benchmarks-apart.md", sections=("worktrees", "integration"), opening=_APART),
    "machines": Page(file="benchmarks-machines.md", sections=("takeover", "soak"), opening=_MACHINES),
    "agents": Page(file="benchmarks-agents.md", sections=("makespan", "turn", "prefix", "crowd"), opening=_AGENTS),
}


def render(page: Page, facts: list[str], sections: list[Section], *, missing: list[str], plot: str | None) -> str:
    parts = [page.opening, "Measured: " + " · ".join(facts) + "."]
    parts += [f"The store `{store}` could not be imported and is left out." for store in missing]
    parts.append(_summary([target for section in sections for target in section.targets]))
    if plot is not None:
        parts.append(f"![Claims per second by board size]({plot})")
    parts += [section.text for section in sections]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(targets: list[Target]) -> str:
    if not targets:
        return ""
    # Of the same thing measured on boards of several sizes, the worst stands here.
    held = sum(target.holds for target in targets)
    lines = [
        f"## Targets\n\n{held} of {len(targets)} hold.\n",
        "| target | promised | measured | |",
        "| --- | --: | --: | --- |",
    ]
    lines += ["| " + " | ".join(target.row) + " |" for target in targets]
    return "\n".join(lines)
