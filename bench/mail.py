"""Mail: pairs of send and take, against an insert and an update in a transaction each."""

from __future__ import annotations

from bench.claims import RATIO_TO_BARE, bare
from bench.contest import Cell, Contender, opened, run_round
from bench.crew import Crew
from bench.figures import Section, Target, count, milliseconds, ratio
from bench.ground import Ground, make_board
from bench.options import Arrangement, Options
from bench.pairs import Place


def measure(ground: Ground, options: Options, stores: list[str]) -> Section:
    section = Section("Mail")
    section.say(
        """A member sends a message and takes it into its transcript, and again: pairs per second, and in brackets p50 /
        p99 of the send and of the take. *Bare* is an `INSERT` into the same table and an `UPDATE` that marks it
        delivered, a transaction each; it writes no transcript, no event, and rings no bell."""
    )
    contenders = []
    for store in stores:
        for name, kind in ((store, "store"), (bare(store), bare(store))):
            if name != "bare files":
                url = ground.new_url(store)
                contenders.append(Contender(name, kind, Place(url=url, team_id=make_board(url, 0))))
    arrangements = [arrangement for arrangement in options.arrangements if arrangement.claimers <= 8]
    rows = []
    with Crew(max(arrangement.processes for arrangement in arrangements)) as crew:
        for arrangement in arrangements:
            print(f"mail: {arrangement.describe('member')}", flush=True)
            rows += _measure(crew, options, arrangement, contenders, section)
    section.table(["", "", "pairs/s", "send p50 / p99", "take p50 / p99", "of bare"], rows)
    return section


def _measure(
    crew: Crew, options: Options, arrangement: Arrangement, contenders: list[Contender], section: Section
) -> list[list[str]]:
    cells = {contender.name: Cell() for contender in contenders}
    with opened(crew, arrangement, "mail", contenders):
        for _ in range(options.rounds):
            for contender in contenders:
                run_round(crew, arrangement, contender, cells[contender.name], options.burst_seconds)
    rows = []
    for name, cell in cells.items():
        members = arrangement.describe("member")
        engine, verdict = cells.get(bare(name)), ""
        if engine is not None:
            target = Target(
                f"{name}: mail pairs/s of bare, {members}",
                ratio(cell.rates, engine.rates),
                RATIO_TO_BARE,
                at_least=True,
            )
            section.targets.append(target)
            verdict = f"{target.measured:.2f} {target.mark}"
        assert not cell.doubles, f"{name} delivered a message twice"
        send = f"{milliseconds(cell.first(0.5))} / {milliseconds(cell.first(0.99))}"
        take = f"{milliseconds(cell.second(0.5))} / {milliseconds(cell.second(0.99))}"
        rows.append([members, name, f"{count(cell.rate)}/s", send, take, verdict])
    return rows
