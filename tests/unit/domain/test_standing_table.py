"""How a team stands, judged from one snapshot: every row is a state that a real team can be in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bullpen.domain.member import Autonomy, Member, MemberKind, MemberStatus, Team
from bullpen.domain.message import Message, MessageType, Origin
from bullpen.domain.request import Request, RequestKind
from bullpen.domain.standing import Snapshot, Verdict, judge
from bullpen.domain.task import Task, TaskStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEAM = Team(id=1, name="crew", created_at=NOW)


def member(name: str, status: MemberStatus = MemberStatus.IDLE, **rest: Any) -> Member:
    kind = {"lead": MemberKind.LEAD, "user": MemberKind.USER}.get(name, MemberKind.TEAMMATE)
    hosted = {"worker_id": 1} if kind is not MemberKind.USER else {}
    return Member(team_id=1, name=name, kind=kind, status=status, created_at=NOW, status_at=NOW, **{**hosted, **rest})


def task(number: int, status: TaskStatus = TaskStatus.PENDING, **rest: Any) -> Task:
    return Task(
        team_id=1, id=number, subject="t", status=status, created_by="lead", created_at=NOW, updated_at=NOW, **rest
    )


def request(asked: str) -> Request:
    return Request(
        team_id=1, id=1, kind=RequestKind.PERMISSION, asker="ana", asked=asked, content="may I?", created_at=NOW
    )


def question(content: str) -> Message:
    return Message(
        team_id=1,
        id=1,
        type=MessageType.MESSAGE,
        sender="lead",
        recipient="user",
        content=content,
        origin=Origin.AGENT,
        sent_at=NOW,
    )


QUIET = Snapshot(
    team=TEAM,
    members=(member("lead"), member("user"), member("ana", role="tester")),
    tasks=(),
    requests=(),
    mail_for=frozenset(),
    running=0,
    can_host=True,
    has_host=True,
    question=None,
)
GONE: dict[str, Any] = {"worker_id": None, "status": MemberStatus.SHUTDOWN}


def with_ana(**changes: Any) -> tuple[Member, ...]:
    return (*QUIET.members[:2], replace(QUIET.members[2], **changes))


@pytest.mark.parametrize(
    ("what", "changes", "verdict"),
    [
        ("nothing is left", {}, Verdict.DONE),
        (
            "everything is finished",
            {"tasks": (task(1, TaskStatus.COMPLETED), task(2, TaskStatus.FAILED))},
            Verdict.DONE,
        ),
        ("one works", {"members": with_ana(status=MemberStatus.WORKING)}, Verdict.MOVES),
        ("one is wanted", {"members": with_ana(status=MemberStatus.WANTED, worker_id=None)}, Verdict.MOVES),
        (
            "one is wanted, and nobody can host it",
            {"members": with_ana(status=MemberStatus.WANTED, worker_id=None), "can_host": False, "tasks": (task(1),)},
            Verdict.STALLED,
        ),
        ("a command runs", {"running": 1}, Verdict.MOVES),
        ("mail waits for one who lives", {"mail_for": frozenset({"ana"})}, Verdict.MOVES),
        ("mail waits for one who is gone", {"members": with_ana(**GONE), "mail_for": frozenset({"ana"})}, Verdict.DONE),
        (
            "mail waits for the lead, and nobody hosts it",
            {
                "members": (member("lead", MemberStatus.WANTED, worker_id=None), *QUIET.members[1:]),
                "has_host": False,
                "can_host": False,
                "mail_for": frozenset({"lead"}),
            },
            Verdict.STALLED,
        ),
        (
            "the lead rests, and nobody hosts it",
            {
                "members": (member("lead", MemberStatus.WANTED, worker_id=None), *QUIET.members[1:]),
                "has_host": False,
                "can_host": False,
            },
            Verdict.DONE,
        ),
        ("a member is asked and has read it", {"requests": (request("ana"),)}, Verdict.STALLED),
        ("a member is asked, with a deadline", {"requests": (replace(request("ana"), open_until=NOW),)}, Verdict.MOVES),
        (
            "a member is asked and has not read it",
            {"requests": (request("ana"),), "mail_for": frozenset({"ana"})},
            Verdict.MOVES,
        ),
        ("the human is asked", {"requests": (request("user"),)}, Verdict.ASKS),
        ("the lead asks the human", {"question": question("Which port?")}, Verdict.ASKS),
        ("the lead has told the human", {"question": question("All done.")}, Verdict.DONE),
        ("one may take a task", {"tasks": (task(1),)}, Verdict.MOVES),
        (
            "one timed out and is revived by a task",
            {"members": with_ana(**GONE, status_reason="timeout"), "tasks": (task(1),)},
            Verdict.MOVES,
        ),
        ("nobody has the role", {"tasks": (task(1, role="cook"),)}, Verdict.STALLED),
        (
            "it is assigned to one who is gone",
            {"members": with_ana(**GONE), "tasks": (task(1, owner="ana"),)},
            Verdict.STALLED,
        ),
        (
            "one takes only what is assigned",
            {"members": with_ana(autonomy=Autonomy.ASSIGNED), "tasks": (task(1),)},
            Verdict.STALLED,
        ),
        (
            "a failed task blocks the rest",
            {"tasks": (task(1, TaskStatus.FAILED), task(2, blocked_by=(1,), open_blockers=1))},
            Verdict.STALLED,
        ),
        (
            "an idle member holds its task",
            {"members": with_ana(counters={"held": 1}), "tasks": (task(1, TaskStatus.IN_PROGRESS, owner="ana"),)},
            Verdict.STALLED,
        ),
    ],
)
def test_a_team_stands_as(what: str, changes: dict[str, Any], verdict: Verdict) -> None:
    assert judge(replace(QUIET, **changes)).verdict is verdict


@pytest.mark.parametrize(
    ("tasks", "line"),
    [
        ((task(1, role="cook"),), "#1 t: needs the role cook, which nobody has"),
        (
            (task(1, TaskStatus.FAILED), task(2, blocked_by=(1,), open_blockers=1)),
            "#2 t: blocked by #1, which failed",
        ),
        ((task(1, TaskStatus.IN_PROGRESS, owner="ana"),), "#1 t: held by ana, who is idle"),
        ((task(1, owner="bob"),), "#1 t: assigned to bob, who is not there"),
    ],
)
def test_a_stall_says_who_waits_for_whom(tasks: tuple[Task, ...], line: str) -> None:
    resting = with_ana(counters={"held": 1})
    assert line in judge(replace(QUIET, members=resting, tasks=tasks)).lines


def test_the_same_state_has_the_same_digest_and_a_change_another() -> None:
    stalled = replace(QUIET, tasks=(task(1, role="cook"),))
    assert judge(stalled).digest == judge(replace(stalled, mail_for=frozenset({"x"}))).digest
    changed = replace(QUIET, tasks=(task(1, role="baker"),))
    assert judge(stalled).digest != judge(changed).digest
