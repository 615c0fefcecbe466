"""A member of a team, and what an incarnation is.

    wanted ──host──> working <──> idle          working/idle ──> waiting (for an answer) ──> working
       ^                │          │
       │              stopping <───┴── shutdown request accepted
       │                │
       └── revive ── shutdown (asked, timeout, finished, …)

Whether a member is dead or alive is never stored: it follows from the lease of
the worker that hosts it. The incarnation grows each time the member is started
or declared dead. Every write of a member carries a `MemberRef` with its
incarnation; an old one is refused with `LeaseLost`, so two loops under one name
can never both write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from bullpen.domain.text import name_key, normalise_role
from bullpen.errors import UsageError

LEAD = "lead"
USER = "user"
SYSTEM = "system"
MAX_SECONDS = 10 * 365 * 86400.0
# What a team remembers beside its settings, among them.
WORKSPACE = "workspace"
"""Where it was run last."""
BEGAN_IN = "began_in"
"""Where its board was begun, before anybody has decided how it works."""


class MemberKind(StrEnum):
    LEAD = "lead"
    TEAMMATE = "teammate"
    EXTERNAL = "external"
    USER = "user"


class MemberStatus(StrEnum):
    WANTED = "wanted"
    WORKING = "working"
    IDLE = "idle"
    WAITING = "waiting"
    STOPPING = "stopping"
    SHUTDOWN = "shutdown"


_LIVING = frozenset({MemberStatus.WORKING, MemberStatus.IDLE, MemberStatus.WAITING})

MEMBER_TRANSITIONS: Mapping[MemberStatus, frozenset[MemberStatus]] = {
    MemberStatus.WANTED: frozenset({MemberStatus.WORKING, MemberStatus.STOPPING, MemberStatus.SHUTDOWN}),
    MemberStatus.WORKING: _LIVING | {MemberStatus.STOPPING, MemberStatus.SHUTDOWN, MemberStatus.WANTED},
    MemberStatus.IDLE: _LIVING | {MemberStatus.STOPPING, MemberStatus.SHUTDOWN, MemberStatus.WANTED},
    MemberStatus.WAITING: _LIVING | {MemberStatus.STOPPING, MemberStatus.SHUTDOWN, MemberStatus.WANTED},
    # A status write that raced with a shutdown must not erase it.
    MemberStatus.STOPPING: frozenset({MemberStatus.SHUTDOWN}),
    MemberStatus.SHUTDOWN: frozenset({MemberStatus.WANTED, MemberStatus.WORKING}),
}


class Autonomy(StrEnum):
    AUTO = "auto"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class MemberRef:
    """Who writes: carried by every verb of a member and checked in its transaction."""

    team_id: int
    name: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    team_id: int
    name: str
    kind: MemberKind
    role: str | None = None
    status: MemberStatus
    status_reason: str = ""
    incarnation: int = 0
    worker_id: int | None = None
    model: str | None = None
    prompt: str = ""
    autonomy: Autonomy = Autonomy.AUTO
    labels: tuple[str, ...] = ()
    """What a worker must have to host it, such as `gpu`."""
    plan_required: bool = False
    plan_digest: str | None = None
    shutdown_request_id: int | None = None
    workspace: str | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    status_at: datetime
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return name_key(self.name)

    @property
    def role_key(self) -> str:
        return normalise_role(self.role)

    @property
    def ref(self) -> MemberRef:
        return MemberRef(self.team_id, self.name, self.incarnation)

    @property
    def leads(self) -> bool:
        """The human has at least the rights of the lead."""
        return self.kind in (MemberKind.LEAD, MemberKind.USER)

    @property
    def is_up(self) -> bool:
        return self.status in _LIVING

    @property
    def can_be_revived(self) -> bool:
        """Timed out, and somebody can host it: mail or a task brings it back with its memory."""
        return (
            self.kind is MemberKind.TEAMMATE
            and self.status is MemberStatus.SHUTDOWN
            and self.status_reason == "timeout"
        )


class Liveness(StrEnum):
    """What an observer can say of a worker at once, without waiting for its lease."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """What `spawn_member` did: created, revived, delivered (to an idle loop) or queued (as mail)."""

    member: Member
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """A member and its team as they are now, and whether mail waits for it, waking or not."""

    member: Member
    team: Team
    has_mail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that hosts members and holds the lease for them.

    `id` and `token` are never used again: a process that was declared dead registers anew.
    The token names what proves its life (a lock held as long as the process lives).
    """

    id: int
    token: str
    host: str
    boot_id: str
    pid: int
    slots: int = 0
    labels: tuple[str, ...] = ()
    lease_seconds: float = 15.0
    renewals: int = 0
    started_at: datetime
    renewed_at: datetime
    stopped_at: datetime | None = None
    stop_reason: str = ""
    schema_min: int = 1
    schema_max: int = 1

    def may_host(self, team_id: int, labels: Collection[str] = ()) -> bool:
        """Does it take members of that team who want these labels, if a slot is free? Some host only their own."""
        teams = [label for label in self.labels if is_team_label(label)]
        return self.slots > 0 and (not teams or team_label(team_id) in teams) and set(labels) <= set(self.labels)

    @property
    def is_lost(self) -> bool:
        """Its members say that it hosts them, and that is all that is known of it: nothing can prove its life."""
        return not self.token

    @property
    def is_promise(self) -> bool:
        """Room that a runner promises, in workers that it would start: it takes nobody itself."""
        return any(label.startswith(_RUNNER_LABEL) for label in self.labels)

    @property
    def is_of_run(self) -> bool:
        """Does it belong to somebody who runs a team, and judges when that is over? It is no `bullpen worker` then."""
        return RUN_LABEL in self.labels


_TEAM_LABEL = "team="
_RUNNER_LABEL = "runner="
RUN_LABEL = "by=run"
"""With a `=`, as that of a team: no member can ask for it."""
LABEL_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def team_label(team_id: int) -> str:
    """The label of a worker that hosts members of this team only."""
    return f"{_TEAM_LABEL}{team_id}"


def runner_label(name: str) -> str:
    """The label of a promise of this runner."""
    return f"{_RUNNER_LABEL}{name}"


def is_team_label(label: str) -> bool:
    return label.startswith(_TEAM_LABEL)


def check_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The same, in lower case, sorted, each once; UsageError for what is none."""
    for label in labels:
        if not LABEL_PATTERN.fullmatch(label):
            raise UsageError(f"{label[:40]!r} is no label: letters, digits, '.', '_' and '-', such as gpu")
    return tuple(sorted({label.lower() for label in labels}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """`id` is the team; a deleted team keeps it, and a new one of the same name is another team."""

    id: int
    name: str
    generation: int = 1
    goal: str = ""
    next_task_id: int = 1
    next_request_id: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime
    deleted_at: datetime | None = None

    @property
    def key(self) -> str:
        return name_key(self.name)

    @property
    def workspace(self) -> str | None:
        """Where it was run last, or else began, as its first machine names it."""
        last = self.settings.get(WORKSPACE) or self.settings.get(BEGAN_IN)
        return last if isinstance(last, str) else None

    def number_setting(self, name: str, default: float) -> float:
        """Whatever somebody wrote there: a lapse must not fail because of a setting."""
        value = self.settings.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS
        return float(value) if is_number else default  # type: ignore[arg-type]
