"""The report at the end of a run: what became of it, what was done by whom and how that is known, what it took."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bullpen.cli.page import Column, Page, Painted, Part
from bullpen.cli.views.cost import draw_time, money
from bullpen.cli.views.moment import duration
from bullpen.cli.views.task import state, state_of
from bullpen.domain.budget import Account
from bullpen.domain.codec import encode
from bullpen.domain.task import Evidence, Task
from bullpen.team import Outcome, Report
from bullpen.team.progress import Progress
from bullpen.team.spending import coordination_share, members_of, whole_of

_WORDS = {
    Outcome.DONE: ("done", "green"),
    Outcome.STALLED: ("stalled: nothing can go on by itself", "red"),
    Outcome.ASKS: ("waits for your answer", "yellow"),
    Outcome.BUDGET: ("stopped: the budget is spent", "yellow"),
    Outcome.TIME: ("stopped: the time is over", "yellow"),
    Outcome.STOPPED: ("stopped: everyone was asked to shut down", "yellow"),
    Outcome.ERROR: ("stopped: the model cannot be asked", "red"),
    Outcome.FAILED: ("the goal is not reached", "red"),
}
_MEMBER_COLUMNS = (
    Column("MEMBER"),
    Column("ROLE"),
    Column("TASKS"),
    Column("CALLS"),
    Column("TOKENS"),
    Column("COST"),
    Column("BUSY"),
)
SHOWN_FILES = 20
# Where no terminal sets a limit: a result is told, not quoted.
RESULT_WIDTH = 200


def draw_report(page: Page, report: Report, progress: Progress, *, now: datetime) -> None:
    page.line("")
    page.line(Painted(report.team, "bold"), ": ", _headline(report))
    for line in report.lines:
        page.block(line)
    if report.text:
        page.gap()
        page.block(report.text)
    if report.tasks:
        page.gap()
        for task in report.tasks:
            _draw_task(page, task)
    page.gap()
    _draw_members(page, report, progress, now)
    _draw_totals(page, report, progress, now)


def _headline(report: Report) -> Painted:
    if report.outcome is Outcome.DONE and not report.succeeded:
        left = [task for task in report.tasks if state_of(task) != "completed"]
        return Painted(f"ended, but {len(left)} of {len(report.tasks)} tasks are not completed", "red")
    return Painted(*_WORDS[report.outcome])


def _draw_task(page: Page, task: Task) -> None:
    parts: list[Part] = [f"#{task.id} ", task.subject, "  ", state(page, task)]
    if task.owner:
        parts += ["  ", Painted(task.owner, "dim")]
    if task.evidence is not None:
        parts += ["  ", _verdict(task.evidence)]
    page.line(*parts)
    told = " ".join((task.result or "").split())
    if told:
        width = page.terminal.width
        page.line("   ", Painted(told if width else told[:RESULT_WIDTH], "dim"), is_cut=True)


def _verdict(evidence: Evidence) -> Painted:
    if evidence.exit_code == 0:
        return Painted(f"checked: {evidence.command}", "green")
    return Painted(f"check failed (exit code {evidence.exit_code}): {evidence.command}", "red")


def _draw_members(page: Page, report: Report, progress: Progress, now: datetime) -> None:
    accounts = {account.member_key: account for account in report.accounts}
    rows: list[list[Part]] = []
    for key, member in progress.members.items():
        account = accounts.get(key)
        done = sum(task.owner == member.name and state_of(task) == "completed" for task in report.tasks)
        rows.append(
            [
                Painted(member.name, "bold"),
                member.role or "",
                str(done) if done else "",
                *_spent(account),
                duration(member.busy_until(now)),
            ]
        )
    if rows:
        page.table(_MEMBER_COLUMNS, rows)
        page.gap()


def _spent(account: Account | None) -> list[Part]:
    if account is None:
        return ["", "", ""]
    return [f"{account.calls:,}", f"{account.tokens:,}", money(account.cost_usd) if account.cost_usd else ""]


def _draw_totals(page: Page, report: Report, progress: Progress, now: datetime) -> None:
    whole = whole_of(report.accounts, 0)
    if report.check is not None:
        page.field("check", _verdict(report.check), Painted(f"  {duration(report.check.seconds)}", "dim"))
    draw_time(page, progress.hosted_until(now), progress.busy_until(now))
    page.field(
        "spent",
        # Nothing is no price: it may be that nobody knows it.
        f"{whole.tokens:,} tokens"
        + f", {money(whole.cost_usd)}" * bool(whole.cost_usd)
        + f" in {whole.calls} call{'s' * (whole.calls != 1)}",
        Painted(
            f"  {coordination_share(members_of(report.accounts)):.0%} of the tokens by the lead (coordination)", "dim"
        ),
    )
    if report.files:
        more = len(report.files) - SHOWN_FILES
        page.field("files", ", ".join(report.files[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else ""))
    if report.branch:
        page.field("work", _where(report))
    elif report.workspace:
        page.field("work", f"in {report.workspace} itself")


def _where(report: Report) -> str:
    """Where it is, and the one command that takes it."""
    place = f"{report.branch} in {report.remote}" if report.remote else report.branch
    if not report.commits:
        return f"nothing on {place} yet"
    commits = f"{report.commits} commit{'s' if report.commits > 1 else ''}"
    return f"{commits} on {place}: `bullpen diff {report.team}` shows it, `{report.taking}` takes it"


def report_document(report: Report, progress: Progress, *, now: datetime) -> Mapping[str, Any]:
    """The same for programs."""
    whole = whole_of(report.accounts, 0)
    return {
        "report": {
            **encode(report),
            "succeeded": report.succeeded,
            "apply": report.taking,
            "tokens": whole.tokens,
            "cost_usd": whole.cost_usd,
            "calls": whole.calls,
            "wall_seconds": progress.hosted_until(now),
            "busy_seconds": progress.busy_until(now),
            "coordination_share": coordination_share(report.accounts),
        }
    }
