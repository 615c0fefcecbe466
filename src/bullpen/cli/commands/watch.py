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

    Ends when nobody runs it any more, or with Ctrl-C; the team does not notice either. With --json the events
    themselves, from the beginning.
    """
    call = Call.of(ctx)
    call.run(_watch(call, team, everything))


async def _watch(call: Call, named: str | None, everything: bool) -> None:
    async with call.team(named) as team:
        looking = Looking(call, team, recent=None if everything or call.is_json else RECENT)
        has_picture = is_screen() and not call.is_json
        hosts = await looking.until_over(looking.on(Screen()) if has_picture else in_lines)
    call.note(hosts_line(hosts))
