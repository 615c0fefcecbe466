"""A submission: what a member made, in the queue of its team, until it is part of the trunk.

    queued ──> taken (by the integrator of one worker) ──> integrated | refused (back to who made it)
       ^  │                      │
       │  └──> withdrawn         └── its worker is gone
       └────────────────────────────┘

Numbers are the order of the queue. Of each team one submission at a time is taken. As long as one is open, its task
stays in progress and its owner's: the work is done, only integration is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bullpen.domain.text import name_key
from bullpen.errors import UsageError

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a member made, as git has it: `commit`, made upon `base`."""

    base: str
    commit: str


class SubmissionState(StrEnum):
    QUEUED = "queued"
    TAKEN = "taken"
    INTEGRATED = "integrated"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


OPEN = frozenset({SubmissionState.QUEUED, SubmissionState.TAKEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """`task_id` is None for what belongs to no task. `has_passed`: its check passed where it was made, on exactly
    `commit`. `integrated` is the commit of the trunk that holds it. `note` says why it was refused or withdrawn."""

    team_id: int
    id: int
    member: str
    task_id: int | None = None
    attempt: int = 0
    base: str
    commit: str
    result: str = ""
    check: str | None = None
    has_passed: bool = False
    state: SubmissionState = SubmissionState.QUEUED
    worker_id: int | None = None
    integrated: str | None = None
    note: str = ""
    submitted_at: datetime
    ended_at: datetime | None = None

    @property
    def member_key(self) -> str:
        return name_key(self.member)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def label(self) -> str:
        """What people and agents know it by."""
        return f"work of {self.member}" if self.task_id is None else f"work of {self.member} on #{self.task_id}"


def check_work(work: Work) -> None:
    for commit in (work.base, work.commit):
        check_commit(commit)


def check_commit(commit: str) -> None:
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{commit[:80]!r} names no commit: it takes all of its 40 or 64 hexadecimal digits")
