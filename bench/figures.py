"""Numbers out of many: medians of rounds, percentiles, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

__all__ = ["Section", "Target", "count", "median", "milliseconds", "percentile", "ratio", "times"]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios of neighbours in time, which noise of the machine hits alike."""
    pairs = [(one, other) for one, other in zip(numerators, denominators, strict=False) if other]
    return median(one / other for one, other in pairs) if pairs else 0.0


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def milliseconds(nanoseconds: float) -> str:
    value = nanoseconds / 1e6
    if value >= 10_000:
        return f"{value / 1000:,.0f} s"
    if value >= 100:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def times(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} times"


@dataclass(frozen=True, slots=True)
class Target:
    """Something promised, what was measured, and whether it holds."""

    what: str
    measured: float
    limit: float
    at_least: bool
    unit: str = ""

    @property
    def holds(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def mark(self) -> str:
        return "ok" if self.holds else f"misses {self.limit:g}"

    @property
    def row(self) -> list[str]:
        sign = "≥" if self.at_least else "≤"
        return [self.what, f"{sign} {self.limit:g}{self.unit}", f"{self.measured:.2f}{self.unit}", self.mark]


@dataclass(slots=True)
class Section:
    """A part of the page: text and tables, and what it says about the targets."""

    title: str
    parts: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.parts.append(" ".join(text.split()))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [header, ["---", *("--:" for _ in header[1:])], *rows]
        self.parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))

    @property
    def text(self) -> str:
        return "\n\n".join([f"## {self.title}", *self.parts])
