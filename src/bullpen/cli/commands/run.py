"""`bullpen run` and `bullpen resume`: a team begins, or goes on, and is hosted here until it is over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.number import parse_amount
from bullpen.cli.isolation import Start, check_isolation, find_start, set_apart
from bullpen.cli.live.hosting import Job, host
from bullpen.cli.placement import Placement
from bullpen.cli.renewing import renew_settings
from bullpen.cli.workplace import Workplace, say_what_is_shared, workplace_of
from bullpen.config import Settings, load_settings
from bullpen.domain.hook import Hook
from bullpen.domain.member import LEAD
from bullpen.domain.trunk import Trunk
from bullpen.errors import BullpenError, Conflict, UsageError
from bullpen.stores.place import place_of
from bullpen.team import Team
from bullpen.team.beginning import CHECK, CLEANED, OUTSET, WORKSPACE, begin_team, is_at_outset
from bullpen.team.hosts import check_at_rest, outwait_silent
from bullpen.workspaces.address import is_address
from bullpen.workspaces.elsewhere import Elsewhere
from bullpen.workspaces.mirror import mirror_of

Model = Annotated[
    str | None, typer.Option(metavar="MODEL", help="PROVIDER:NAME, such as anthropic:NAME or scripted:FILE.")
]
Workspace = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|git+URL", help="Where it works; without it here. git+URL[#REF]: each in a clone of its own."
    ),
]
MaxCost = Annotated[
    str | None, typer.Option(metavar="USD", help="Stop before this is spent; 5 unless the settings say.")
]
MaxTokens = Annotated[str | None, typer.Option(metavar="N", help="Stop before so many tokens are used.")]
MaxMinutes = Annotated[str | None, typer.Option(metavar="N", help="Stop after so many minutes.")]
Check = Annotated[str | None, typer.Option(metavar="COMMAND", help="Must exit 0, or the goal is not reached.")]
Isolation = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="auto: apart in a git repository; worktree: apart or not at all; shared: in one directory."
    ),
]
IncludeDirty = Annotated[bool, typer.Option("--include-dirty", help="Apart, begin with what is not committed, too.")]
Network = Annotated[bool, typer.Option("--network", help="Commands may use the network.")]
RunnerName = Annotated[
    str | None, typer.Option("--runner", metavar="ray", help="ray: workers on the nodes of a Ray cluster host it.")
]
RayAddress = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Which cluster; see settings for the rest.")]


def run(
    ctx: typer.Context,
    goal: Annotated[list[str], typer.Argument(metavar="GOAL", help="What is to be reached.")],
    model: Model = None,
    workspace: Workspace = None,
    isolation: Isolation = None,
    include_dirty: IncludeDirty = False,
    check: Check = None,
    network: Network = False,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
    detach: Annotated[bool, typer.Option("--detach", help="In the background: this terminal is free again.")] = False,
    runner: RunnerName = None,
    ray_address: RayAddress = None,
) -> None:
    """Give a new team a goal, and watch it work."""
    words = " ".join(goal).strip()
    if not words:
        raise UsageError('a goal is missing: bullpen run "what is to be reached"')
    call = Call.of(ctx)
    place = workplace_of(workspace)
    settings = read_settings(
        call, place.directory, model, network, _limits(max_cost, max_tokens, max_minutes), isolation=isolation
    )
    beginning = Beginning(settings, place, include_dirty=include_dirty, may_ask=not (detach or call.is_json))
    placement = Placement.named(runner, ray_address)
    raise typer.Exit(call.run(_run(call, words, beginning, check, detach, placement)))


def resume(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="PROVIDER:NAME from now on; without it as before.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(metavar="DIR|git+URL", help="Where it works; without it as before.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Must exit 0; without it that of the run before.")
    ] = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
    runner: RunnerName = None,
    ray_address: RayAddress = None,
) -> None:
    """Go on with a team that rests or crashed.

    Everyone goes on where they were. A larger budget is added with it: --max-cost, --max-tokens.
    """
    call = Call.of(ctx)
    limits = _limits(max_cost, max_tokens, max_minutes)
    placement = Placement.named(runner, ray_address)
    raise typer.Exit(call.run(_resume(call, team, model, workspace, check, limits, placement)))


# -- what was typed --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a new team begins with."""

    settings: Settings
    place: Workplace
    include_dirty: bool
    may_ask: bool


