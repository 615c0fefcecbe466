"""Claiming: pairs of claim and complete, by board size and arrangement of claimers."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.contest import Cell, Contender, opened, run_round
from bench.crew import Crew
from bench.figures import Section, Target, count, milliseconds, ratio, times
from bench.ground import Ground, make_board
from bench.options import ALONE, Arrangement, Options
from bench.pairs import Place, write_seed_task

SEEDS = "the seeds' method"
RATIO_TO_BARE = 0.5
GROWTH = 1.5
# They are slow: fewer and longer turns, so that claims end within them.
_SEED_ROUNDS = 2

Cells = dict[tuple[Arrangement, int, str], Cell]


@dataclass(slots=True)
class Claims:
    """All cells, and for each store the claim's cost on the largest board relative to the smallest."""

    names: list[str]
    cells: Cells = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)


def bare(store: str) -> str:
    return f"bare {store}"


def bare_alone(store: str) -> str:
    return f"bare {store}, 1 claimer"


def measure(ground: Ground, options: Options, stores: list[str]) -> Claims:
    boards = {size: _make_contenders(ground, size, stores) for size in options.sizes}
    found = Claims([contender.name for contender in boards[options.sizes[0]]])
    with Crew(max(arrangement.processes for arrangement in options.arrangements)) as crew:
        for arrangement in options.arrangements:
            for size, contenders in boards.items():
                print(f"claims: {arrangement.describe()}, {size:,} tasks", flush=True)
                _measure_cells(crew, options, arrangement, contenders, found.cells)
        ends = [boards[options.sizes[0]], boards[options.sizes[-1]]]
        _measure_growth(crew, options, ends, found)
    return found


def _make_contenders(ground: Ground, size: int, stores: list[str]) -> list[Contender]:
    print(f"claims: making boards of {size:,} tasks", flush=True)
    contenders = []
    for store in stores:
        kinds = {store: "store"}
        if store != "files":
            kinds[bare(store)] = bare(store)
        if store == "sqlite":
            # It has one writer at a time: claimers who wait for each other can only make it slower.
            kinds[bare_alone(store)] = bare(store)
        for name, kind in kinds.items():
            url = ground.new_url(store)
            place = Place(url=url, team_id=make_board(url, size))
            contenders.append(Contender(name, kind, place, size, is_alone=name == bare_alone(store)))
    folder = ground.new_folder()
    for number in range(1, size + 1):
        write_seed_task(folder, number)
    contenders.append(Contender(SEEDS, "seeds", Place(url=str(folder)), size, is_reset=True))
    return contenders


def _measure_cells(
    crew: Crew, options: Options, arrangement: Arrangement, contenders: list[Contender], cells: Cells
) -> None:
    if arrangement == ALONE:
        contenders = [contender for contender in contenders if not contender.is_alone]
    with opened(crew, arrangement, "claims", contenders):
        for number in range(options.rounds):
            for contender in contenders:
                cell = cells.setdefault((arrangement, contender.size, contender.name), Cell())
                if contender.kind != "seeds":
                    run_round(crew, arrangement, contender, cell, options.burst_seconds)
                elif number < _SEED_ROUNDS and not cell.is_guessed:
                    run_round(crew, arrangement, contender, cell, options.seconds_per_cell)


def _measure_growth(crew: Crew, options: Options, ends: list[list[Contender]], found: Claims) -> None:
    """The smallest and the largest board in turns, one claimer."""
    ends = [
        [contender for contender in board if contender.kind != "seeds" and not contender.is_alone] for board in ends
    ]
    contenders = [contender for pair in zip(*ends, strict=True) for contender in pair]
    cells = {contender.key: Cell() for contender in contenders}
    with opened(crew, ALONE, "claims", contenders):
        for _ in range(options.rounds):
            for contender in contenders:
                run_round(crew, ALONE, contender, cells[contender.key], options.burst_seconds)
    for small, large in zip(*ends, strict=True):
        found.growth[small.name] = ratio(cells[large.key].medians_ns, cells[small.key].medians_ns)
    for contender in contenders:
        found.cells[ALONE, contender.size, contender.name].doubles += cells[contender.key].doubles


