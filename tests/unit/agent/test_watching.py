"""Cutting off what a member does, without a task beside it until somebody rings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from bullpen.agent import watching
from bullpen.agent.agent import Agent
from bullpen.agent.watching import Interrupted, watched
from bullpen.errors import LeaseLost, StoreUnavailable
from bullpen.stores.bells import EventBell

BOUND_SECONDS = 30.0


class Member:
    """As much of an agent as is watched: what a look finds is what the test put there."""

    def __init__(self) -> None:
        self.bell = EventBell()
        self.looks = 0
        self.found: list[Exception | str] = []
        self.is_interrupted = False

    async def refresh(self) -> None:
        self.bell.clear()
        self.looks += 1
        await asyncio.sleep(0)
        for found in self.found:
            if isinstance(found, Exception):
                raise found
            self.is_interrupted = True

    def was_interrupted(self) -> bool:
        was, self.is_interrupted = self.is_interrupted, False
        return was

    def watch(self, doing: Any) -> Any:
        return watched(cast(Agent, self), doing)


async def for_ever(began: asyncio.Event, ended: Callable[[], None] = lambda: None) -> None:
    try:
        began.set()
        await asyncio.Event().wait()
    finally:
        ended()


async def begun(member: Member, ended: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
    began = asyncio.Event()
    task: asyncio.Task[None] = asyncio.ensure_future(member.watch(for_ever(began, ended)))
    await asyncio.wait_for(began.wait(), BOUND_SECONDS)
    return task


async def test_what_nobody_cuts_off_returns_and_nobody_looks() -> None:
    async def answer() -> str:
        await asyncio.sleep(0)
        return "done"

    member, before = Member(), asyncio.all_tasks()
    assert await member.watch(answer()) == "done"
    assert member.looks == 0
    assert asyncio.all_tasks() == before


async def test_an_error_of_what_is_done_is_its_own() -> None:
    async def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Member().watch(fail())


async def test_an_interrupt_ends_it_first_and_is_told_after_that() -> None:
    member, ended = Member(), list[str]()
    task = await begun(member, lambda: ended.append("ended"))
    member.found.append("interrupt")
    member.bell.ring()
    with pytest.raises(Interrupted):
        await asyncio.wait_for(task, BOUND_SECONDS)
    assert ended == ["ended"]
    assert task.cancelling() == 0


async def test_a_second_interrupt_does_not_cut_off_the_end_of_what_the_first_cut_off() -> None:
    ending, may_end, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow_to_end(began: asyncio.Event) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            ending.set()
            await may_end.wait()
            ended.append("ended")

    member, began = Member(), asyncio.Event()
    task = asyncio.ensure_future(member.watch(slow_to_end(began)))
    await asyncio.wait_for(began.wait(), BOUND_SECONDS)
    member.found.append("interrupt")
    member.bell.ring()
    await asyncio.wait_for(ending.wait(), BOUND_SECONDS)
    looks = member.looks
    member.bell.ring()
    while member.looks == looks or member.is_interrupted:  # noqa: ASYNC110 - as below
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(Interrupted):
        await asyncio.wait_for(task, BOUND_SECONDS)
    assert ended == ["ended"]
    assert task.cancelling() == 0


async def test_a_member_that_somebody_else_is_by_now_ends_with_lease_lost() -> None:
    member = Member()
    task = await begun(member)
    member.found.append(LeaseLost("another"))
    member.bell.ring()
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(task, BOUND_SECONDS)


async def test_a_ring_for_something_else_cuts_nothing_off() -> None:
    member = Member()
    task = await begun(member)
    for _ in range(3):
        looks = member.looks
        member.bell.ring()
        member.bell.ring()
        while member.looks == looks:  # noqa: ASYNC110 - the member is ours, and says nothing else
            await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_rang_before_it_began_is_looked_at() -> None:
    member = Member()
    member.found.append("interrupt")
    member.bell.ring()
    with pytest.raises(Interrupted):
        await asyncio.wait_for(member.watch(for_ever(asyncio.Event())), BOUND_SECONDS)


async def test_what_was_interrupted_before_it_began_does_not_begin() -> None:
    member, began = Member(), asyncio.Event()
    member.is_interrupted = True
    with pytest.raises(Interrupted):
        await member.watch(for_ever(began))
    assert not began.is_set()


async def test_without_a_ring_it_looks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_SECONDS", 0.001)
    member = Member()
    task = await begun(member)
    while member.looks < 3:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    member.found.append("interrupt")
    with pytest.raises(Interrupted):
        await asyncio.wait_for(task, BOUND_SECONDS)


async def test_while_the_store_is_away_it_goes_on_and_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_SECONDS", 0.001)
    member = Member()
    member.found.append(StoreUnavailable("away"))
    task = await begun(member)
    while member.looks < 2:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    member.found[:] = ["interrupt"]
    with pytest.raises(Interrupted):
        await asyncio.wait_for(task, BOUND_SECONDS)


async def test_a_cancellation_by_somebody_else_is_not_taken_for_an_interrupt() -> None:
    member, before = Member(), asyncio.all_tasks()
    task = await begun(member)
    member.found.append("interrupt")
    member.bell.ring()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before


async def test_what_ends_by_itself_in_the_same_moment_has_not_been_cut_off() -> None:
    async def stubborn(began: asyncio.Event) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        raise AssertionError

    member, began = Member(), asyncio.Event()
    task = asyncio.ensure_future(member.watch(stubborn(began)))
    await began.wait()
    member.found.append("interrupt")
    member.bell.ring()
    assert await asyncio.wait_for(task, BOUND_SECONDS) == "done"
    assert task.cancelling() == 0