def read_settings(
    call: Call,
    directory: Path,
    model: str | None,
    network: bool,
    limits: Mapping[str, float | int],
    *,
    isolation: str | None = None,
) -> Settings:
    flags: dict[str, Any] = {**call.flags, **{f"budget.{key}": value for key, value in limits.items()}}
    if model:
        flags["model"] = model
    if isolation is not None:
        check_isolation(isolation)
        flags["isolation"] = isolation
    if network:
        flags["sandbox.network"] = "on"
    return load_settings(directory, environment=os.environ, flags=flags)


def _limits(max_cost: str | None, max_tokens: str | None, max_minutes: str | None) -> dict[str, float | int]:
    limits: dict[str, float | int] = {}
    for key, flag, text in (
        ("max_cost_usd", "--max-cost", max_cost),
        ("max_tokens", "--max-tokens", max_tokens),
        ("max_minutes", "--max-minutes", max_minutes),
    ):
        if text is not None:
            limits[key] = parse_amount(text, flag)
    if "max_tokens" in limits:
        limits["max_tokens"] = int(limits["max_tokens"])
    return limits


# -- beginning and going on ------------------------------------------------------------------------------------


async def _run(
    call: Call, goal: str, beginning: Beginning, check: str | None, detach: bool, placement: Placement
) -> int:
    settings, place = beginning.settings, beginning.place
    model = find_model(call, settings)
    runner = await placement.find_runner(call, settings)
    say_what_is_not_confined(call, settings, place.directory)
    start = await find_start(call, settings, place, include_dirty=beginning.include_dirty, may_ask=beginning.may_ask)
    async with call.store() as store:
        memory = {WORKSPACE: place.text, CHECK: check, OUTSET: outset_of(start)}
        team = Team(store, await begin_team(store, goal, settings, name=call.new_name, memory=memory))
        try:
            await set_apart(call, team, start)
        except BullpenError:
            await team.delete(deadline_seconds=0)
            raise
        except asyncio.CancelledError:
            call.note(f"{team.name} has not begun yet: `bullpen resume {team.name}` begins it")
            raise
        job = Job(
            team=team,
            workspace=place.directory,
            goal=team.record.goal,
            check=check,
            model=model,
            runner=runner,
            runner_words=placement.words,
        )
        if detach:
            from bullpen.cli.commands.detached import start_detached

            return await start_detached(call, job)
        return await host(call, job, max_minutes=settings.budget.max_minutes)


def outset_of(start: Start | Elsewhere | None) -> dict[str, bool]:
    return {"include_dirty": isinstance(start, Start) and start.takes_unsaved}


async def _resume(
    call: Call,
    named: str | None,
    model: str | None,
    workspace: str | None,
    check: str | None,
    limits: Mapping[str, float | int],
    placement: Placement,
) -> int:
    async with call.team(named) as team:
        if team.record.deleted_at is not None:
            raise Conflict(f"team {team.name!r} has been deleted: `bullpen run GOAL` begins another")
        await outwait_silent(team.store, team.record, call.note)
        await check_at_rest(team.store, team.record)
        stored = {key: value for key, value in limits.items() if key != "max_minutes"}
        if stored:
            await team.set_budget(**stored)
        if check is not None:
            await team.remember(**{CHECK: check})
        place = last_workplace(call, team, workspace)
        if model is not None:
            await _change_model(call, team, model, place.directory)
        await renew_settings(call, team, place.directory)
        settings = Settings.from_mapping(team.record.settings)
        await set_apart_at_first(call, team, settings, place)
        job = Job(
            team=team,
            workspace=place.directory,
            goal="",
            check=team.record.settings.get(CHECK),
            model=find_model(call, settings),
            runner=await placement.find_runner(call, settings),
            runner_words=placement.words,
        )
        say_what_is_not_confined(call, settings, job.workspace)
        return await host(call, job, max_minutes=limits.get("max_minutes") or settings.budget.max_minutes)


