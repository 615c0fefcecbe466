"""How a team stands, in a few lines: the board and what it costs, then who does what.

For 2 members or 20, at 80 columns or 40: what does not fit is said shorter, who does nothing is only named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from bullpen.cli import text
from bullpen.cli.page import Page, Painted, Part
from bullpen.domain.member import LEAD, MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.team.progress import LEFT_IN_ORDER, MemberProgress, Progress

# More than these, and the others are only named.
SHOWN_MEMBERS = 8
MAX_NAME = 12
ROLE_FROM_WIDTH = 72
SHORTEST_TITLE = 8
RULE_WIDTH = 6
"""Two dashes before the title, one after it, and the blanks between."""
PLAIN_WIDTH = 100
"""Where nobody says how wide the terminal is."""

_MARKS = {
    MemberStatus.WORKING: ("●", "cyan"),
    MemberStatus.IDLE: ("○", "dim"),
    MemberStatus.WAITING: ("◐", "magenta"),
    MemberStatus.WANTED: ("◌", "yellow"),
    MemberStatus.STOPPING: ("◍", "yellow"),
    MemberStatus.SHUTDOWN: ("·", "dim"),
}
# How a work phase ends when all is well.
_USUAL = ("no_tool_use", "idle_tool")
_RESTING = (MemberStatus.IDLE, MemberStatus.SHUTDOWN)
# Who acts comes first.
_PLACES: Mapping[str, int] = {MemberStatus.IDLE: 1, MemberStatus.SHUTDOWN: 2}


def draw_picture(
    page: Page,
    progress: Progress,
    *,
    now: datetime,
    budget_usd: float | None = None,
    title: str | None = None,
    members_shown: int = SHOWN_MEMBERS,
) -> None:
    _draw_rule(page, progress.team if title is None else title, progress, progress.hosted_until(now), budget_usd)
    apart, together = _choose(list(progress.members.values()), members_shown)
    for member in apart:
        _draw_member(page, member, apart, progress)
    if together:
        page.line(*_counted(page, together), is_cut=True)


# -- the rule: what it is called, how far it is, what it costs ----------------------------------------------------


def _draw_rule(page: Page, title: str, progress: Progress, seconds: float, budget_usd: float | None) -> None:
    width, line = page.terminal.width or PLAIN_WIDTH, "─" if page.terminal.has_symbols else "-"
    title = text.one_line(title)
    least = min(text.width_of(title), SHORTEST_TITLE)
    totals = next(
        (
            parts
            for detail, title_width in ((3, text.width_of(title)), (2, text.width_of(title)), (1, least))
            if _width(parts := _totals(progress, seconds, budget_usd, detail)) + title_width + RULE_WIDTH <= width
        ),
        _totals(progress, seconds, None, 0),
    )
    title = text.cut(title, max(width - _width(totals) - RULE_WIDTH, 1))
    rest = max(width - text.width_of(title) - _width(totals) - RULE_WIDTH + 1, 1)
    page.line(
        Painted(line * 2, "dim"),
        " ",
        Painted(title, "bold"),
        " ",
        Painted(line * rest, "dim"),
        " ",
        *totals,
        is_cut=True,
    )


def _width(parts: Sequence[Part]) -> int:
    return sum(text.width_of(part.text if isinstance(part, Painted) else part) for part in parts)


def _totals(progress: Progress, seconds: float, budget_usd: float | None, detail: int) -> list[Part]:
    """From 3, everything in words, down to 0, the least that tells."""
    done, failed = progress.count(TaskStatus.COMPLETED), progress.count(TaskStatus.FAILED)
    running, pending = progress.count(TaskStatus.IN_PROGRESS), progress.count(TaskStatus.PENDING)
    total = done + failed + running + pending
    minutes, rest = divmod(int(seconds), 60)
    parts: list[Part] = []
    if total:
        tasks = f"{done}/{total}" + (" tasks" if detail > 1 else "")
        parts += [Painted(tasks, "green" if done == total else "bold"), " · "]
    if failed:
        parts += [Painted(f"{failed} failed" if detail > 1 else f"{failed}✗", "red"), " · "]
    if progress.is_paused:
        parts += [Painted("paused", "yellow"), " · "]
    if running and detail > 2:
        parts.append(f"{running} in progress · ")
    cost = f"${progress.cost_usd:.2f}" + (f" of ${budget_usd:g}" if budget_usd and detail > 1 else "")
    tokens = f"{_short(progress.tokens)} tokens · " if detail > 1 else f"{_short(progress.tokens)} · " * detail
    hours, minutes = divmod(minutes, 60)
    elapsed = f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
    return [*parts, f"{tokens}{cost} · {elapsed}"]


def _short(number: int) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f}M"
    return f"{number / 1_000:.1f}k" if number >= 1_000 else str(number)


# -- who does what ----------------------------------------------------------------------------------------------


def _choose(
    members: list[MemberProgress], room: int
) -> tuple[list[MemberProgress], list[tuple[str, list[MemberProgress]]]]:
    """Who gets a line, and who is only named, by status. The lead first, then who does something."""
    members.sort(key=lambda one: (one.name != LEAD, _PLACES.get(one.status, 0), one.name.casefold()))
    apart = [member for member in members if member.name == LEAD or member.status not in _RESTING][: max(room, 1)]
    by_status: dict[str, list[MemberProgress]] = {}
    for member in members:
        if member not in apart:
            by_status.setdefault(member.status, []).append(member)
    return apart, list(by_status.items())


def _counted(page: Page, together: Sequence[tuple[str, Sequence[MemberProgress]]]) -> list[Part]:
    parts: list[Part] = []
    for status, members in together:
        names = ", ".join(member.name for member in members)
        parts += [_mark(page, status), Painted(f" {len(members)} {_say(status)}: {names}   ", "dim")]
    return parts


def _mark(page: Page, status: str) -> Painted:
    mark, style = _MARKS.get(MemberStatus(status), ("?", ""))
    return Painted(mark if page.terminal.has_symbols else status[0], style)


def _say(status: str) -> str:
    return {MemberStatus.SHUTDOWN: "shut down", MemberStatus.WORKING: "more at work"}.get(MemberStatus(status), status)


def _draw_member(page: Page, member: MemberProgress, shown: Sequence[MemberProgress], progress: Progress) -> None:
    width = page.terminal.width or PLAIN_WIDTH
    name_width = min(max(text.width_of(other.name) for other in shown), MAX_NAME)
    role_width = min(max(text.width_of(other.role or "") for other in shown), MAX_NAME)
    parts: list[Part] = [
        _mark(page, member.status),
        " ",
        Painted(text.pad(text.cut(member.name, name_width), name_width), "bold"),
    ]
    if role_width and width >= ROLE_FROM_WIDTH:
        parts += [" ", Painted(text.pad(text.cut(text.one_line(member.role or ""), role_width), role_width), "dim")]
    task = progress.tasks.get(member.task) if member.task is not None else None
    room = width - _width(parts) - 2
    if task is not None:
        room = max(room * 2 // 5, 8)
    parts += ["  ", _doing(member, room, is_padded=task is not None)]
    if task is not None:
        step = " (check)" if task.is_verifying else " (integrating)" if task.is_integrating else ""
        parts += ["  ", Painted(f"#{task.id} {task.subject}{step}", "cyan")]
    page.line(*parts, is_cut=True)


def _resting(member: MemberProgress) -> str:
    """How it rests, and why if that says something."""
    if member.status == MemberStatus.WANTED and member.reason == LEFT_IN_ORDER:
        return "rests"
    is_usual = not member.reason or member.reason in _USUAL
    return _say(member.status) if is_usual else f"{_say(member.status)} ({member.reason})"


def _doing(member: MemberProgress, room: int, *, is_padded: bool) -> Part:
    if member.status == MemberStatus.WORKING:
        words, style = (text.one_line(member.tool), "") if member.tool else ("thinks", "dim")
    else:
        words, style = text.one_line(_resting(member)), "dim"
    shown = text.cut(words, room)
    return Painted(text.pad(shown, room) if is_padded else shown, style)
