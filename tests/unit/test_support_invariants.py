"""The checks that other tests rely on find what they are there to find."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullpen.domain.event import Event, EventKind
from tests.support.invariants import Deed, Past, check_deeds

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MACHINES = {1: "a", 2: "b"}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(seconds: float, kind: EventKind, **data: Any) -> Event:
    return Event(
        team_id=1, position=str(seconds), kind=kind, at=at(seconds), actor="ana", data={"member": "ana"} | data
    )


TAKEN_OVER = Past(
    events=[
        event(0, EventKind.MEMBER_HOSTED, worker=1),
        event(10, EventKind.MEMBER_LAPSED),
        event(11, EventKind.MEMBER_HOSTED, worker=2),
    ],
    turns={},
    calls={},
    mail=[],
)


@pytest.mark.parametrize(("machine", "seconds"), [("a", 1), ("a", 9.9), ("b", 11.1), ("b", 3600)])
def test_what_is_done_where_a_member_is_hosted_is_right(machine: str, seconds: float) -> None:
    check_deeds(TAKEN_OVER, [Deed(what="bash", member="ana", machine=machine, at=at(seconds))], MACHINES)


@pytest.mark.parametrize(("machine", "seconds"), [("a", 10.1), ("a", 12), ("b", 9), ("b", 10.5), ("a", -1)])
def test_what_is_done_elsewhere_or_after_a_take_over_is_found(machine: str, seconds: float) -> None:
    with pytest.raises(AssertionError):
        check_deeds(TAKEN_OVER, [Deed(what="bash", member="ana", machine=machine, at=at(seconds))], MACHINES)
