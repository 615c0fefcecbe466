"""`bullpen demo`: a bookshop moves from REST to GraphQL, by a team that one can watch.

The model is scripted, all else is real. What it needs lies in a directory of its own, which is gone afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bullpen.cli.call import Call
from bullpen.cli.commands.run import find_model
from bullpen.cli.live.hosting import EXIT_CODES, INTERRUPTED, Job, Left, opens_console, show_report, told
from bullpen.cli.options import Globals
from bullpen.cli.page import Page, Painted
from bullpen.config import Settings, load_settings
from bullpen.demo.chaos import Kill, sabotage
from bullpen.demo.story import write_script
from bullpen.demo.workspace import lay_out, python_command, store_url
from bullpen.errors import UsageError
from bullpen.sandboxes.bubblewrap import probe
from bullpen.stores import open_store
from bullpen.team import Report, Team
from bullpen.team.beginning import begin_team
from bullpen.team.progress import Progress
from bullpen.team.run import Hosting

# Bash is allowed where nothing confines it: what is run is known.
SCRIPTED = Settings.from_mapping({"permissions": {"allow": ["*"]}})
SPEEDS = {"slow": 0.6, "normal": 1.0, "fast": 10.0}
SLOWEST, FASTEST = 0.1, 1000.0
QUERY = "{ book(id: 2) { title author { name } } }"
GOAL = "Migrate the bookshop from REST to GraphQL."
# The script knows these; a real model has to be told.
TERMS = (
    "POST /graphql answers queries and mutations for what the REST routes offered, with types Book and Author; the "
    "page asks it once; the REST routes and their tests are gone. `python3 -m bookshop QUERY` prints what a query "
    "answers, `python3 -m unittest` passes. Standard library only. At the end say "
    '"Migration complete."'
)


def demo(
    ctx: typer.Context,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Kill a process with teammates in the middle, and see them come back.")
    ] = False,
    live: Annotated[bool, typer.Option("--live", help="The same goal with a real model: the key that is set.")] = False,
    speed: Annotated[
        str, typer.Option(metavar="SPEED", help="slow, normal, fast, or a number: 2 is twice as fast.")
    ] = "normal",
    keep: Annotated[
        str | None, typer.Option(metavar="DIR", help="Work in this new directory, and keep it with the team's state.")
    ] = None,
) -> None:
    """See a team at work: no key, no network.

    Four tasks and three teammates move a bookshop from REST to GraphQL. The model is scripted; board, mail, tools,
    checks and processes are real, and so is the bookshop. Nothing is left behind.
    """
    chosen = ctx.find_object(Globals) or Globals()
    if chosen.store or chosen.team:
        raise UsageError("the demo has a store and a team of its own: leave --store and --team out; see --keep DIR")
    if chaos and live:
        raise UsageError("--chaos kills in a moment of the script: leave --live or --chaos out")
    factor = _speed(speed)
    call = Call.of(ctx)
    settings = load_settings(Path.cwd(), environment=os.environ) if live else SCRIPTED
    model = find_model(call, settings) if live else None
    with _place(keep) as directory:
        lay_out(directory)
        show = _Show(call, directory, settings, model, is_kept=keep is not None)
        raise typer.Exit(call.run(show.run(factor, chaos=chaos)))


def _speed(text: str) -> float:
    try:
        factor = SPEEDS.get(text.strip().lower()) or float(text)
    except ValueError:
        factor = 0.0
    if not SLOWEST <= factor <= FASTEST:
        raise UsageError(
            f"--speed is {', '.join(SPEEDS)} or a number from {SLOWEST:g} to {FASTEST:g}, not {text[:40]!r}"
        )
    return factor


@contextmanager
def _place(keep: str | None) -> Iterator[Path]:
    """Around the event loop, so that even a second Ctrl-C leaves nothing behind."""
    if keep is not None:
        directory = Path(keep).expanduser().absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            is_new = not any(directory.iterdir())
        except OSError as error:
            raise UsageError(f"{directory} cannot be a directory of the demo: {error.strerror}") from error
        if not is_new:
            raise UsageError(f"{directory} is not empty: --keep DIR names a new directory")
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="bullpen-demo-", ignore_cleanup_errors=True) as root:
        yield Path(root).resolve() / "bookshop"


class _Show:
    """One performance. `model` is the real one; without it the script plays."""

    def __init__(self, call: Call, directory: Path, settings: Settings, model: str | None, *, is_kept: bool) -> None:
        self.call = call
        self.directory = directory
        self.settings = settings
        self.model = model
        self.is_kept = is_kept
        self.goal = GOAL if model is None else f"{GOAL} {TERMS}"
        self.python = python = python_command()
        self.check = f"{python} -m unittest && {python} -m bookshop '{QUERY}'"

    async def run(self, speed: float, *, chaos: bool) -> int:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        self.call.show_if(self._draw_opening)
        progress = Progress()
        try:
            report = await self._play(progress, speed, chaos=chaos)
        except (asyncio.CancelledError, Left):
            self.call.note("stopped" + (f"; {self.directory} is kept" if self.is_kept else "; nothing is left behind"))
            return INTERRUPTED
        if not self.is_kept:
            # Where the work is would be where it was: the directory goes with this command.
            report = replace(report, workspace="")
        show_report(self.call, report, progress)
        self.call.show_if(lambda page: self._draw_proof(page, report))
        return 0 if report.succeeded else EXIT_CODES.get(report.outcome, 1)

    async def _play(self, progress: Progress, speed: float, *, chaos: bool) -> Report:
        state = self.directory / ".bullpen"
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(store_url(self.directory)))
            team = Team(store, await begin_team(store, self.goal, self.settings))
            script = write_script(state / "script.json", python=self.python, speed=speed)
            model = self.model or f"scripted:{script}"
            team.hosting = Hosting(model=model, workspace=self.directory, is_interactive=opens_console(self.call))
            if chaos:
                hanging = write_script(state / "hanging.json", python=self.python, speed=speed, hangs=True)
                await stack.enter_async_context(
                    sabotage(team, self.directory, script=script, hanging=hanging, tell=self._tell_of_kill)
                )
            job = Job(team=team, workspace=self.directory, goal=self.goal, check=self.check, model=model)
            return await told(self.call, job, progress, self.settings.budget.max_minutes)

    # -- what is told beside the news ------------------------------------------------------------------------

    def _draw_opening(self, page: Page) -> bool:
        if self.call.is_json:
            return False
        page.line(Painted("A bookshop moves from REST to GraphQL.", "bold"))
        page.field("model", self.model or "scripted: no key, no network; all else is real")
        page.field("directory", f"{self.directory} ({'kept' if self.is_kept else 'removed afterwards'})")
        found = probe()
        page.field("commands", "confined by bubblewrap" if found.works else f"not confined: {found.reason}")
        page.line("")
        return True

    def _tell_of_kill(self, kill: Kill) -> None:
        if self.call.is_json:
            self.call.show_entry({"chaos": kill._asdict()}, lambda page: None)
            return
        self.call.show_if(lambda page: _draw_kill(page, kill))

    def _draw_proof(self, page: Page, report: Report) -> bool:
        if self.call.is_json or report.check is None:
            return False
        page.line("")
        page.line(Painted(f"$ {report.check.command}", "bold"))
        page.block(report.check.tail)
        page.gap()
        if self.is_kept:
            page.field("look", f"cd {self.directory}; git status; bullpen events --team {report.team}")
        page.field("next", "`bullpen demo --chaos` kills a worker in the middle, `--live` asks a real model")
        page.field("", "`bullpen run GOAL` does work of your own")
        return True


def _draw_kill(page: Page, kill: Kill) -> bool:
    page.line(
        Painted(f"$ kill -9 {kill.pid}", "red"),
        f"   # the worker of {', '.join(kill.members)}",
        is_cut=True,
    )
    return True
