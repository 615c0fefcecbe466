"""`bullpen chat`: the lead on a terminal, and the team around it."""

from __future__ import annotations

from pathlib import Path

import typer

from bullpen.cli.call import Call
from bullpen.cli.commands.run import (
    Model,
    Workspace,
    find_model,
    last_workplace,
    outset_of,
    read_settings,
    say_what_is_not_confined,
    set_apart_at_first,
)
from bullpen.cli.isolation import find_start, set_apart
from bullpen.cli.renewing import renew_settings
from bullpen.cli.terminal import can_converse
from bullpen.cli.workplace import workplace_of
from bullpen.config import Settings
from bullpen.errors import BullpenError, UsageError
from bullpen.store import Store
from bullpen.team import Team
from bullpen.team.beginning import OUTSET, WORKSPACE, begin_team
from bullpen.team.hosts import find_hosts


def chat(ctx: typer.Context, model: Model = None, workspace: Workspace = None) -> None:
    """Talk with the lead while the team works.

    Without a team yet, one begins. Who leaves and comes back finds it as it was. While another terminal runs it, this
    one looks on and writes, and takes over when that one ends.
    """
    call = Call.of(ctx)
    if call.is_json or not can_converse():
        raise UsageError(
            "chat needs a terminal: from anywhere else `bullpen send lead TEXT` writes to the lead, "
            "and `bullpen run GOAL` runs a team"
        )
    raise typer.Exit(call.run(_chat(call, model, workspace)))


async def _chat(call: Call, model: str | None, workspace: str | None) -> int:
    from bullpen.cli.live.talking import talk

    async with call.store() as store:
        record = await call.find_live_team(store)
        if record is None:
            team = await _begin(call, store, model, workspace)
        elif model is None:
            team = Team(store, record)
        else:
            raise UsageError(
                f"--model is for a new team, and {record.name!r} exists already: leave it out, "
                f"or go on with `bullpen resume {record.name} --model {model}`"
            )
        place = last_workplace(call, team, workspace)
        if not (await find_hosts(store, team.record)).hosting:
            await renew_settings(call, team, place.directory)
            await set_apart_at_first(call, team, Settings.from_mapping(team.record.settings), place)
        where = place.directory
        return await talk(call, team, where, model=await _model(call, team, where))


async def _begin(call: Call, store: Store, model: str | None, workspace: str | None) -> Team:
    place = workplace_of(workspace)
    settings = read_settings(call, place.directory, model, network=False, limits={})
    find_model(call, settings)
    start = await find_start(call, settings, place, include_dirty=False, may_ask=True)
    memory = {WORKSPACE: place.text, OUTSET: outset_of(start)}
    record = await begin_team(store, "", settings, name=call.name_to_begin, memory=memory)
    call.note(f"created team {record.name!r} {call.place.words}")
    team = Team(store, record)
    try:
        await set_apart(call, team, start)
    except BullpenError:
        await team.delete(deadline_seconds=0)
        raise
    return team


async def _model(call: Call, team: Team, workspace: Path) -> str | None:
    """None: none can be asked from here, and another process runs the team, so that one may look on all the same."""
    settings = Settings.from_mapping(team.record.settings)
    try:
        model = find_model(call, settings)
    except UsageError:
        if (await find_hosts(team.store, team.record)).hosting:
            return None
        raise
    say_what_is_not_confined(call, settings, workspace)
    return model
