"""`bullpen events`: the log, for people and for pipes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.number import parse_count
from bullpen.cli.pipe import while_read
from bullpen.cli.views.event import draw_event
from bullpen.domain.event import Event
from bullpen.store import BEGINNING
from bullpen.team import Team

NOW = "now"
PAGE_SIZE = 1000


def events(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new ones until Ctrl-C.")] = False,
    after: Annotated[
        str, typer.Option(metavar="POSITION", help='Begin behind this one (`position` in the JSON), or "now".')
    ] = BEGINNING,
    limit: Annotated[str | None, typer.Option(metavar="N", help="End after so many.")] = None,
) -> None:
    """The team's log: what happened, in order."""
    call = Call.of(ctx)
    call.run(_events(call, team, follow, after, None if limit is None else parse_count(limit, "--limit")))


async def _events(call: Call, named: str | None, follow: bool, after: str, limit: int | None) -> None:
    async with call.team(named) as team:
        position = await team.store.last_position(team.id) if after == NOW else after
        source = team.follow_events(after=position) if follow else _so_far(team, position)
        shown = 0
        async with while_read(), aclosing(source) as log:  # type: ignore[type-var]
            async for event in log:
                _show(call, event)
                shown += 1
                if shown == limit:
                    return


def _show(call: Call, event: Event) -> None:
    call.show_entry(event, lambda page: draw_event(page, event))


async def _so_far(team: Team, position: str) -> AsyncIterator[Event]:
    while True:
        some = await team.list_events(after=position, limit=PAGE_SIZE)
        for event in some:
            yield event
            position = event.position
        if len(some) < PAGE_SIZE:
            return
