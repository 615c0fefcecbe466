"""`bullpen watch`: look on while a team works."""

from __future__ import annotations

from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.live.looking import Looking, in_lines
from bullpen.cli.live.screen import Screen
from bullpen.cli.terminal import is_screen
from bullpen.cli.views.hosts import hosts_line
from bullpen.domain.standing import Standing
from bullpen.domain.task import TaskStatus
from bullpen.domain.trunk import Trunk
from bullpen.team import Team
from bullpen.team.hosts import Hosts
from bullpen.team.progress import Progress

RECENT = 20


def watch(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="From the beginning, not only what is recent.")] = False,
) -> None:
    """Look on while a team works.

    Ends when nobody runs it any more, or with Ctrl-C; the team does not notice either. On workers it ends when the team
    is done, stalled or asks you something: with the report and the exit code of a run. With --json the events
    themselves, from the beginning.
    """
    call = Call.of(ctx)
    raise typer.Exit(call.run(_watch(call, team, everything)))


async def _watch(call: Call, named: str | None, everything: bool) -> int:
    """The exit code."""
    async with call.team(named) as team:
        looking = Looking(call, team, recent=None if everything or call.is_json else RECENT)
        has_picture = is_screen() and not call.is_json
        hosts, standing = await looking.until_over(looking.on(Screen()) if has_picture else in_lines)
        if standing is not None:
            return await _report(call, team, standing, looking.progress)
    call.note(_how_it_is_left(team, hosts, looking.progress))
    return 0


def _how_it_is_left(team: Team, hosts: Hosts, progress: Progress) -> str:
    """Where all is done, to go on is not what comes next."""
    left = {task.status for task in progress.tasks.values()} - {TaskStatus.DELETED}
    if hosts.willing or progress.is_deleted or left != {TaskStatus.COMPLETED}:
        return hosts_line(hosts)
    done = f"all tasks of team {team.name} are completed, and nobody hosts it any more"
    return f"{done}; {made}" if (made := _what_it_made(team)) else done


def _what_it_made(team: Team) -> str:
    name = team.name
    if (trunk := Trunk.of(team.record.settings)) is None:
        return ""
    return f"what it made is on {trunk.branch}: `bullpen diff {name}` shows it, `{trunk.taking(name)}` takes it"


async def _report(call: Call, team: Team, standing: Standing, progress: Progress) -> int:
    """As whoever runs a team ends."""
    from bullpen.cli.live.hosting import say_how_to_go_on, show_report
    from bullpen.team.ending import find_outcome, make_report

    outcome, lines = await find_outcome(team, standing, is_checked=False)
    report = await make_report(team, outcome, lines, progress.hosted_until(team.store.clock.now()))
    show_report(call, report, progress)
    if made := _what_it_made(team):
        call.note(made)
    return say_how_to_go_on(call, report, progress)
