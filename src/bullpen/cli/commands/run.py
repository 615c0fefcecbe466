"""`bullpen run` and `bullpen resume`: a team at work, in this terminal or a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bullpen.cli import completion
from bullpen.cli.call import Call
from bullpen.cli.live.news import draw_news
from bullpen.cli.views.report import draw_report, report_document
from bullpen.config import Settings, load_settings
from bullpen.errors import Conflict, UsageError
from bullpen.store import BEGINNING
from bullpen.team import Outcome, Report, Team
from bullpen.team.beginning import begin_team, living_hosts, wake_lead
from bullpen.team.progress import Progress

EXIT_CODES = {Outcome.ASKS: 4, Outcome.ERROR: 3}
INTERRUPTED = 130
# How long the last lines of the log are waited for before the report is printed.
LAST_NEWS_SECONDS = 5.0

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
    check: Check = None,
    network: Network = False,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only write it down: a worker, or `bullpen resume`, runs it.")
    ] = False,
) -> None:
    """Give a new team a goal, and watch it work until it is reached."""
    words = " ".join(goal).strip()
    if not words:
        raise UsageError('a goal is missing: bullpen run "what is to be reached"')
    call = Call.of(ctx)
    directory = _directory(workspace)
    settings = _settings(directory, model, network, max_cost, max_tokens, max_minutes)
    raise typer.Exit(call.run(_run(call, words, settings, directory, check, detach)))


def resume(
    ctx: typer.Context,
    team: Annotated[
        str | None,
        typer.Argument(metavar="TEAM", help="Its name; without it the only live one.", autocompletion=completion.teams),
    ] = None,
    workspace: Workspace = None,
    check: Check = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    max_minutes: MaxMinutes = None,
) -> None:
    """Go on with a team that rests, was stopped or crashed; with a larger budget if you say so."""
    call = Call.of(ctx)
    limits = _limits(max_cost, max_tokens, max_minutes)
    raise typer.Exit(call.run(_resume(call, team, _directory(workspace), check, limits)))


# -- beginning -------------------------------------------------------------------------------------------------


def _directory(workspace: str | None) -> Path:
    directory = Path(workspace).expanduser().absolute() if workspace else Path.cwd()
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory: --workspace names where the team works")
    return directory


def _settings(
    directory: Path,
    model: str | None,
    network: bool,
    max_cost: str | None,
    max_tokens: str | None,
    max_minutes: str | None,
) -> Settings:
    flags: dict[str, Any] = {
        f"budget.{key}": value for key, value in _limits(max_cost, max_tokens, max_minutes).items()
    }
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
            limits[key] = _positive(flag, text)
    if "max_tokens" in limits:
        limits["max_tokens"] = int(limits["max_tokens"])
    return limits


def _positive(flag: str, text: str) -> float:
    try:
        number = float(text.removeprefix("$").replace(",", "").replace("_", ""))
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UsageError(f"{flag} takes a number above 0, not {text[:40]!r}")
    return number


async def _run(call: Call, goal: str, settings: Settings, directory: Path, check: str | None, detach: bool) -> int:
    model = settings.model_for("lead") or _default_model(call)
    async with call.store() as store:
        record = await begin_team(store, goal, settings, name=call.named_team)
        if detach:
            await wake_lead(store, record.id, goal)
            await _say_who_hosts(call, Team(store, record))
            return 0
        team = Team(store, record)
        return await _host(call, team, directory, goal=goal, check=check, model=model, settings=settings)


async def _resume(
    call: Call, named: str | None, directory: Path, check: str | None, limits: Mapping[str, float | int]
) -> int:
    async with call.team(named) as team:
        if team.record.deleted_at is not None:
            raise Conflict(f"team {team.name!r} has been deleted: `bullpen run` begins another")
        hosts = await living_hosts(team.store, team.id)
        if hosts:
            where = f"worker {hosts[0].id} on {hosts[0].host}, pid {hosts[0].pid}"
            raise Conflict(
                f"team {team.name!r} is at work ({where}): `bullpen chat --team {team.name}` talks with it, "
                f"`bullpen watch {team.name}` looks on"
            )
        stored = {key: value for key, value in limits.items() if key != "max_minutes"}
        if stored:
            await team.set_budget(**stored)
        settings = Settings.from_mapping(team.record.settings)
        model = settings.model_for("lead") or _default_model(call)
        minutes = limits.get("max_minutes")
        return await _host(
            call, team, directory, goal="", check=check, model=model, settings=settings, max_minutes=minutes
        )


def _default_model(call: Call) -> str:
    from bullpen.providers import default_model

    found = default_model(os.environ)
    if found is None:
        raise UsageError(
            "no model is set: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one with --model PROVIDER:NAME; "
            "`bullpen demo` shows a team at work without any"
        )
    model, variable = found
    call.note(f"model {model}, because {variable} is set")
    return model


async def _say_who_hosts(call: Call, team: Team) -> None:
    from bullpen.cli.views.hosts import hosts_line

    line = await hosts_line(team)
    call.show({"team": team.name, "hosts": line}, lambda page: page.line(f"team {team.name}: {line}"))


# -- hosting ---------------------------------------------------------------------------------------------------


async def _host(
    call: Call,
    team: Team,
    directory: Path,
    *,
    goal: str,
    check: str | None,
    model: str,
    settings: Settings,
    max_minutes: float | None = None,
) -> int:
    from bullpen.team.run import Hosting

    is_interactive = not call.is_json and sys.stdin.isatty() and sys.stdout.isatty()
    team.hosting = Hosting(model=model, workspace=directory, is_interactive=is_interactive)
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    minutes = max_minutes or settings.budget.max_minutes
    progress = Progress()
    try:
        report = await _told_in_lines(call, team, progress, goal, minutes, check)
    except asyncio.CancelledError:
        call.note(f"{team.name} rests, nothing is lost: `bullpen resume {team.name}` goes on")
        return INTERRUPTED
    now = datetime.now(UTC)
    call.show_entry(
        report_document(report, progress, now=now), lambda page: draw_report(page, report, progress, now=now)
    )
    return _say_how_to_go_on(call, team, report, check)


async def _told_in_lines(
    call: Call, team: Team, progress: Progress, goal: str, minutes: float | None, check: str | None
) -> Report:
    async with AsyncExitStack() as stack:
        telling = asyncio.create_task(_tell(call, team, progress))
        stack.push_async_callback(_finish_telling, telling, team, progress)
        return await team.run(goal, max_minutes=minutes, check=check)


async def _tell(call: Call, team: Team, progress: Progress) -> None:
    async with aclosing(team.follow_events(after=BEGINNING)) as log:  # type: ignore[type-var]
        async for event in log:
            progress.follow(event)
            if call.is_json:
                call.show_entry(event, lambda page: None)
            else:
                call.show_if(lambda page, event=event: draw_news(page, event, progress))  # type: ignore[misc]


async def _finish_telling(telling: asyncio.Task[None], team: Team, progress: Progress) -> None:
    """Whatever was written is told before the report."""
    last = await team.store.last_position(team.id)
    async with asyncio.timeout(LAST_NEWS_SECONDS), team.store.listen_events(team.id) as bell:
        while progress.position != last and not telling.done():
            bell.clear()
            await bell.wait(0.02)
    telling.cancel()
    await asyncio.wait({telling})


def _say_how_to_go_on(call: Call, team: Team, report: Report, check: str | None) -> int:
    hints = {
        Outcome.ASKS: f"answer with `bullpen send lead TEXT --team {team.name}` or `bullpen approve ID`, "
        f"then `bullpen resume {team.name}`",
        Outcome.BUDGET: f"`bullpen resume {team.name} --max-cost USD` goes on with a larger one",
        Outcome.TIME: f"`bullpen resume {team.name}` goes on",
        Outcome.ERROR: f"set it right, then `bullpen resume {team.name}` goes on",
        Outcome.STALLED: f"`bullpen chat --team {team.name}` talks with the lead",
        Outcome.FAILED: f"`bullpen chat --team {team.name}` talks with the lead",
    }
    if report.outcome in hints:
        call.note(hints[report.outcome])
    is_reached = report.outcome is Outcome.DONE and (check is not None or report.succeeded)
    return 0 if is_reached else EXIT_CODES.get(report.outcome, 1)
