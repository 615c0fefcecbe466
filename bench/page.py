"""The page: a summary of the targets, then every section."""

from __future__ import annotations

from bench.figures import Section, Target

_OPENING = """\
# Benchmarks

Written by `make bench`; do not edit. All numbers of a section were measured in one run and in turns (A B A B …):
ratios hold on other machines, absolute numbers do not. A ratio is the median of the ratios of neighbouring turns.
Flushes are real: `synchronous=FULL` and `synchronous_commit=on` throughout."""


def render(facts: list[str], sections: list[Section], *, missing: list[str], has_plot: bool) -> str:
    parts = [_OPENING, "Measured: " + " · ".join(facts) + "."]
    parts += [f"The store `{store}` could not be imported and is left out." for store in missing]
    parts.append(_summary([target for section in sections for target in section.targets]))
    if has_plot:
        parts.append("![Claims per second by board size](benchmarks.svg)")
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
