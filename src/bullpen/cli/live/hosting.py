"""A team hosted by this process: told as it goes, ended in good order, and reported.

Ctrl-C once: the steps under way are finished, then everyone rests. Twice: the process ends at once, which is
no worse than any other death of a host.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bullpen.cli.call import Call
from bullpen.cli.live.news import draw_news
from bullpen.cli.terminal import can_converse, remember_screen, remember_terminal
from bullpen.cli.views.report import draw_report, report_document
from bullpen.domain.event import EventKind
from bullpen.domain.member import USER
from bullpen.domain.submission import SubmissionState
from bullpen.domain.trunk import Trunk
from bullpen.errors import RunnerUnavailable
from bullpen.team import Outcome, Report, Team
from bullpen.team.progress import Progress
from bullpen.team.run import Hosting, Runner

EXIT_CODES = {Outcome.ASKS: 4, Outcome.ERROR: 3}
INTERRUPTED = 130
# How long the last lines of the log are waited for before the report is printed.
LAST_NEWS_SECONDS = 5.0


class Left(Exception):
    """The human has left, otherwise than by a signal; what was hosted has come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`goal` is empty for a team that goes on. `check` decides whether it is reached. `runner`: whose workers host it,
    if not this process; `runner_words`: how that is typed."""

    team: Team
    workspace: Path
    goal: str
    check: str | None
    model: str
    runner: Runner | None = None
    runner_words: tuple[str, ...] = ()

    @property
    def needs_judge(self) -> bool:
        """Is there something that only whoever runs it sees to?"""
        return self.check is not None or bool(self.team.record.settings.get("budget", {}).get("max_minutes"))


async def host(call: Call, job: Job, *, max_minutes: float | None) -> int:
    """The exit code."""
    team = job.team
    has_console = opens_console(call)
    team.hosting = Hosting(model=job.model, workspace=job.workspace, is_interactive=has_console, runner=job.runner)
    # A team that goes on has a past, which has been told; the console tells its end once more.
    progress = Progress() if job.goal or has_console else await team.get_progress()
    with ending_on_signals(call, team):
        try:
            report = await told(call, job, progress, max_minutes)
        except (asyncio.CancelledError, Left):
            call.note(f"{team.name} rests, nothing is lost: `{_resuming(job)}` goes on{await so_far(team)}")
            return INTERRUPTED
        except RunnerUnavailable as error:
            raise RunnerUnavailable(f"{error}; nothing is lost: `{_resuming(job)}` goes on") from error
    if call.is_json or report.outcome is not Outcome.ERROR or progress.tokens:
        # Else nothing has happened yet: why is said in one line.
        show_report(call, report, progress)
    return say_how_to_go_on(call, report, progress)


def _resuming(job: Job) -> str:
    return " ".join(("bullpen resume", job.team.name, *job.runner_words))


async def so_far(team: Team) -> str:
    """Where what was made until now is, if there is something, and not in the user's own files."""
    trunk = Trunk.of(team.record.settings)
    if trunk is None or not await _has_integrated(team):
        return ""
    name = team.name
    return f"; `bullpen diff {name}` shows what is on {trunk.branch} so far, `{trunk.taking(name)}` takes it"


async def _has_integrated(team: Team) -> bool:
    """As the store knows it: a repository elsewhere may be away just now."""
    submissions = await team.store.list_submissions(team.id)
    return any(submission.state is SubmissionState.INTEGRATED for submission in submissions)


def opens_console(call: Call) -> bool:
    return can_converse() and not call.is_json


async def told(call: Call, job: Job, progress: Progress, max_minutes: float | None) -> Report:
    """Run it as `job.team.hosting` says, and tell what happens, on the console or in lines. Left if the human goes."""
    return await (_on_console if opens_console(call) else _told_in_lines)(call, job, progress, max_minutes)


