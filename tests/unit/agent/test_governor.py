"""One governor for each key: nobody waits while all is well, nobody stampedes when it is not."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from bullpen.agent.governor import MAX_RETRY_AFTER_SECONDS, Governor, retry_delay
from bullpen.errors import BadReply, Overloaded, RateLimited


class Crowd:
    """Many who want in at once; `inside` is how many are."""

    def __init__(self, governor: Governor, size: int) -> None:
        self.governor = governor
        self.inside = 0
        self.most = 0
        self.leave = asyncio.Event()
        self.tasks = [asyncio.create_task(self._one()) for _ in range(size)]

    async def _one(self) -> None:
        async with self.governor.slot():
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.leave.wait()
            self.inside -= 1


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_nobody_waits_while_the_provider_answers() -> None:
    crowd = Crowd(Governor(), 100)
    await settle()
    assert crowd.inside == 100
    crowd.leave.set()
    await asyncio.gather(*crowd.tasks)


async def test_a_refusal_halves_how_many_ask_at_once() -> None:
    governor = Governor()
    first = Crowd(governor, 20)
    await settle()
    governor.note_refusal()
    first.leave.set()
    await asyncio.gather(*first.tasks)
    second = Crowd(governor, 20)
    await settle()
    assert second.inside == 10
    second.leave.set()
    await asyncio.gather(*second.tasks)
    assert second.most <= 10


async def test_after_many_refusals_one_still_asks() -> None:
    governor = Governor()
    for _ in range(50):
        governor.note_refusal()
    crowd = Crowd(governor, 5)
    await settle()
    assert crowd.inside == 1
    crowd.leave.set()
    await asyncio.gather(*crowd.tasks)


async def test_answers_open_it_again() -> None:
    governor = Governor()
    governor.note_refusal()
    for _ in range(200):
        governor.note_answer()
    crowd = Crowd(governor, 10)
    await settle()
    assert crowd.inside == 10
    crowd.leave.set()
    await asyncio.gather(*crowd.tasks)


async def test_those_who_are_cancelled_together_with_who_is_inside_end_as_cancelled() -> None:
    """As when a worker leaves: any other error would be taken for a crash of the member."""
    governor = Governor()
    for _ in range(3):
        governor.note_refusal()
    crowd = Crowd(governor, 4)
    await settle()
    assert crowd.inside == 1
    for task in crowd.tasks:
        task.cancel()
    await asyncio.wait(crowd.tasks)
    assert [task.cancelled() for task in crowd.tasks] == [True] * 4
    after = Crowd(governor, 1)
    await settle()
    assert after.inside == 1
    after.leave.set()
    await asyncio.gather(*after.tasks)


async def test_one_who_is_cancelled_while_it_waits_takes_nobodys_place() -> None:
    governor = Governor()
    governor.note_refusal()
    crowd = Crowd(governor, 3)
    await settle()
    waiting = crowd.tasks[1]
    waiting.cancel()
    await settle()
    crowd.leave.set()
    await asyncio.gather(crowd.tasks[0], crowd.tasks[2])
    assert crowd.inside == 0


@given(st.floats(min_value=0, max_value=1e9), st.integers(min_value=0, max_value=1000))
def test_what_the_provider_asks_for_is_kept_and_capped(asked: float, attempt: int) -> None:
    delay = retry_delay(RateLimited("slow down", retry_after_seconds=asked), attempt)
    assert min(asked, MAX_RETRY_AFTER_SECONDS) <= delay <= MAX_RETRY_AFTER_SECONDS * 1.25


@given(st.integers(min_value=0, max_value=10_000))
def test_without_a_wish_the_delay_grows_to_a_bound(attempt: int) -> None:
    for error in (Overloaded("busy"), BadReply("what?")):
        assert 0.5 <= retry_delay(error, attempt) <= 30.0
