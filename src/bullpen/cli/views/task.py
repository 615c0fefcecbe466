"""A task, and the board."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bullpen.cli.page import Column, Page, Painted, Part
from bullpen.cli.views.moment import age, clock
from bullpen.domain.files import find_overlaps, overlap_text
from bullpen.domain.task import FINISHED, RELEASES_DEPENDENTS, Evidence, Task, TaskStatus, commit_of, format_ids

# What is shown: a symbol and a colour.
_LOOKS = {
    "pending": ("○", ""),
    "blocked": ("⊘", "yellow"),
    "in progress": ("●", "cyan"),
    "verifying": ("◌", "magenta"),
    "integrating": ("◍", "magenta"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "deleted": ("-", "dim"),
}

COLUMNS = (
    Column("#", min_width=4),
    Column("STATUS", min_width=11),
    Column("OWNER"),
    Column("ROLE"),
    Column("SUBJECT", is_flexible=True, min_width=12),
    Column("BLOCKERS"),
)


def state_of(task: Task) -> str:
    """Its status as people read it: blocked, verifying and integrating are states of their own."""
    if task.status is TaskStatus.PENDING and task.open_blockers:
        return "blocked"
    if task.verifying:
        return "verifying"
    if task.submission is not None:
        return "integrating"
    return task.status.replace("_", " ")


def state(page: Page, task: Task) -> Painted:
    word = state_of(task)
    symbol, style = _LOOKS[word]
    return Painted(f"{symbol} {word}" if page.terminal.has_symbols else word, style)


def draw_board(page: Page, tasks: Sequence[Task], others: Mapping[int, Task]) -> None:
    """`others` are the tasks that may block those shown."""
    if not tasks:
        page.line("no tasks")
        return
    page.table(
        COLUMNS,
        [
            (
                f"#{task.id}",
                state(page, task),
                task.owner or "",
                task.role or "",
                Painted(task.subject, "dim") if task.status is TaskStatus.DELETED else task.subject,
                _waits_for(task, others),
            )
            for task in tasks
        ],
    )


def _waits_for(task: Task, others: Mapping[int, Task]) -> Part:
    if not task.open_blockers:
        return Painted(_overlap(task, others.values()), "dim")
    waiting = [others[number] for number in task.blocked_by if number in others]
    still = [blocker for blocker in waiting if blocker.status not in RELEASES_DEPENDENTS]
    words = [f"#{each.id} failed" if each.status is TaskStatus.FAILED else f"#{each.id}" for each in still]
    # A failed blocker never gives way by itself: somebody has to act.
    has_failed = any(each.status is TaskStatus.FAILED for each in still)
    return Painted(", ".join(words), "red" if has_failed else "")


def _overlap(task: Task, others: Iterable[Task]) -> str:
    """Whose files it would touch, if somebody is just changing them."""
    return "" if task.status in FINISHED else overlap_text(find_overlaps(task, others))


def draw_line(page: Page, task: Task) -> None:
    """What has become of it, in one line."""
    owner = f", {task.owner}" if task.owner else ""
    page.line(f"#{task.id} ", task.subject, "  ", state(page, task), Painted(owner, "dim"))


def draw_task(page: Page, task: Task, blockers: Sequence[Task], busy: Sequence[Task]) -> None:
    """Everything, with what its blockers hand over. `busy` are the tasks in progress."""
    now = page.terminal.now
    page.line(Painted(f"#{task.id} ", "bold"), Painted(task.subject, "bold"))
    page.field("status", state(page, task), Painted(_since(task, page), "dim"))
    if task.active_form and task.status is TaskStatus.IN_PROGRESS:
        page.field("doing", task.active_form)
    page.field("owner", task.owner or Painted("nobody", "dim"))
    if task.role:
        page.field("role", task.role)
    if task.check:
        page.field("check", task.check)
    if task.files:
        page.field("files", ", ".join(task.files))
    if overlap := _overlap(task, busy):
        page.field("", Painted(overlap, "yellow"))
    page.field("created", f"{clock(task.created_at, now)} by {task.created_by}")
    if task.reserved_until is not None:
        page.field("reserved", f"until {clock(task.reserved_until, now)} for {task.owner}, who lost its host")
    if task.blocks:
        page.field("blocks", format_ids(task.blocks))
    _text(page, "description", task.description)
    for blocker in blockers:
        _draw_blocker(page, blocker)
    _text(page, "result", task.result or "")
    if task.commit:
        page.field("commit", task.commit)
    if task.evidence is not None:
        _draw_evidence(page, task.evidence)
    for handover in task.handovers:
        page.gap()
        page.field("hand-over", f"from {handover.by}, {clock(handover.at, now)}")
        page.block(handover.note)


def _since(task: Task, page: Page) -> str:
    moment = task.finished_at or task.claimed_at
    if moment is None:
        return ""
    attempt = f", check attempt {task.attempt}" if task.verifying else ""
    return f"  since {clock(moment, page.terminal.now)} ({age(moment, page.terminal.now)}){attempt}"


def _text(page: Page, label: str, content: str) -> None:
    if content.strip():
        page.gap()
        page.field(label)
        page.block(content)


def _draw_blocker(page: Page, blocker: Task) -> None:
    page.gap()
    by = Painted(f", {blocker.owner}" if blocker.owner else "", "dim")
    page.field("blocker", f"#{blocker.id} ", blocker.subject, "  ", state(page, blocker), by)
    if blocker.result:
        page.block(blocker.result)
    if commit := commit_of(blocker):
        page.block(f"commit {commit}")


def _draw_evidence(page: Page, evidence: Evidence) -> None:
    page.gap()
    verdict = Painted("passed", "green") if evidence.passed else Painted(f"exit code {evidence.exit_code}", "red")
    when = "" if evidence.checked_at is None else f", {clock(evidence.checked_at, page.terminal.now)}"
    commit = f", commit {evidence.commit}" if evidence.commit else ""
    page.field("evidence", verdict, f" after {evidence.seconds:.1f} s{when}{commit}: ", evidence.command)
    if evidence.tail:
        page.block(evidence.tail)
