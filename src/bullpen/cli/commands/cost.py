"""`bullpen cost`."""

from __future__ import annotations

from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.views.cost import cost_document, draw_cost
from bullpen.team.spending import look_at_spending


def cost(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
) -> None:
    """What was spent, by whom, against the budget."""
    call = Call.of(ctx)
    call.run(_cost(call, team))


async def _cost(call: Call, named: str | None) -> None:
    async with call.team(named) as team:
        spending = await look_at_spending(team)
    call.show(cost_document(spending), lambda page: draw_cost(page, spending))