@contextmanager
def ending_on_signals(call: Call, team: Team) -> Iterator[None]:
    """While inside, Ctrl-C or SIGTERM cancels this task; a second one ends the process. So does a terminal that is
    closed, however often that is said; who was started with nohup stays."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_ending = False
    give_back, take_its_place, errors = remember_terminal(), remember_screen(), sys.stderr

    def end() -> None:
        nonlocal is_ending
        if is_ending:
            # A console that is still shown would keep the terminal, and what is printed.
            give_back()
            sys.stderr = errors
            call.note(f"left at once: `bullpen resume {team.name}` goes on")
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        is_ending = True
        call.note("resting after the steps under way; Ctrl-C again ends it at once")
        task.cancel()

    def hang_up(*_: object) -> None:
        # Not in the loop's next turn: whoever prints until then would fail.
        take_its_place()
        loop.call_soon_threadsafe(lambda: None if is_ending else end())

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before or signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


# -- on a terminal -----------------------------------------------------------------------------------------------


async def _on_console(call: Call, job: Job, progress: Progress, max_minutes: float | None) -> Report:
    from bullpen.cli.live.console import Console

    console = Console(job.team, progress)
    assert job.team.hosting is not None
    job.team.hosting.on_text = console.hear
    return await console.during(job.team.run(job.goal, max_minutes=max_minutes, check=job.check))


# -- told in lines -----------------------------------------------------------------------------------------------


async def _told_in_lines(call: Call, job: Job, progress: Progress, max_minutes: float | None) -> Report:
    try:
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(_tell(call, job.team, progress))
            report = await job.team.run(job.goal, max_minutes=max_minutes, check=job.check)
            await _until_told(job.team, progress)
            telling.cancel()
    except BaseExceptionGroup as group_of_one:
        # Whoever read the lines is gone, or the store: the other part has been cancelled and has come to rest.
        raise group_of_one.exceptions[0] from None
    return report


async def _tell(call: Call, team: Team, progress: Progress) -> None:
    async with aclosing(team.follow_events(after=progress.position)) as log:  # type: ignore[type-var]
        async for event in log:
            progress.follow(event)
            if event.kind == EventKind.TEAM_RENAMED:
                # The hints at the end speak of it by this name.
                team.record = await team.store.get_team(team.id)
            if call.is_json:
                call.show_entry(event, lambda page: None)
            else:
                call.show_if(lambda page, event=event: draw_news(page, event, progress))  # type: ignore[misc]


async def _until_told(team: Team, progress: Progress) -> None:
    """Whatever was written is told before the report; but the report is not held up by others who go on writing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_NEWS_SECONDS), team.store.listen_events(team.id) as bell:
            while progress.position != await team.store.last_position(team.id):
                bell.clear()
                await bell.wait(0.02)


# -- the end -------------------------------------------------------------------------------------------------------


def show_report(call: Call, report: Report, progress: Progress) -> None:
    now = datetime.now(UTC)
    call.show_entry(
        report_document(report, progress, now=now), lambda page: draw_report(page, report, progress, now=now)
    )


def say_how_to_go_on(call: Call, report: Report, progress: Progress) -> int:
    """The exit code."""
    name = report.team
    hints = {
        Outcome.ASKS: f"answer with {_how_to_answer(name, progress)}, then `bullpen resume {name}` goes on",
        Outcome.BUDGET: f"`bullpen resume {name} {_larger(report)}` goes on with a larger one",
        Outcome.TIME: f"`bullpen resume {name}` goes on",
        Outcome.STOPPED: f"`bullpen resume {name}` goes on",
        Outcome.ERROR: f"{' '.join(report.lines)} - set it right, then `bullpen resume {name}` goes on, "
        "--model MODEL with another",
        Outcome.STALLED: f"`bullpen chat --team {name}` talks with the lead",
        Outcome.FAILED: f"`bullpen chat --team {name}` talks with the lead",
    }
    if report.outcome in hints:
        call.note(hints[report.outcome])
    return 0 if report.succeeded else EXIT_CODES.get(report.outcome, 1)


def _larger(report: Report) -> str:
    """The option for the limit that was in the way."""
    return "--max-tokens N" if any("max_tokens" in line for line in report.lines) else "--max-cost USD"


def _how_to_answer(name: str, progress: Progress) -> str:
    asked = [request.id for request in progress.requests.values() if request.asked == USER]
    if not asked:
        return f"`bullpen send lead TEXT --team {name}`"
    return " and ".join(f"`bullpen approve {number} --team {name}` or `reject`" for number in asked)
