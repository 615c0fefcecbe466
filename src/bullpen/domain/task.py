"""A task on the board: its states, who may change it, and when it can be claimed.

    pending ──claim──> in_progress ──complete──> completed
       ^  ^                │  │
       │  └────release─────┘  └──fail──> failed
       └──────────────retry (lead)─────────┘        any state ──delete──> deleted

The lead may also complete or fail a pending task, and give one in progress to
another owner, for whom it is pending.

A blocker holds its dependents back until it is completed or deleted: a failed
one keeps them blocked. `open_blockers` counts the blockers that still do; the
store keeps it, so that a claim never has to look at edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

from bullpen.domain.text import name_key, normalise_role
from bullpen.errors import AlreadyClaimed, Conflict, CycleRefused, NotAllowed, UsageError


class TaskStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    DELETED = "deleted"


TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.PENDING: frozenset(
        {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.DELETED}
    ),
    TaskStatus.IN_PROGRESS: frozenset(
        {TaskStatus.PENDING, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.DELETED}
    ),
    TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.DELETED}),
    TaskStatus.COMPLETED: frozenset({TaskStatus.DELETED}),
    TaskStatus.DELETED: frozenset(),
}

# A dependent waits for a blocker in any other state.
RELEASES_DEPENDENTS = frozenset({TaskStatus.COMPLETED, TaskStatus.DELETED})
# The board has nothing left to do when every task is in one of these.
FINISHED = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a check showed: kept with the task, whether it passed or not."""

    command: str
    exit_code: int
    tail: str = ""
    seconds: float = 0.0
    checked_at: datetime | None = None
    commit: str | None = None

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What whoever had the task before left behind when it went back to the board."""

    by: str
    at: datetime
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    team_id: int
    id: int
    subject: str
    description: str = ""
    active_form: str = ""
    status: TaskStatus = TaskStatus.PENDING
    owner: str | None = None
    role: str | None = None
    check: str | None = None
    files: tuple[str, ...] = ()
    """What it is to touch: see `domain.files`."""
    result: str | None = None
    evidence: Evidence | None = None
    attempt: int = 0
    """How often its check was begun or work on it was queued: what belongs to an older attempt counts no more."""
    verifying: bool = False
    """Its check runs."""
    submission: int | None = None
    """The work on it waits to be integrated, under this number: see `domain.submission`."""
    commit: str | None = None
    """The commit of the trunk with which the work on it got there."""
    blocked_by: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    open_blockers: int = 0
    created_by: str = ""
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    reserved_until: datetime | None = None
    """Nobody hosts its owner any more; until then nobody else gets the task."""
    handovers: tuple[Handover, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What a stored task has beyond these fields: kept as it is."""

    @property
    def role_key(self) -> str:
        return normalise_role(self.role)

    @property
    def owner_key(self) -> str | None:
        return None if self.owner is None else name_key(self.owner)

    def is_owned_by(self, name: str) -> bool:
        return self.owner_key == name_key(name)


def commit_of(task: Task) -> str | None:
    """The commit that shows the work on it: that of the trunk, or else the one on which its check ran."""
    return task.commit or (None if task.evidence is None else task.evidence.commit)


class _Unset(Enum):
    UNSET = "unset"


UNSET = _Unset.UNSET
"""Leave the field as it is (None would empty it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanges:
    """What `update_task` changes. Status has verbs of its own: claim, complete, fail, release, retry, delete."""

    subject: str | _Unset = UNSET
    description: str | _Unset = UNSET
    active_form: str | _Unset = UNSET
    owner: str | _Unset | None = UNSET
    role: str | _Unset | None = UNSET
    check: str | _Unset | None = UNSET
    files: tuple[str, ...] | _Unset = UNSET
    add_blocked_by: tuple[int, ...] = ()
    remove_blocked_by: tuple[int, ...] = ()
    add_blocks: tuple[int, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """The plain fields that are set, without owner and edges."""
        names = ("subject", "description", "active_form", "role", "check", "files")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not UNSET}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A check that may be run now; its verdict counts only for this attempt and this text."""

    task_id: int
    attempt: int
    check: str


def is_claimable(task: Task, *, name: str, role: str | None) -> bool:
    """Pending, without open blockers, and assigned to the claimer, or nobody's and its role absent or the claimer's."""
    return why_not_claimable(task, name=name, role=role) is None


