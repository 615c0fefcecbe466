"""`python -m bench`: measure, print, write the pages and the plot. It ends with 0 whether targets hold or not."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench import apart, claims, idle, machine, mail, page, plot, start, wake
from bench.agents import crowd, makespan, prefix, turn
from bench.figures import Section
from bench.ground import Ground, is_there
from bench.machines import soak, takeover
from bench.options import OUT, Options, parse
from bench.page import PAGES, Page

PLOT = "benchmarks.svg"


def main() -> None:
    options = parse()
    stores = [store for store in options.stores if is_there(store)]
    options.out.mkdir(parents=True, exist_ok=True)
    with Ground() as ground:
        for name in options.pages:
            _write(PAGES[name], ground, options, stores)


def _write(wanted: Page, ground: Ground, options: Options, stores: list[str]) -> None:
    began = time.monotonic()
    missing = [store for store in options.stores if store not in stores]
    facts = machine.facts(ground, with_postgres="postgresql" in stores)
    theft = machine.Theft()
    sections = []
    for name in options.sections_of(wanted):
        section = _SECTIONS[name](ground, options, stores)
        print("\n" + section.text + "\n", flush=True)
        sections.append(section)
    text = page.render(
        wanted, facts + theft.facts(), sections, missing=missing, plot=PLOT if "claims" in options.only else None
    )
    if len(sections) < len(wanted.sections) and options.out == OUT:
        print(f"{OUT / wanted.file} stays as it is: only a part of it was measured, see --out")
        return
    (options.out / wanted.file).write_text(text, encoding="utf-8")
    print(f"{options.out / wanted.file} written after {time.monotonic() - began:.0f} s")


def _claims(ground: Ground, options: Options, stores: list[str]) -> Section:
    found = claims.measure(ground, options, stores)
    plot.draw(found, options, options.out / PLOT)
    return claims.report(found, options, stores)


_SECTIONS: dict[str, Callable[[Ground, Options, list[str]], Section]] = {
    "claims": _claims,
    "mail": mail.measure,
    "wake": wake.measure,
    "idle": idle.measure,
    "start": start.measure,
    "worktrees": apart.measure_worktrees,
    "integration": apart.measure_integration,
    "takeover": takeover.measure,
    "soak": soak.measure,
    "makespan": makespan.measure,
    "turn": turn.measure,
    "prefix": prefix.measure,
    "crowd": crowd.measure,
}

if __name__ == "__main__":
    main()
