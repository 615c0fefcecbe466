"""How a team stands: moving, done, stalled, or waiting for the human. Judged from one snapshot, never from hints.

- *done*: the lead rests with an empty inbox, and there is no unfinished task, no open
  request, nothing running, nothing to integrate and nobody at work.
- *stalled*: unfinished tasks, work to integrate, a question to a member or mail to the lead, and nothing left that
  could finish, answer or read one by itself. A question that has been read and has no deadline is answered by nobody
  who rests.
- *asks*: nothing moves before the human answers.
- anything else *moves*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bullpen.domain.budget import BUDGET_SPENT
from bullpen.domain.member import LEAD, USER, Autonomy, Member, MemberKind, MemberStatus, Team
from bullpen.domain.message import Message
from bullpen.domain.request import Request, RequestKind, digest_of
from bullpen.domain.submission import Submission
from bullpen.domain.task import FINISHED, Task, TaskStatus, format_ids

_AT_WORK = frozenset({MemberStatus.WORKING, MemberStatus.STOPPING})


class Verdict(StrEnum):
    MOVES = "moves"
    DONE = "done"
    STALLED = "stalled"
    ASKS = "asks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`tasks`: every one that is not deleted. `has_host`: some worker takes members, `can_host`: and has room for
    another teammate, `unhostable`: the keys of members whose labels none of them has. `mail_for`: the keys of
    members with undelivered waking mail. `question`: the lead's last word to the human, if the human has not written
    to it since."""

    team: Team
    members: tuple[Member, ...]
    tasks: tuple[Task, ...]
    requests: tuple[Request, ...]
    mail_for: frozenset[str]
    running: int
    has_host: bool
    can_host: bool
    unhostable: frozenset[str] = frozenset()
    question: Message | None
    submissions: tuple[Submission, ...] = ()
    """Those that are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """`digest` is the same as long as the state is; `lines` say who waits for whom."""

    verdict: Verdict
    digest: str
    lines: tuple[str, ...] = ()


def judge(snapshot: Snapshot) -> Standing:
    unfinished = [task for task in snapshot.tasks if task.status not in FINISHED]
    digest = _digest(snapshot)
    if _something_moves(snapshot, unfinished):
        return Standing(verdict=Verdict.MOVES, digest=digest)
    asked = [request for request in snapshot.requests if request.asked_key == USER]
    question = snapshot.question
    if asked or (question is not None and "?" in question.content):
        lines = [f"request {request.id} of {request.asker}: {request.content}" for request in asked]
        if question is not None and not asked:
            lines.append(f"{question.sender} asks: {question.content}")
        return Standing(verdict=Verdict.ASKS, digest=digest, lines=tuple(lines))
    unanswered = [request for request in snapshot.requests if request.asked_key != USER]
    if unfinished or unanswered or snapshot.submissions or LEAD in snapshot.mail_for:
        lines = [
            f"request {one.id} ({one.kind}) of {one.asker} waits for an answer of {one.asked}" for one in unanswered
        ]
        lines += [f"the {one.label} waits to be integrated, and no worker is there" for one in snapshot.submissions]
        if LEAD in snapshot.mail_for:
            lines.append("mail waits for the lead, whom nobody hosts")
        lines += [_why(snapshot, task) for task in unfinished[:50]]
        return Standing(verdict=Verdict.STALLED, digest=digest, lines=tuple(lines))
    return Standing(verdict=Verdict.DONE, digest=digest)


def _something_moves(snapshot: Snapshot, unfinished: Sequence[Task]) -> bool:
    living = [member for member in snapshot.members if _is_there(member, snapshot)]
    keys = {member.key for member in living}
    return (
        any(member.status in _AT_WORK for member in living)
        or any(member.status is MemberStatus.WANTED for member in living)
        or snapshot.running > 0
        or (snapshot.has_host and bool(snapshot.submissions))
        or any(request.asked_key in keys and request.open_until is not None for request in snapshot.requests)
        or bool(keys & snapshot.mail_for)
        or any(_may_claim(member, task) for member in _takers(living, unfinished) for task in unfinished)
        or any(_is_about_to_begin(member, unfinished) for member in living)
    )


def _is_there(member: Member, snapshot: Snapshot) -> bool:
    """It acts, or will without anybody's doing."""
    if member.kind is MemberKind.USER or member.status_reason.startswith(BUDGET_SPENT):
        return False
    if member.status is MemberStatus.WANTED or member.can_be_revived:
        has_room = snapshot.has_host if member.kind is MemberKind.LEAD else snapshot.can_host
        return has_room and member.key not in snapshot.unhostable
    return member.worker_id is not None


