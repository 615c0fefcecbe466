"""The team's log: past-tense facts, written in the transaction that made them true.

Terminal, dashboard, traces, tests and `wait` conditions read this and nothing
else. Readers tolerate kinds they do not know. `position` is opaque: compare it
with nothing, hand it back to read on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    TEAM_CREATED = "TeamCreated"
    TEAM_RENAMED = "TeamRenamed"
    TEAM_CHANGED = "TeamChanged"
    TEAM_DELETED = "TeamDeleted"
    WORKER_LAPSED = "WorkerLapsed"
    WORKER_STOPPED = "WorkerStopped"
    MEMBER_SPAWNED = "MemberSpawned"
    MEMBER_JOINED = "MemberJoined"
    MEMBER_WANTED = "MemberWanted"
    MEMBER_HOSTED = "MemberHosted"
    MEMBER_STATUS_CHANGED = "MemberStatusChanged"
    MEMBER_SHUT_DOWN = "MemberShutDown"
    MEMBER_LAPSED = "MemberLapsed"
    MEMBER_INTERRUPTED = "MemberInterrupted"
    COMPACTION_WANTED = "CompactionWanted"
    TASK_CREATED = "TaskCreated"
    TASK_CHANGED = "TaskChanged"
    TASK_ASSIGNED = "TaskAssigned"
    TASK_CLAIMED = "TaskClaimed"
    TASK_PASSED_OVER = "TaskPassedOver"
    TASK_RELEASED = "TaskReleased"
    TASK_RESERVED = "TaskReserved"
    TASK_CHECK_STARTED = "TaskCheckStarted"
    TASK_CHECK_FINISHED = "TaskCheckFinished"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    TASK_RETRIED = "TaskRetried"
    TASK_DELETED = "TaskDeleted"
    TASK_UNBLOCKED = "TaskUnblocked"
    TASK_QUARANTINED = "TaskQuarantined"
    MESSAGE_SENT = "MessageSent"
    MESSAGE_DELIVERED = "MessageDelivered"
    MESSAGE_QUARANTINED = "MessageQuarantined"
    REQUEST_OPENED = "RequestOpened"
    REQUEST_CLOSED = "RequestClosed"
    TURN_RECORDED = "TurnRecorded"
    TOOL_CALL_STARTED = "ToolCallStarted"
    TOOL_CALL_FINISHED = "ToolCallFinished"
    PHASE_ENDED = "PhaseEnded"
    WORK_SUBMITTED = "WorkSubmitted"
    WORK_TAKEN = "WorkTaken"
    WORK_RELEASED = "WorkReleased"
    WORK_INTEGRATED = "WorkIntegrated"
    WORK_REFUSED = "WorkRefused"
    WORK_WITHDRAWN = "WorkWithdrawn"
    HOOK_REFUSED = "HookRefused"
    FILE_WRITTEN_OUTSIDE = "FileWrittenOutside"
    BACKGROUND_STARTED = "BackgroundStarted"
    BACKGROUND_ENDED = "BackgroundEnded"
    MODEL_ANSWERED = "ModelAnswered"
    BUDGET_REFUSED = "BudgetRefused"
    BUDGET_WARNED = "BudgetWarned"
    BUDGET_WRITTEN_OFF = "BudgetWrittenOff"


OBSERVED = frozenset({EventKind.HOOK_REFUSED, EventKind.FILE_WRITTEN_OUTSIDE})
"""What a runtime sees in the world; every other fact is made true by the verb that records it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    team_id: int
    position: str
    kind: str
    at: datetime
    actor: str
    data: Mapping[str, Any] = field(default_factory=dict)
