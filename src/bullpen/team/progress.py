"""What is going on in a team, folded from its log: what every live view shows and the report counts.

Pure. Fed with the same events it says the same, whoever looks and whenever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import MemberStatus
from bullpen.domain.task import TaskStatus
from bullpen.domain.text import name_key

LEFT_IN_ORDER = "its worker stopped"
"""The reason of a lapse that was none: its process left, and whoever comes next goes on."""


@dataclass(slots=True)
class MemberProgress:
    name: str
    role: str | None = None
    status: str = MemberStatus.WANTED
    reason: str = ""
    task: int | None = None
    tool: str = ""
    """What it runs just now; empty while it thinks."""
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    busy_seconds: float = 0.0
    busy_since: datetime | None = None
    last_at: datetime | None = None
    """When it was last heard of."""

    def busy_until(self, moment: datetime) -> float:
        if self.busy_since is None:
            return self.busy_seconds
        return self.busy_seconds + max((moment - self.busy_since).total_seconds(), 0.0)


@dataclass(slots=True)
class TaskProgress:
    id: int
    subject: str
    status: str = TaskStatus.PENDING
    owner: str | None = None
    is_verifying: bool = False
    is_integrating: bool = False
    claimed_at: datetime | None = None


@dataclass(slots=True)
class RequestProgress:
    id: int
    kind: str
    asker: str
    asked: str
    text: str


class Progress:
    def __init__(self) -> None:
        self.team = ""
        self.goal = ""
        self.members: dict[str, MemberProgress] = {}
        self.tasks: dict[int, TaskProgress] = {}
        self.requests: dict[int, RequestProgress] = {}
        self.messages = 0
        self.is_deleted = False
        self.is_paused = False
        self._hosted: set[str] = set()
        self._hosted_since: datetime | None = None
        self._hosted_seconds = 0.0
        self.began_at: datetime | None = None
        self.last_at: datetime | None = None
        self.position = ""
        """Of the last event that was followed."""

    @property
    def tokens(self) -> int:
        return sum(member.tokens for member in self.members.values())

    @property
    def cost_usd(self) -> float:
        return sum(member.cost_usd for member in self.members.values())

    @property
    def calls(self) -> int:
        return sum(member.calls for member in self.members.values())

    def count(self, status: TaskStatus) -> int:
        return sum(task.status == status for task in self.tasks.values())

    def busy_until(self, moment: datetime) -> float:
        """Of all members together: what busy time against wall time compares with `hosted_until`."""
        return sum(member.busy_until(moment) for member in self.members.values())

    def hosted_until(self, moment: datetime) -> float:
        """How long somebody was hosted: the wall time of all runs."""
        if self._hosted_since is None:
            return self._hosted_seconds
        return self._hosted_seconds + max((moment - self._hosted_since).total_seconds(), 0.0)

    def follow(self, event: Event) -> None:
        """One more event. Kinds that are not known here change nothing."""
        self.began_at = self.began_at or event.at
        self.last_at = event.at
        self.position = event.position
        change = _CHANGES.get(event.kind)
        if change is not None:
            change(self, event, event.data)
        if (known := self.members.get(name_key(event.actor))) is not None:
            known.last_at = event.at

    def member(self, name: str) -> MemberProgress:
        return self.members.setdefault(name_key(name), MemberProgress(name))

    def task(self, data: Mapping[str, Any]) -> TaskProgress:
        number = int(data["task"])
        return self.tasks.setdefault(number, TaskProgress(number, str(data.get("subject", ""))))

    def set_status(self, name: str, status: str, at: datetime, reason: str = "") -> MemberProgress:
        member = self.member(name)
        member.busy_seconds, member.busy_since = member.busy_until(at), None
        member.status, member.reason = status, reason
        self._note_hosting(name_key(name), status, at)
        if status == MemberStatus.WORKING:
            member.busy_since = at
        else:
            member.tool = ""
        return member

    def _note_hosting(self, key: str, status: str, at: datetime) -> None:
        if status not in (MemberStatus.WANTED, MemberStatus.SHUTDOWN):
            self._hosted.add(key)
            self._hosted_since = self._hosted_since or at
            return
        self._hosted.discard(key)
        if not self._hosted and self._hosted_since is not None:
            self._hosted_seconds, self._hosted_since = self.hosted_until(at), None


# -- what each event changes -------------------------------------------------------------------------------


def _team(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.team = str(data.get("name", progress.team))
    progress.goal = str(data.get("goal") or progress.goal)


def _team_changed(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.goal = str(data.get("goal") or progress.goal)
    settings = data.get("settings") or {}
    progress.is_paused = bool(settings.get("paused", progress.is_paused))


def _team_deleted(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.is_deleted = True


def _spawned(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    member = progress.member(data["member"])
    member.role = data.get("role") or member.role


def _joined(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    _spawned(progress, event, data)
    _hosted(progress, event, data)


def _hosted(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.set_status(data["member"], MemberStatus.WORKING, event.at)


def _wanted(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.set_status(data["member"], MemberStatus.WANTED, event.at, data.get("reason", ""))


def _status(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.set_status(data["member"], data["status"], event.at, data.get("reason", ""))


def _shut_down(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.set_status(data["member"], MemberStatus.SHUTDOWN, event.at, data.get("reason", ""))


def _lapsed(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    member, reason = progress.member(data["member"]), data.get("reason", "")
    # One who died was busy until it was last heard of, not until somebody noticed.
    until = event.at if reason == LEFT_IN_ORDER else member.last_at or event.at
    progress.set_status(member.name, data.get("status", MemberStatus.WANTED), until, reason)


def _task_created(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    task = progress.task(data)
    # Another program may have made it in any state, which is told with it.
    task.status, task.owner = data.get("status", task.status), data.get("owner")


def _task_changed(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    task = progress.task(data)
    task.subject = data.get("subject", task.subject)
    if "status" in data:
        # By another program, on a board of files.
        _task_assigned(progress, event, data)


def _task_claimed(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    task = progress.task(data)
    task.status, task.owner, task.claimed_at = TaskStatus.IN_PROGRESS, data.get("owner"), event.at
    task.is_verifying = False
    if task.owner:
        progress.member(task.owner).task = task.id


def _task_to(status: TaskStatus) -> Any:
    def change(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
        task = progress.task(data)
        if task.owner:
            owner = progress.member(task.owner)
            owner.task = None if owner.task == task.id else owner.task
        task.status, task.is_verifying, task.is_integrating = status, False, False
        task.owner = None if status is TaskStatus.PENDING else data.get("owner", task.owner)

    return change


_task_pending = _task_to(TaskStatus.PENDING)


def _task_assigned(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    """It is pending for its new owner, whoever was at work on it."""
    _task_pending(progress, event, data)
    progress.task(data).owner = data.get("owner")


def _check_started(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.task(data).is_verifying = True


def _check_finished(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.task(data).is_verifying = False


def _work_submitted(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    if "task" in data:
        progress.task(data).is_integrating = True


def _work_ended(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    if "task" in data:
        progress.task(data).is_integrating = False


def _message(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.messages += 1


def _call_started(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    about = data.get("about")
    progress.member(event.actor).tool = f"{data['tool']} {about}" if about else str(data["tool"])


def _call_finished(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.member(event.actor).tool = ""


def _answered(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    member = progress.member(data["member"])
    member.calls += 1
    member.tokens += int(data.get("input_tokens", 0)) + int(data.get("output_tokens", 0))
    member.cost_usd += float(data.get("cost_usd", 0.0))


def _request_opened(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    number = int(data["request"])
    progress.requests[number] = RequestProgress(
        number, str(data["request_kind"]), str(data["asker"]), str(data["asked"]), str(data.get("text", ""))
    )


def _request_closed(progress: Progress, event: Event, data: Mapping[str, Any]) -> None:
    progress.requests.pop(int(data["request"]), None)


_CHANGES: Mapping[str, Any] = {
    EventKind.TEAM_CREATED: _team,
    EventKind.TEAM_RENAMED: _team,
    EventKind.TEAM_CHANGED: _team_changed,
    EventKind.TEAM_DELETED: _team_deleted,
    EventKind.MEMBER_SPAWNED: _spawned,
    EventKind.MEMBER_JOINED: _joined,
    EventKind.MEMBER_WANTED: _wanted,
    EventKind.MEMBER_HOSTED: _hosted,
    EventKind.MEMBER_STATUS_CHANGED: _status,
    EventKind.MEMBER_SHUT_DOWN: _shut_down,
    EventKind.MEMBER_LAPSED: _lapsed,
    EventKind.TASK_CREATED: _task_created,
    EventKind.TASK_CHANGED: _task_changed,
    EventKind.TASK_CLAIMED: _task_claimed,
    EventKind.TASK_ASSIGNED: _task_assigned,
    EventKind.TASK_RELEASED: _task_pending,
    EventKind.TASK_RETRIED: _task_pending,
    EventKind.TASK_RESERVED: _check_finished,
    EventKind.TASK_COMPLETED: _task_to(TaskStatus.COMPLETED),
    EventKind.TASK_FAILED: _task_to(TaskStatus.FAILED),
    EventKind.TASK_DELETED: _task_to(TaskStatus.DELETED),
    EventKind.TASK_CHECK_STARTED: _check_started,
    EventKind.TASK_CHECK_FINISHED: _check_finished,
    EventKind.WORK_SUBMITTED: _work_submitted,
    EventKind.WORK_INTEGRATED: _work_ended,
    EventKind.WORK_REFUSED: _work_ended,
    EventKind.WORK_WITHDRAWN: _work_ended,
    EventKind.MESSAGE_SENT: _message,
    EventKind.TOOL_CALL_STARTED: _call_started,
    EventKind.TOOL_CALL_FINISHED: _call_finished,
    EventKind.MODEL_ANSWERED: _answered,
    EventKind.REQUEST_OPENED: _request_opened,
    EventKind.REQUEST_CLOSED: _request_closed,
}