def _is_about_to_begin(member: Member, unfinished: Sequence[Task]) -> bool:
    """Seen idle between two steps of its loop: a task was just claimed, a prompt is there to be read, or its next work
    phase is open already."""
    if member.status is not MemberStatus.IDLE or member.kind not in (MemberKind.LEAD, MemberKind.TEAMMATE):
        return False
    if member.counters.get("phase"):
        return True
    for task in unfinished:
        if task.status is TaskStatus.IN_PROGRESS and task.owner_key == member.key:
            return bool(member.counters.get("held") != task.id)
    return has_unread_prompt(member) and not any(_may_become_its(member, task) for task in unfinished)


def has_unread_prompt(member: Member) -> bool:
    return bool(member.prompt.strip()) and member.counters.get("briefed") != digest_of(member.prompt)


def _takers(living: Sequence[Member], unfinished: Sequence[Task]) -> list[Member]:
    """Who holds a task takes no other one, and who waits for an answer takes none."""
    holders = {task.owner_key for task in unfinished if task.status is TaskStatus.IN_PROGRESS}
    return [
        member
        for member in living
        if member.kind is not MemberKind.LEAD and member.key not in holders and not member.counters.get("waits")
    ]


def _may_claim(member: Member, task: Task) -> bool:
    return not task.open_blockers and _may_become_its(member, task)


def _may_become_its(member: Member, task: Task) -> bool:
    if task.status is not TaskStatus.PENDING:
        return False
    if task.owner is not None:
        return task.owner_key == member.key
    return member.autonomy is Autonomy.AUTO and task.role_key in ("", member.role_key)


def _why(snapshot: Snapshot, task: Task) -> str:
    """Who or what this task waits for."""
    by_id = {other.id: other for other in snapshot.tasks}
    by_key = {member.key: member for member in snapshot.members}
    if task.status is TaskStatus.IN_PROGRESS:
        owner = by_key.get(task.owner_key or "")
        state = (
            "is gone"
            if owner is None
            else f"is {owner.status}" + (f" ({owner.status_reason})" * bool(owner.status_reason))
        )
        if task.submission is not None:
            state = "has done its part"
        return f"#{task.id} {task.subject}: held by {task.owner}, who {state}"
    if task.open_blockers:
        blockers = [number for number in task.blocked_by if number in by_id and by_id[number].status not in FINISHED]
        failed = [number for number in task.blocked_by if number in by_id and by_id[number].status is TaskStatus.FAILED]
        if failed:
            return f"#{task.id} {task.subject}: blocked by {format_ids(tuple(failed))}, which failed"
        return f"#{task.id} {task.subject}: blocked by {format_ids(tuple(blockers))}"
    if task.owner is not None:
        return f"#{task.id} {task.subject}: assigned to {task.owner}, who is not there"
    if task.role and not any(member.role_key == task.role_key for member in snapshot.members):
        return f"#{task.id} {task.subject}: needs the role {task.role}, which nobody has"
    return f"#{task.id} {task.subject}: nobody is there who may take it"


def _digest(snapshot: Snapshot) -> str:
    return digest_of(
        [
            [
                [task.id, task.status, task.owner, task.attempt, task.open_blockers, task.role]
                for task in snapshot.tasks
            ],
            [[member.key, member.status, member.role] for member in snapshot.members if member.key != LEAD],
            [request.id for request in snapshot.requests if request.kind is not RequestKind.SHUTDOWN],
            [submission.id for submission in snapshot.submissions],
        ]
    )
