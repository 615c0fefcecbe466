"""The status of a member, what leads, and who can be brought back."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.member import (
    MEMBER_TRANSITIONS,
    Member,
    MemberKind,
    MemberStatus,
    Team,
)
from tests.unit.domain.strategies import names, records

members = records(Member, name=names, status_reason=st.sampled_from(["", "timeout", "asked", "finished", "forced"]))


def test_from_stopping_only_shutdown_follows() -> None:
    assert MEMBER_TRANSITIONS[MemberStatus.STOPPING] == {MemberStatus.SHUTDOWN}


def test_a_shutdown_is_left_only_by_being_wanted_or_joining_again() -> None:
    assert MEMBER_TRANSITIONS[MemberStatus.SHUTDOWN] == {MemberStatus.WANTED, MemberStatus.WORKING}


def test_every_status_has_its_ways_out_and_shutdown_is_always_reached() -> None:
    assert set(MEMBER_TRANSITIONS) == set(MemberStatus)
    for status in MemberStatus:
        reached, found = {status}, True
        while found:
            further = {after for before in reached for after in MEMBER_TRANSITIONS[before]} - reached
            reached, found = reached | further, bool(further)
        assert MemberStatus.SHUTDOWN in reached


@given(st.lists(st.sampled_from(MemberStatus)))
def test_no_row_of_status_writes_erases_a_shutdown(writes: list[MemberStatus]) -> None:
    """Whatever a loop that raced with a shutdown tries to write of itself."""
    status = MemberStatus.STOPPING
    for write in writes:
        if write in MEMBER_TRANSITIONS[status] and write not in (MemberStatus.WANTED, MemberStatus.WORKING):
            status = write
    assert status in (MemberStatus.STOPPING, MemberStatus.SHUTDOWN)


@given(members)
def test_only_a_teammate_that_timed_out_is_revived(member: Member) -> None:
    timed_out = member.status is MemberStatus.SHUTDOWN and member.status_reason == "timeout"
    assert member.can_be_revived == (timed_out and member.kind is MemberKind.TEAMMATE)
    assert not (member.can_be_revived and member.is_up)


@given(members)
def test_a_reference_names_the_member_and_its_incarnation(member: Member) -> None:
    assert (member.ref.team_id, member.ref.name, member.ref.incarnation) == (
        member.team_id,
        member.name,
        member.incarnation,
    )
    assert member.leads == (member.kind in (MemberKind.LEAD, MemberKind.USER))


@given(records(Team, settings=st.dictionaries(st.just("x"), st.from_type(object) | st.floats() | st.integers())))
def test_a_setting_that_is_no_sensible_number_is_the_default(team: Team) -> None:
    number = team.number_setting("x", 30.0)
    assert math.isfinite(number)
    assert number >= 0
    value: Any = team.settings.get("x")
    if not isinstance(value, int | float) or isinstance(value, bool):
        assert number == 30.0