def report(found: Claims, options: Options, stores: list[str]) -> Section:
    section = Section("Claiming")
    section.say(
        """A claimer is a member that joined: it claims the next task, completes it, and again. Shown are pairs of claim
        and complete per second, and in brackets the latency of the claim alone, p50 / p99. Claimers of one process
        are coroutines of one store object, whose commits are grouped; claimers in several processes meet only in the
        store. *Bare* is the engine's own limit: two transactions in a loop (`BEGIN IMMEDIATE`; the `UPDATE …
        RETURNING`; `COMMIT`), on the same tables with the same durability, one connection and thread for each
        claimer, in as many processes, and nothing around them: no fence, no event, no bell. SQLite has one writer at
        a time, and its busy handler makes several slower than one: the bare loop of one claimer is measured beside
        them, and the ratio to it, which is no target, says what is lost by coming from several places. *The seeds'
        method* scans the folder, parses every task, and writes without a lock; ≈ marks a claim that took longer than
        its turn and was extrapolated from the part of the folder that it read."""
    )
    for arrangement in options.arrangements:
        section.parts.append(f"### {arrangement.describe()}")
        section.table(
            ["", *(f"{size:,} tasks" for size in options.sizes)],
            [
                [name, *(_cell(found, arrangement, size, name) for size in options.sizes)]
                for name in found.names
                if (arrangement, options.sizes[0], name) in found.cells
            ]
            + [
                row
                for store in stores
                if store != "files"
                for row in _ratio_rows(found, options, arrangement, store, section)
            ],
        )
    _report_growth(found, options, section)
    _report_doubles(found, section)
    return section


def _cell(found: Claims, arrangement: Arrangement, size: int, name: str) -> str:
    cell = found.cells[arrangement, size, name]
    if cell.is_guessed:
        return f"≈ {count(cell.rate)}/s ({milliseconds(cell.first(0.5))})"
    refused = f", {cell.refused} refused" if cell.refused else ""
    latency = f"{milliseconds(cell.first(0.5))} / {milliseconds(cell.first(0.99))}"
    return f"{count(cell.rate)}/s ({latency}{refused})"


def _ratio_rows(
    found: Claims, options: Options, arrangement: Arrangement, store: str, section: Section
) -> list[list[str]]:
    what = f"{store}: pairs/s of bare, {arrangement.describe()}"
    targets = [
        Target(
            f"{what}, {size:,} tasks",
            _ratio(found, arrangement, size, store, bare(store)),
            RATIO_TO_BARE,
            at_least=True,
        )
        for size in options.sizes
    ]
    section.targets.append(min(targets, key=lambda target: target.measured))
    rows = [[f"**{store} / bare**", *(f"{target.measured:.2f} {target.mark}" for target in targets)]]
    alone = bare_alone(store)
    if (arrangement, options.sizes[0], alone) in found.cells:
        ratios = [_ratio(found, arrangement, size, store, alone) for size in options.sizes]
        rows.append([f"{store} / {alone}", *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def _ratio(found: Claims, arrangement: Arrangement, size: int, store: str, engine: str) -> float:
    return ratio(found.cells[arrangement, size, store].rates, found.cells[arrangement, size, engine].rates)


def _report_growth(found: Claims, options: Options, section: Section) -> None:
    small, large = options.sizes[0], options.sizes[-1]
    section.parts.append(f"### A claim at {large:,} tasks, relative to one at {small:,}")
    section.say("Median latency of the claim, one claimer, the two boards in turns.")
    rows = []
    for name, growth in found.growth.items():
        target = Target(f"{name}: claim at {large:,} tasks / at {small:,}", growth, GROWTH, at_least=False)
        is_promised = name in ("sqlite", "postgresql")
        if is_promised:
            section.targets.append(target)
        rows.append([name, times(growth), target.mark if is_promised else ""])
    seeds = [found.cells[ALONE, size, SEEDS].first(0.5) for size in (large, small)]
    rows.append([SEEDS, times(seeds[0] / seeds[1]) if seeds[1] else "", ""])
    section.table(["", "cost", ""], rows)


def _report_doubles(found: Claims, section: Section) -> None:
    section.parts.append("### Claimed twice")
    rows = []
    for name in found.names:
        cells = [cell for (_, _, subject), cell in found.cells.items() if subject == name]
        claims, doubles = sum(cell.claims for cell in cells), sum(cell.doubles for cell in cells)
        torn = sum(cell.torn for cell in cells)
        share = f"{doubles:,} ({doubles / claims:.0%})" if doubles else "never"
        rows.append([name, f"{claims:,}", share, f"{torn:,}" if torn else "none"])
    section.say(
        """From the numbers that the claimers were given, over all of the above; every task number is given out once,
        so one that comes twice was claimed twice. A torn read is a file seen half written, or written over by two at
        once; the seeds' agents die of it, here they pass over it."""
    )
    section.table(["", "claims", "claimed twice", "torn reads"], rows)
