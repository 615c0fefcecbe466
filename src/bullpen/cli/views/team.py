"""Teams, their members and who is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bullpen.cli.page import Column, Page, Painted, Part
from bullpen.cli.views.moment import age, clock
from bullpen.cli.views.task import state_of
from bullpen.domain.member import Liveness, MemberKind, MemberStatus, Team
from bullpen.domain.request import Request
from bullpen.domain.task import Task, TaskStatus
from bullpen.team import Seat

MAIL_COUNTED = 1000

_STYLES = {
    MemberStatus.WANTED: "yellow",
    MemberStatus.WORKING: "cyan",
    MemberStatus.WAITING: "magenta",
    MemberStatus.STOPPING: "yellow",
    MemberStatus.SHUTDOWN: "dim",
}

TEAM_COLUMNS = (
    Column("TEAM"),
    Column("TASKS", min_width=8),
    Column("MEMBERS", min_width=7),
    Column("CREATED", min_width=8),
    Column("DELETED", min_width=8),
    Column("GOAL", is_flexible=True, min_width=12),
)
MEMBER_COLUMNS = (
    Column("MEMBER"),
    Column("ROLE"),
    Column("STATUS", min_width=10),
    Column("SINCE", min_width=6),
    Column("TASK", is_flexible=True, min_width=10),
    Column("HOST"),
)


@dataclass(frozen=True)
class TeamLine:
    team: Team
    tasks: Sequence[Task]
    members: int


@dataclass(frozen=True)
class TeamPicture:
    team: Team
    seats: Sequence[Seat]
    tasks: Sequence[Task]
    undelivered: Mapping[str, int]
    requests: Sequence[Request]

    def task_of(self, name: str) -> Task | None:
        mine = [task for task in self.tasks if task.status is TaskStatus.IN_PROGRESS and task.is_owned_by(name)]
        return mine[0] if mine else None


def count_states(tasks: Sequence[Task]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state in ("pending", "blocked", "in progress", "verifying", "integrating", "completed", "failed", "deleted"):
        number = sum(1 for task in tasks if state_of(task) == state)
        if number:
            counts[state] = number
    return counts


def draw_teams(page: Page, entries: Sequence[TeamLine]) -> None:
    if not entries:
        page.line("no teams")
        return
    now = page.terminal.now
    page.table(
        TEAM_COLUMNS,
        [
            (
                entry.team.name,
                f"{sum(task.status is TaskStatus.COMPLETED for task in entry.tasks)}/{len(entry.tasks)} done",
                str(entry.members),
                f"{age(entry.team.created_at, now)} ago",
                "" if entry.team.deleted_at is None else f"{age(entry.team.deleted_at, now)} ago (#{entry.team.id})",
                entry.team.goal,
            )
            for entry in entries
        ],
    )


def draw_team(page: Page, picture: TeamPicture) -> None:
    now = page.terminal.now
    team = picture.team
    gone = "" if team.deleted_at is None else f"  deleted {clock(team.deleted_at, now)}"
    page.line(Painted(team.name, "bold"), Painted(gone, "red"))
    if team.goal:
        page.field("goal")
        page.block(team.goal)
    if team.settings.get("paused"):
        page.field("paused", Painted("nobody asks a model until `bullpen unpause`", "yellow"))
    counts = ", ".join(f"{number} {state}" for state, number in count_states(picture.tasks).items())
    page.field("tasks", counts or "none")
    waiting = ", ".join(
        f"{name} {number}{'+' if number >= MAIL_COUNTED else ''}" for name, number in picture.undelivered.items()
    )
    page.field("unread mail", waiting or "none")
    for request in picture.requests:
        asked = f"{request.kind} {request.id}: {request.asker} asks {request.asked}"
        page.field("request", f"{asked}, {age(request.created_at, now)} ago  ", Painted(request.content, "dim"))
    page.gap()
    page.table(MEMBER_COLUMNS, [_member_row(page, picture, seat) for seat in picture.seats])


def _member_row(page: Page, picture: TeamPicture, seat: Seat) -> Sequence[Part]:
    member = seat.member
    task = picture.task_of(member.name)
    role = "" if member.role is None or member.role == member.name else member.role
    return (
        Painted(member.name, "bold"),
        role,
        member_state(seat),
        age(member.status_at, page.terminal.now),
        "" if task is None else f"#{task.id} {task.active_form or task.subject}",
        host_of(seat),
    )


def member_state(seat: Seat) -> Part:
    """Dead is told from idle: it follows from the host, not from the row."""
    member = seat.member
    if member.kind is MemberKind.USER:
        return ""
    if seat.is_dead:
        return Painted(f"dead, was {member.status}", "red")
    reason = f" ({member.status_reason})" if member.status is MemberStatus.SHUTDOWN and member.status_reason else ""
    return Painted(f"{member.status}{reason}", _STYLES.get(member.status, ""))


def host_of(seat: Seat) -> Part:
    if seat.member.kind is MemberKind.USER or seat.member.status is MemberStatus.SHUTDOWN:
        return ""
    if seat.worker is None:
        return Painted("nobody", "yellow")
    where = f"{seat.worker.host}:{seat.worker.pid}"
    return f"{where} (?)" if seat.liveness is Liveness.UNKNOWN else where
