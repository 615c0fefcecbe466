"""`python -m bench`: measure, print, write the page and the plot. It ends with 0 whether targets hold or not."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench import claims, idle, machine, mail, page, plot, start, wake
from bench.figures import Section
from bench.ground import Ground, is_there
from bench.options import Options, parse

PAGE = "benchmarks.md"
PLOT = "benchmarks.svg"


def main() -> None:
    options = parse()
    began = time.monotonic()
    stores = [store for store in options.stores if is_there(store)]
    missing = [store for store in options.stores if store not in stores]
    options.out.mkdir(parents=True, exist_ok=True)
    with Ground() as ground:
        facts = machine.facts(ground, with_postgres="postgresql" in stores)
        sections = []
        for name in options.only:
            section = _SECTIONS[name](ground, options, stores)
            print("\n" + section.text + "\n", flush=True)
            sections.append(section)
    has_plot = "claims" in options.only
    text = page.render(facts, sections, missing=missing, has_plot=has_plot)
    (options.out / PAGE).write_text(text, encoding="utf-8")
    print(f"{options.out / PAGE} written after {time.monotonic() - began:.0f} s")


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
}

if __name__ == "__main__":
    main()
