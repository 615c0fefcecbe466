"""How many workers a team needs, by its members."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from bullpen.domain.member import Member, MemberKind, MemberStatus
from bullpen.runners.ray.size import NONE, Labels, Size

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU: Labels = ("gpu",)


def member(
    name: str = "ana",
    *,
    kind: MemberKind = MemberKind.TEAMMATE,
    status: MemberStatus = MemberStatus.WANTED,
    worker: int | None = None,
    labels: Labels = NONE,
) -> Member:
    return Member(
        team_id=1,
        name=name,
        kind=kind,
        status=status,
        worker_id=worker,
        labels=labels,
        created_at=NOW,
        status_at=NOW,
    )


def size(slots: int = 2, min_workers: int = 0, max_workers: int = 10) -> Size:
    return Size(slots=slots, min_workers=min_workers, max_workers=max_workers)


def test_wanted_teammates_fill_workers_slot_by_slot() -> None:
    assert size().need([member()] * 4, {}) == {NONE: 2}
    assert size().need([member()] * 5, {}) == {NONE: 3}


def test_a_lead_needs_a_worker_but_no_slot() -> None:
    lead = member("lead", kind=MemberKind.LEAD)
    assert size().need([lead], {}) == {NONE: 1}
    assert size().need([lead, member(), member()], {}) == {NONE: 1}


def test_who_has_shut_down_needs_nothing_and_so_do_the_human_and_who_is_hosted_elsewhere() -> None:
    away = [
        member(status=MemberStatus.SHUTDOWN),
        member("user", kind=MemberKind.USER),
        member("cat", kind=MemberKind.EXTERNAL, status=MemberStatus.WORKING, worker=7),
        member(status=MemberStatus.WORKING, worker=7),
    ]
    assert size().need(away, {3: NONE}) == {NONE: 0}
    assert size(min_workers=2).need(away, {3: NONE}) == {NONE: 2}


def test_who_asks_for_labels_has_workers_with_them() -> None:
    assert size().need([member(), member(labels=GPU)], {}) == {NONE: 1, GPU: 1}


def test_a_crowd_on_a_worker_with_labels_makes_room_there() -> None:
    crowd = [member(status=MemberStatus.IDLE, worker=3)] * 2
    assert size().need([*crowd, member(labels=GPU)], {3: GPU}) == {NONE: 0, GPU: 2}


@given(
    members=st.lists(st.builds(member, labels=st.sampled_from([NONE, GPU, ("gpu", "linux")])), max_size=60),
    slots=st.integers(1, 8),
    most=st.integers(1, 12),
)
def test_there_are_never_more_than_allowed_and_always_enough_where_that_is_allowed(
    members: list[Member], slots: int, most: int
) -> None:
    need = size(slots, max_workers=most).need(members, {})
    assert 0 <= sum(need.values()) <= most
    if sum(need.values()) < most:
        for labels, count in need.items():
            assert count * slots >= sum(one.labels == labels for one in members)
