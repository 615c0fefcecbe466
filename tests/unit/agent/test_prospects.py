"""Asking once for all who wait for the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bullpen.agent.prospects import Prospects
from bullpen.clock import FakeClock
from bullpen.domain.member import MemberRef
from bullpen.stores.sqlite import SqliteStore
from tests.support.stores import create_team, join

YOUNG_SECONDS = 10.0


class Counting(SqliteStore):
    asked = 0

    async def has_prospects(self, by: MemberRef) -> bool:
        self.asked += 1
        return await super().has_prospects(by)


@pytest.fixture
async def store() -> AsyncIterator[Counting]:
    async with Counting("sqlite:///:memory:", None, FakeClock()) as opened:
        yield opened


async def test_that_there_is_nothing_is_asked_once_for_all_of_a_role(store: Counting) -> None:
    team, _ = await create_team(store)
    prospects = Prospects()
    members = [await join(store, team.id, f"m{number}") for number in range(20)]
    for member in members:
        assert not await prospects.has_any(member, store, YOUNG_SECONDS)
    assert store.asked == 1
    assert not await prospects.has_any(await join(store, team.id, "ben", role="backend"), store, YOUNG_SECONDS)
    assert store.asked == 2


async def test_an_old_answer_is_asked_for_again_and_a_task_is_told_to_nobody_else(store: Counting) -> None:
    team, user = await create_team(store)
    ana, ben = await join(store, team.id, "ana"), await join(store, team.id, "ben")
    prospects = Prospects()
    assert not await prospects.has_any(ana, store, YOUNG_SECONDS)
    first = await store.create_task(user, "first")
    await store.create_task(user, "hers", blocked_by=[first.id], owner="ana")
    await store.claim_task(user, first.id)
    assert not await prospects.has_any(ana, store, YOUNG_SECONDS)
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(YOUNG_SECONDS)
    assert await prospects.has_any(ana, store, YOUNG_SECONDS)
    assert not await prospects.has_any(ben, store, YOUNG_SECONDS)