async def _change_model(call: Call, team: Team, model: str, directory: Path) -> None:
    """One that cannot be asked, or no longer, would hold the team for ever."""
    from bullpen.providers import check_model

    settings = read_settings(call, directory, model, network=False, limits={})
    check_model(settings.model or model)
    await team.remember(model=settings.model)


async def set_apart_at_first(call: Call, team: Team, settings: Settings, place: Workplace) -> None:
    """A team that began with its board has not worked anywhere yet: how it will is decided now. So it is for one that
    was cleaned up: it begins anew, from what the user has now."""
    known = team.record.settings
    # A run that was cut off before that was decided: as it was to begin.
    outset = known.get(OUTSET) or {}
    is_cut = Trunk.of(known) is None and is_at_outset(team.record, await team.store.get_member(team.id, LEAD))
    if not known.get(CLEANED) and not is_cut and (WORKSPACE in known or Trunk.of(known) is not None):
        return
    may_ask = not call.is_json and not is_cut
    include_dirty = is_cut and bool(outset.get("include_dirty"))
    if known.get(CLEANED):
        settings = replace(settings, isolation="worktree")
    start = await find_start(call, settings, place, include_dirty=include_dirty, may_ask=may_ask)
    await set_apart(call, team, start)
    await team.remember(**{WORKSPACE: place.text, CLEANED: False})


def last_workplace(call: Call, team: Team, workspace: str | None) -> Workplace:
    """Where it worked before, wherever this is typed, or where it is said to be now."""
    last = team.record.settings.get(WORKSPACE)
    trunk = Trunk.of(team.record.settings)
    if trunk is not None and trunk.is_remote:
        return _last_elsewhere(call, team, trunk, workspace)
    if workspace is None and trunk is None and isinstance(last, str) and is_address(last):
        # Cut off before it had a branch there.
        return workplace_of(last)
    if workspace is not None or not isinstance(last, str):
        place = workplace_of(workspace)
        if trunk is not None and place.address is not None:
            raise UsageError(f"team {team.name} works in {trunk.repository}, not in {place.text}: leave it out")
        return place
    if not Path(last).is_dir():
        raise UsageError(f"{last}, where team {team.name} worked, is gone: say with --workspace DIR where it is now")
    say_what_is_shared(call, Path(last))
    return Workplace(Path(last))


def _last_elsewhere(call: Call, team: Team, trunk: Trunk, workspace: str | None) -> Workplace:
    """An address that is given again may have another password."""
    place = workplace_of(workspace)
    if workspace is not None and (place.address is None or place.address.url != trunk.repository):
        raise UsageError(f"team {team.name} works in {trunk.repository}: leave --workspace out")
    if place.address is not None:
        mirror_of(place.address, place_of(call.place.url).state_directory)
    return place


def find_model(call: Call, settings: Settings) -> str:
    """The lead's, which can be asked as far as one can tell before; whichever was not named is said."""
    from bullpen.providers import check_model, default_model

    # A team that began with its board, or from a program, may have none of its own: the project's, then.
    named = settings.model_for("lead") or load_settings(environment=os.environ).model_for("lead")
    found = None if named else default_model(os.environ)
    if named is None and found is None:
        raise UsageError(
            "no model is set: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one with --model PROVIDER:NAME; "
            "`bullpen demo` shows a team at work without any"
        )
    model = named or (found[0] if found else "")
    for each in {model, *settings.models.values(), *filter(None, (mate.model for mate in settings.teammates))}:
        check_model(each)
    if found is not None:
        call.note(f"model {model}, because {found[1]}")
    return model


def say_what_is_not_confined(call: Call, settings: Settings, directory: Path) -> None:
    from bullpen.sandbox import SandboxSpec
    from bullpen.sandboxes import open_sandbox

    spec = SandboxSpec(member="lead", workspace=directory, private_directory=directory)
    sandbox = open_sandbox(spec, kind=settings.sandbox.kind)
    if not sandbox.guarantees.files_confined:
        call.note(sandbox.describe())
    # Nobody's but the human's: whoever has written them there, the human sees it.
    for hook in Hook:
        for command in getattr(settings.hooks, hook):
            call.note(f"hook {hook}, outside the sandbox: {command}")