def why_not_claimable(task: Task, *, name: str, role: str | None) -> str | None:
    """One line for the loser of a claim, or None if there is no reason against it."""
    if task.status is TaskStatus.IN_PROGRESS:
        return f"#{task.id} is already in progress, owned by {task.owner}"
    if task.status is not TaskStatus.PENDING:
        return f"#{task.id} is {task.status}"
    if task.owner is not None and not task.is_owned_by(name):
        return f"#{task.id} is assigned to {task.owner}"
    if task.open_blockers:
        return f"#{task.id} is blocked by {format_ids(task.blocked_by)}, {task.open_blockers} unfinished"
    # Whoever assigned it could have changed the role too: an assigned task is its owner's next, whatever the role.
    if task.owner is None and task.role_key and task.role_key != normalise_role(role):
        return f"#{task.id} is for role {task.role!r}, {name} is {role or 'without a role'!r}"
    return None


def check_claimable(task: Task, *, name: str, role: str | None) -> None:
    reason = why_not_claimable(task, name=name, role=role)
    if reason is not None:
        raise AlreadyClaimed(f"{reason}; take another task")


def check_transition(task: Task, to: TaskStatus, *, name: str, leads: bool) -> None:
    """Is the step legal, and is it this member's to take? Raises Conflict or NotAllowed."""
    if to not in TRANSITIONS[task.status]:
        cannot = "already" if task.status is to else f"and cannot become {to}"
        raise Conflict(f"#{task.id} is {task.status} {cannot}{_way_out(task)}")
    if leads:
        return
    if to is TaskStatus.DELETED:
        if name_key(task.created_by) != name_key(name):
            raise NotAllowed(f"#{task.id} was created by {task.created_by}: only they or the lead delete it")
    elif task.status is TaskStatus.FAILED:
        raise NotAllowed(f"#{task.id} has failed: only the lead may have it tried again")
    elif not task.is_owned_by(name):
        raise NotAllowed(
            f"#{task.id} belongs to {task.owner or 'nobody yet'}: only its owner or the lead "
            "completes, fails or releases it"
        )
    elif task.status is TaskStatus.PENDING:
        raise NotAllowed(f"#{task.id} is not in progress: claim it first")


def _way_out(task: Task) -> str:
    if task.status is TaskStatus.COMPLETED:
        return "; create a new task for what is still to be done"
    if task.status is TaskStatus.FAILED:
        return "; set it to pending to have it tried again"
    return ""


def check_edge(blocker: int, dependent: int, path: list[int] | None) -> None:
    """Refuse an edge that makes a task wait for itself; `path` leads from blocker to dependent, if one does.

    The path follows "is blocked by": the blocker waits for path[1], and so on down to the dependent.
    """
    if blocker == dependent:
        raise CycleRefused(f"#{dependent} cannot block itself")
    if path:
        ring = " -> ".join(f"#{step}" for step in [dependent, *path])
        raise CycleRefused(
            f"#{dependent} cannot wait for #{blocker}, that closes a cycle: {ring} (each waits for the next)"
        )


def parse_task_id(text: str | int) -> int:
    """`3`, `"3"` and `"#3"` are the same task."""
    if isinstance(text, int) and not isinstance(text, bool):
        number = text
    else:
        digits = str(text).strip().removeprefix("#")
        if not (digits.isascii() and digits.isdigit()):
            raise UsageError(f"{str(text)[:40]!r} is not a task number; write 3 or #3")
        number = int(digits[:20])
    if not 0 < number < 2**53:
        raise UsageError(f"{number} is not a task number; they begin at 1")
    return number


def parse_task_status(text: str) -> TaskStatus:
    """Any case, `in progress` and `in-progress` too; `done` and `open` are what people type."""
    word = text.strip().casefold().replace("-", "_").replace(" ", "_")
    word = {"done": "completed", "complete": "completed", "open": "pending"}.get(word, word)
    try:
        return TaskStatus(word)
    except ValueError:
        allowed = ", ".join(TaskStatus)
        raise UsageError(f"{text[:40]!r} is not a task status; one of {allowed}") from None


def format_ids(ids: tuple[int, ...]) -> str:
    return ", ".join(f"#{number}" for number in ids) or "nothing"
