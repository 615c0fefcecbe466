"""A conversation with a team's lead: the console, for as long as the human stays.

This process hosts the team meanwhile, unless another one does; then it looks on, and takes over when that one ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bullpen.cli.call import Call
from bullpen.cli.live.console import Console
from bullpen.cli.live.hosting import INTERRUPTED, Left, ending_on_signals, so_far
from bullpen.cli.views.hosts import hosts_line
from bullpen.team import Team
from bullpen.team.hosts import find_hosts
from bullpen.team.progress import Progress
from bullpen.team.run import Hosting


async def talk(call: Call, team: Team, workspace: Path, *, model: str | None) -> int:
    """The exit code. Without a model it only looks on."""
    console = Console(team, Progress())
    team.hosting = Hosting(model=model, workspace=workspace, is_interactive=True, on_text=console.hear)
    code = 0
    with ending_on_signals(call, team):
        try:
            await console.during(_look_on() if model is None else _host(team))
        except Left:
            pass
        except asyncio.CancelledError:
            code = INTERRUPTED
    await _say_what_becomes_of_it(call, team)
    return code


async def _host(team: Team) -> None:
    if not (await find_hosts(team.store, team.record)).hosting:
        await team.wake_up()
    await team.stand_by()


async def _look_on() -> None:
    await asyncio.get_running_loop().create_future()


async def _say_what_becomes_of_it(call: Call, team: Team) -> None:
    team.record = await team.store.get_team(team.id)
    hosts = await find_hosts(team.store, team.record)
    if hosts.hosting or team.record.deleted_at is not None:
        call.note(hosts_line(hosts))
    else:
        call.note(
            f"{team.name} rests, nothing is lost: `bullpen chat --team {team.name}` comes back to it"
            + await so_far(team)
        )
