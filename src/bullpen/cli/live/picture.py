"""How a team stands, in a few lines: who does what, the board, what it costs. For 2 members or 20, at 80 columns."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from bullpen.cli.page import Page, Painted, Part
from bullpen.domain.member import LEAD, MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.team.progress import LEFT_IN_ORDER, MemberProgress, Progress

# How a work phase ends when all is well.
_USUAL = ("no_tool_use", "idle_tool")
# More than these, and members that do nothing are only counted.
SHOWN_MEMBERS = 8

_MARKS = {
    MemberStatus.WORKING: ("●", "cyan"),
    MemberStatus.IDLE: ("○", "dim"),
    MemberStatus.WAITING: ("◐", "magenta"),
    MemberStatus.WANTED: ("◌", "yellow"),
    MemberStatus.STOPPING: ("◍", "yellow"),
    MemberStatus.SHUTDOWN: ("·", "dim"),
}


def draw_picture(page: Page, progress: Progress, *, now: datetime, budget_usd: float | None = None) -> None:
    members = sorted(progress.members.values(), key=lambda member: (member.name != LEAD, member.name))
    shown, hidden = _choose(members)
    for member in shown:
        page.line(*_member_parts(member, progress, page.terminal.has_symbols), is_cut=True)
    if hidden:
        page.line(Painted(f"  and {len(hidden)} more: {_counts(hidden)}", "dim"), is_cut=True)
    page.line(*_totals(progress, now, budget_usd), is_cut=True)


def _choose(members: list[MemberProgress]) -> tuple[list[MemberProgress], list[MemberProgress]]:
    there = [member for member in members if member.status != MemberStatus.SHUTDOWN]
    gone = [member for member in members if member.status == MemberStatus.SHUTDOWN]
    busy = sorted(there, key=lambda member: (member.name != LEAD, member.status == MemberStatus.IDLE, member.name))
    return busy[:SHOWN_MEMBERS], busy[SHOWN_MEMBERS:] + gone


def _counts(members: Iterable[MemberProgress]) -> str:
    by_status: dict[str, int] = {}
    for member in members:
        by_status[member.status] = by_status.get(member.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(by_status.items()))


def _member_parts(member: MemberProgress, progress: Progress, has_symbols: bool) -> list[Part]:
    mark, style = _MARKS.get(MemberStatus(member.status), ("?", ""))
    doing: Part
    if member.status == MemberStatus.WORKING:
        doing = member.tool or Painted("thinks", "dim")
    else:
        doing = Painted(_resting(member), "dim")
    task = progress.tasks.get(member.task) if member.task is not None else None
    on: Part = Painted(f"  #{task.id} {task.subject}{' (check)' if task.is_verifying else ''}", "cyan") if task else ""
    return [
        Painted(mark if has_symbols else member.status[0], style),
        " ",
        Painted(f"{member.name:<10}", "bold"),
        " ",
        Painted(f"{member.role or '':<10}", "dim"),
        " ",
        doing,
        on,
    ]


def _resting(member: MemberProgress) -> str:
    """How it rests, and why if that says something."""
    if member.status == MemberStatus.WANTED and member.reason == LEFT_IN_ORDER:
        return "rests"
    is_usual = not member.reason or member.reason in _USUAL
    return member.status if is_usual else f"{member.status} ({member.reason})"


def _totals(progress: Progress, now: datetime, budget_usd: float | None) -> list[Part]:
    done, failed = progress.count(TaskStatus.COMPLETED), progress.count(TaskStatus.FAILED)
    running, pending = progress.count(TaskStatus.IN_PROGRESS), progress.count(TaskStatus.PENDING)
    total = done + failed + running + pending
    cost = f"${progress.cost_usd:.2f}" + (f" of ${budget_usd:g}" if budget_usd else "")
    minutes, seconds = divmod(int(progress.hosted_until(now)), 60)
    parts: list[Part] = [Painted(f"{done}/{total} tasks", "green" if total and done == total else "bold")]
    if failed:
        parts += [", ", Painted(f"{failed} failed", "red")]
    if running:
        parts.append(f", {running} in progress")
    parts.append(
        f" · {progress.messages} messages · {_short(progress.tokens)} tokens · {cost} · {minutes}:{seconds:02d}"
    )
    if progress.is_paused:
        parts += [" · ", Painted("paused", "yellow")]
    if progress.requests:
        parts += [" · ", Painted(f"{len(progress.requests)} waiting for an answer", "yellow")]
    return parts


def _short(number: int) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f}M"
    return f"{number / 1_000:.1f}k" if number >= 1_000 else str(number)
