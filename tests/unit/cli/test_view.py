"""What people are told of mail, members, moments and events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bullpen.cli.page import Painted
from bullpen.cli.views.event import facts_of
from bullpen.cli.views.mail import NOBODY, receipt_text
from bullpen.cli.views.moment import age
from bullpen.cli.views.team import host_of, member_state
from bullpen.domain.event import Event
from bullpen.domain.member import Liveness, Member, MemberKind, MemberStatus, Worker
from bullpen.domain.message import Message, MessageType, Origin, Receipt
from bullpen.team import Seat

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKER = Worker(id=1, token="t", host="box", boot_id="b", pid=7, started_at=NOW, renewed_at=NOW)


def seat(
    status: MemberStatus, *, kind: MemberKind = MemberKind.TEAMMATE, liveness: Liveness | None = None, reason: str = ""
) -> Seat:
    member = Member(
        team_id=1, name="ana", kind=kind, status=status, status_reason=reason, created_at=NOW, status_at=NOW
    )
    return Seat(member=member, worker=None if liveness is None else WORKER, liveness=liveness)


def receipt(outcome: str) -> Receipt:
    message = Message(
        team_id=1,
        id=12,
        type=MessageType.MESSAGE,
        sender="user",
        recipient="ana",
        content="hi",
        origin=Origin.HUMAN,
        sent_at=NOW,
    )
    return Receipt(message=message, outcome=outcome)


WORKING = seat(MemberStatus.WORKING, liveness=Liveness.ALIVE)
DEAD = seat(MemberStatus.IDLE, liveness=Liveness.DEAD)
LEFT = seat(MemberStatus.SHUTDOWN, kind=MemberKind.EXTERNAL)


@pytest.mark.parametrize(
    ("outcome", "place", "has_worker", "said"),
    [
        ("queued", seat(MemberStatus.IDLE, liveness=Liveness.ALIVE), True, "queued, wakes it up"),
        ("queued", WORKING, True, "queued, it is read after the current step"),
        ("queued", DEAD, True, "queued; its process is dead, it is read when another one hosts it"),
        ("queued", seat(MemberStatus.WANTED), True, "queued; nobody hosts it just now, a worker is to take it"),
        ("queued", seat(MemberStatus.WANTED), False, f"queued; {NOBODY}"),
        ("revives", seat(MemberStatus.WANTED), False, f"queued, wakes it up again; {NOBODY}"),
        ("kept", seat(MemberStatus.SHUTDOWN), True, "kept until it comes back, it is shut down"),
        ("kept", LEFT, True, "kept until it joins again, it is shut down"),
        ("queued", seat(MemberStatus.IDLE, kind=MemberKind.USER), False, "in the inbox"),
    ],
)  # fmt: skip
def test_a_sender_is_told_what_becomes_of_the_message(outcome: str, place: Seat, has_worker: bool, said: str) -> None:
    assert receipt_text(receipt(outcome), place, has_worker=has_worker) == f"12 to ana: {said}"


def test_dead_follows_from_the_host_and_not_from_the_row() -> None:
    assert member_state(seat(MemberStatus.IDLE, liveness=Liveness.DEAD)) == Painted("dead, was idle", "red")
    assert member_state(seat(MemberStatus.IDLE, liveness=Liveness.ALIVE)) == Painted("idle", "")
    assert member_state(seat(MemberStatus.SHUTDOWN, reason="timeout")) == Painted("shutdown (timeout)", "dim")
    assert host_of(seat(MemberStatus.IDLE, liveness=Liveness.UNKNOWN)) == "box:7 (?)"
    assert host_of(seat(MemberStatus.WANTED)) == Painted("nobody", "yellow")
    assert host_of(seat(MemberStatus.SHUTDOWN)) == ""


def test_ages_are_said_in_the_largest_unit() -> None:
    seconds = (-5, 0, 59, 60, 3599, 3600, 86_399, 86_400, 900_000)
    assert [age(NOW - timedelta(seconds=each), NOW) for each in seconds] == [
        *("0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "10 d")
    ]


def test_an_event_of_an_unknown_kind_is_shown_with_its_facts() -> None:
    event = Event(
        team_id=1, position="9", kind="MoonRisen", at=NOW, actor="ana", data={"task": 3, "phase": "full", "owner": None}
    )
    assert facts_of(event) == ["#3", "phase=full"]


def test_an_event_does_not_repeat_its_actor() -> None:
    event = Event(
        team_id=1,
        position="9",
        kind="TaskClaimed",
        at=NOW,
        actor="ana",
        data={"task": 3, "owner": "ana", "incarnation": 2},
    )
    assert facts_of(event) == ["#3"]
