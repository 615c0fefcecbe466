"""`bullpen pause` and `bullpen unpause`."""

from __future__ import annotations

import typer

from bullpen.cli.call import Call
from bullpen.cli.commands.hosted import show_hosted


def pause(ctx: typer.Context) -> None:
    """No more calls of a model until unpause.

    What runs is finished; mail and the board work on.
    """
    call = Call.of(ctx)
    call.run(_set(call, paused=True))


def unpause(ctx: typer.Context) -> None:
    """Let a paused team go on."""
    call = Call.of(ctx)
    call.run(_set(call, paused=False))


async def _set(call: Call, *, paused: bool) -> None:
    async with call.team() as team:
        was_paused = bool(team.record.settings.get("paused"))
        if was_paused != paused or team.record.deleted_at is not None:
            await (team.pause() if paused else team.unpause())
        already = "is paused already" if paused else "is not paused"
        words = already if was_paused == paused else "is paused" if paused else "goes on"
        hint = f"; `bullpen unpause --team {team.name}` lets it go on" if paused else ""
        await show_hosted(call, team, {"paused": paused}, [f"team {team.name} {words}{hint}"])
