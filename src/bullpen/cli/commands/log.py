"""`bullpen log`: a member's transcript."""

from __future__ import annotations

from typing import Annotated

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.known import get_member
from bullpen.cli.commands.number import parse_count
from bullpen.cli.page import Page
from bullpen.cli.pipe import while_read
from bullpen.cli.views.log import draw_turn
from bullpen.domain.member import USER
from bullpen.domain.text import name_key
from bullpen.domain.transcript import Turn
from bullpen.errors import UsageError
from bullpen.team import Team


def log(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose: the lead or a teammate.", autocompletion=completion.members)
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts and results.")] = False,
    limit: Annotated[str, typer.Option(metavar="N", help="How many turns, the newest.")] = "100",
) -> None:
    """What a member said, did and was told."""
    if name_key(name) == USER:
        raise UsageError("you have no transcript: `bullpen inbox` shows your mail")
    call = Call.of(ctx)
    call.run(_log(call, name, follow, full, parse_count(limit, "--limit")))


async def _log(call: Call, name: str, follow: bool, is_full: bool, limit: int) -> None:
    async with call.team() as team:
        member = await get_member(team, name)
        turns = (await team.list_turns(member.name))[-limit:]
        if follow:
            for turn in turns:
                _show(call, turn, is_full)
            await _follow(call, team, member.name, turns[-1].seq if turns else 0, is_full)
            return
        call.show(turns, lambda page: _draw(page, member.name, turns, is_full))


def _draw(page: Page, name: str, turns: list[Turn], is_full: bool) -> None:
    if not turns:
        page.line(f"{name} has said and heard nothing yet")
    elif turns[0].seq > 1:
        page.line(f"the newest {len(turns)} turns; --limit shows more")
    for turn in turns:
        draw_turn(page, turn, is_full=is_full)


def _show(call: Call, turn: Turn, is_full: bool) -> None:
    call.show_entry(turn, lambda page: draw_turn(page, turn, is_full=is_full))


async def _follow(call: Call, team: Team, name: str, seq: int, is_full: bool) -> None:
    async with while_read(), team.store.listen_events(team.id) as bell:
        while True:
            bell.clear()
            for turn in await team.list_turns(name, after_seq=seq):
                _show(call, turn, is_full)
                seq = turn.seq
            await bell.wait()
