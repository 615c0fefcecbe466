"""The report at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bullpen.cli.page import Column, Page, Painted
from bullpen.cli.views.task import state_of
from bullpen.domain.codec import encode
from bullpen.domain.task import Task
from bullpen.team import Outcome, Report
from bullpen.team.progress import Progress

_WORDS = {
    Outcome.DONE: ("done", "green"),
    Outcome.STALLED: ("stalled: nothing can go on by itself", "red"),
    Outcome.ASKS: ("waits for your answer", "yellow"),
    Outcome.BUDGET: ("stopped: the budget is spent", "yellow"),
    Outcome.TIME: ("stopped: the time is over", "yellow"),
    Outcome.ERROR: ("stopped: the model cannot be asked", "red"),
    Outcome.FAILED: ("the check failed: the goal is not reached", "red"),
}

_TASK_COLUMNS = (
    Column("TASK"),
    Column("STATUS"),
    Column("BY"),
    Column("EVIDENCE"),
    Column("SUBJECT", is_flexible=True, min_width=12),
)
_MEMBER_COLUMNS = (
    Column("MEMBER"),
    Column("ROLE"),
    Column("TASKS"),
    Column("TURNS"),
    Column("TOKENS"),
    Column("COST"),
    Column("BUSY"),
)


def draw_report(page: Page, report: Report, progress: Progress, *, now: datetime) -> None:
    words, style = _WORDS[report.outcome]
    page.gap()
    page.line(Painted(f"{report.team}: {words}", style))
    for line in report.lines:
        page.block(line)
    if report.text:
        page.gap()
        page.block(report.text)
    if report.tasks:
        page.gap()
        page.table(_TASK_COLUMNS, [_task_row(task) for task in report.tasks])
    page.gap()
    _draw_members(page, report, progress, now)
    _draw_totals(page, report, progress, now)


def _task_row(task: Task) -> list[str | Painted]:
    state = state_of(task)
    style = {"completed": "green", "failed": "red"}.get(state, "yellow")
    evidence = "" if task.evidence is None else f"check exit {task.evidence.exit_code}"
    return [f"#{task.id}", Painted(state, style), task.owner or "", evidence, task.subject]


def _draw_members(page: Page, report: Report, progress: Progress, now: datetime) -> None:
    rows = []
    for member in progress.members.values():
        done = sum(task.owner == member.name and state_of(task) == "completed" for task in report.tasks)
        rows.append(
            [
                member.name,
                member.role or "",
                str(done) if done else "",
                str(member.calls),
                f"{member.tokens:,}",
                f"${member.cost_usd:.4f}" if member.cost_usd else "",
                f"{member.busy_until(now):.0f} s",
            ]
        )
    if rows:
        page.table(_MEMBER_COLUMNS, rows)
        page.gap()


def _draw_totals(page: Page, report: Report, progress: Progress, now: datetime) -> None:
    busy = sum(member.busy_until(now) for member in progress.members.values())
    wall = report.seconds
    page.field(
        "time", f"{wall:.1f} s", Painted(f"  busy {busy:.1f} s = {busy / wall:.1f} at a time" * bool(wall), "dim")
    )
    page.field(
        "spent",
        f"{progress.tokens:,} tokens, ${progress.cost_usd:.4f} in {progress.calls} calls",
        Painted(f"  {progress.coordination_share:.0%} of the tokens by the lead (coordination)", "dim"),
    )
    if report.files:
        page.field(
            "files", ", ".join(report.files[:20]) + (f" and {len(report.files) - 20} more" * (len(report.files) > 20))
        )


def report_document(report: Report, progress: Progress, *, now: datetime) -> Mapping[str, Any]:
    """The same for programs."""
    return {
        "report": {
            **encode(report),
            "succeeded": report.succeeded,
            "tokens": progress.tokens,
            "cost_usd": progress.cost_usd,
            "calls": progress.calls,
            "busy_seconds": sum(member.busy_until(now) for member in progress.members.values()),
            "coordination_share": progress.coordination_share,
        }
    }
