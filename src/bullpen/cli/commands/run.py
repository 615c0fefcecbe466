"""`bullpen run` and `bullpen resume`: a team begins, or goes on, and is hosted here until it is over."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.commands.number import parse_amount
from bullpen.cli.live.hosting import Job, host
from bullpen.config import Settings, load_settings
from bullpen.errors import Conflict, UsageError
from bullpen.team import Team
from bullpen.team.beginning import CHECK, WORKSPACE, begin_team
from bullpen.team.hosts import check_at_rest

Model = Annotated[
    str | None, typer.Option(metavar="MODEL", help="PROVIDER:NAME, such as anthropic:NAME or scripted:FILE.")
]
Workspace = Annotated[str | None, typer.Option(metavar="DIR", help="Where it works; without it here.")]
MaxCost = Annotated[
    str | None, typer.Option(metavar="USD", help="Stop before this is spent; 5 unless the settings say.")
]
MaxTokens = Annotated[str | None, typer.Option(metavar="N", help="Stop before so many tokens are used.")]
MaxMinutes = Annotated[str | None, typer.Option(metavar="N", help="Stop after so many minutes.")]
Check = Annotated[str | None, typer.Option(metavar="COMMAND", help="Must exit 0, or the goal is not reached.")]
Network = Annotated[bool, typer.Option("--network", help="Commands may use the network.")]


def run(
    ctx: typer.Context,
    goal: Annotated[list[str], typer.Argument(metavar="GOAL", help="What is to be reached.")],
    model: Model = None,
    workspace: Workspace = None,
    isolation: Annotated[
        str, typer.Option(metavar="KIND", help="auto or shared: all work in the same directory.")
    ] = "auto",
    check: Check = None,
    network: Network = False,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
    detach: Annotated[bool, typer.Option("--detach", help="In the background: this terminal is free again.")] = False,
) -> None:
    """Give a new team a goal, and watch it work."""
    words = " ".join(goal).strip()
    if not words:
        raise UsageError('a goal is missing: bullpen run "what is to be reached"')
    _check_isolation(isolation)
    call = Call.of(ctx)
    directory = directory_of(workspace)
    settings = read_settings(call, directory, model, network, _limits(max_cost, max_tokens, max_minutes))
    raise typer.Exit(call.run(_run(call, words, settings, directory, check, detach)))


def resume(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    workspace: Annotated[str | None, typer.Option(metavar="DIR", help="Where it works; without it as before.")] = None,
    check: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Must exit 0; without it that of the run before.")
    ] = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
) -> None:
    """Go on with a team that rests or crashed.

    Everyone goes on where they were. A larger budget is added with it: --max-cost, --max-tokens.
    """
    call = Call.of(ctx)
    limits = _limits(max_cost, max_tokens, max_minutes)
    raise typer.Exit(call.run(_resume(call, team, workspace, check, limits)))


# -- what was typed --------------------------------------------------------------------------------------------


def _check_isolation(kind: str) -> None:
    if kind == "worktree":
        raise UsageError("--isolation worktree is not in this release: leave it out, and all work in one directory")
    if kind not in ("auto", "shared"):
        raise UsageError(f"--isolation is auto or shared, not {kind[:40]!r}")


def directory_of(workspace: str | None) -> Path:
    directory = Path(workspace).expanduser().absolute() if workspace else Path.cwd()
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory: --workspace names where the team works")
    return directory


def read_settings(
    call: Call, directory: Path, model: str | None, network: bool, limits: Mapping[str, float | int]
) -> Settings:
    flags: dict[str, Any] = {**call.flags, **{f"budget.{key}": value for key, value in limits.items()}}
    if model:
        flags["model"] = model
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


async def _run(call: Call, goal: str, settings: Settings, directory: Path, check: str | None, detach: bool) -> int:
    model = find_model(call, settings)
    say_what_is_not_confined(call, settings, directory)
    async with call.store() as store:
        memory = {WORKSPACE: str(directory), CHECK: check}
        record = await begin_team(store, goal, settings, name=call.new_name, memory=memory)
        job = Job(team=Team(store, record), workspace=directory, goal=goal, check=check, model=model)
        if detach:
            from bullpen.cli.commands.detached import start_detached

            return await start_detached(call, job)
        return await host(call, job, max_minutes=settings.budget.max_minutes)


async def _resume(
    call: Call, named: str | None, workspace: str | None, check: str | None, limits: Mapping[str, float | int]
) -> int:
    async with call.team(named) as team:
        if team.record.deleted_at is not None:
            raise Conflict(f"team {team.name!r} has been deleted: `bullpen run GOAL` begins another")
        await check_at_rest(team.store, team.record)
        stored = {key: value for key, value in limits.items() if key != "max_minutes"}
        if stored:
            await team.set_budget(**stored)
        if check is not None:
            await team.remember(**{CHECK: check})
        settings = Settings.from_mapping(team.record.settings)
        job = Job(
            team=team,
            workspace=last_workspace(team) if workspace is None else directory_of(workspace),
            goal="",
            check=team.record.settings.get(CHECK),
            model=find_model(call, settings),
        )
        say_what_is_not_confined(call, settings, job.workspace)
        return await host(call, job, max_minutes=limits.get("max_minutes") or settings.budget.max_minutes)


def last_workspace(team: Team) -> Path:
    """Where it worked before, wherever this is typed."""
    last = team.record.settings.get(WORKSPACE)
    if not isinstance(last, str):
        return directory_of(None)
    if not Path(last).is_dir():
        raise UsageError(f"{last}, where team {team.name} worked, is gone: say with --workspace DIR where it is now")
    return Path(last)


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
