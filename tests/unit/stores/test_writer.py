"""The writer: where a verb runs, what is committed together, and in which order it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from bullpen.errors import StoreUnavailable, UsageError
from bullpen.stores import gate, pace
from bullpen.stores import writer as writer_module
from bullpen.stores.job import Job
from bullpen.stores.transaction import EventRing, Ring
from bullpen.stores.writer import Writer

BOUND_SECONDS = 20.0
PATIENCE_SECONDS = 20.0


class Door:
    """A gate that a test can shut, as another process would."""

    stay_seconds = 0.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_waited_for = threading.Event()

    def enter(self) -> None:
        self.is_waited_for.set()
        assert self._lock.acquire(timeout=BOUND_SECONDS)

    def try_enter(self) -> bool:
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        self._lock.release()

    def holder(self) -> str:
        return "the test"


class Desk:
    """A writer whose commits are written down: in which thread, and which jobs together."""

    def __init__(self) -> None:
        self.door = Door()
        self.threads: list[threading.Thread] = []
        self.groups: list[int] = []
        self.rings: list[Ring] = []
        self.writer = Writer("bullpen-test-writer", self.door, self._commit, self.rings.extend)

    def _commit(self, jobs: list[Job[Any]]) -> None:
        self.threads.append(threading.current_thread())
        self.groups.append(len(jobs))
        for job in jobs:
            try:
                job.succeed(job.body(job))
            except Exception as error:
                job.fail(error)

    async def run(self, body: Callable[[Any], Any] = lambda job: None, patience: float = PATIENCE_SECONDS) -> Any:
        return await asyncio.wait_for(self.writer.run(body, patience_seconds=patience), BOUND_SECONDS)

    @property
    def last_ran_here(self) -> bool:
        return self.threads[-1] is threading.current_thread()


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    """The first verb has been written: it always runs in the thread, since nobody knows yet how quick the disk is."""
    desk = Desk()
    await desk.run()
    assert not desk.last_ran_here
    try:
        yield desk
    finally:
        assert await desk.writer.close()


async def test_a_verb_that_is_alone_runs_where_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        assert await desk.run(lambda job: 17) == 17
        assert desk.last_ran_here


async def test_verbs_that_come_together_are_committed_together_in_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        desk.door.enter()
        running = [asyncio.create_task(desk.run(str)) for _ in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        desk.door.leave()
        assert len(set(await asyncio.gather(*running))) == 5, "each has its own answer"
        assert desk.groups == [1, 5]
        assert not desk.last_ran_here


async def test_the_loop_has_a_turn_in_time_however_long_one_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    for turn_seconds, expected in ((-1.0, [0, 1, 2]), (BOUND_SECONDS, [])):
        monkeypatch.setattr(pace, "TURN_SECONDS", turn_seconds)
        # One of its own for each: what is left of a turn was given out with the length of before.
        async with open_desk() as desk:
            turns: list[int] = []
            await asyncio.sleep(0)
            await desk.writer.run(lambda job: None, patience_seconds=PATIENCE_SECONDS)
            for number in range(3):
                asyncio.get_running_loop().call_soon(turns.append, number)
                await desk.writer.run(lambda job: None, patience_seconds=PATIENCE_SECONDS)
                assert desk.last_ran_here
            assert turns == expected


async def test_whoever_comes_after_a_task_that_goes_on_begins_with_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else verbs that are called at once, right after one that was alone, would each be committed alone."""
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    monkeypatch.setattr(pace, "TURN_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        await desk.writer.run(lambda job: None, patience_seconds=PATIENCE_SECONDS)
        desk.door.enter()
        running = asyncio.gather(*(desk.writer.run(str, patience_seconds=PATIENCE_SECONDS) for _ in range(5)))
        for _ in range(10):
            await asyncio.sleep(0)
        desk.door.leave()
        assert len(set(await running)) == 5
        assert desk.groups == [1, 1, 5]


async def test_after_slow_commits_the_next_verb_leaves_the_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_desk() as desk:
        monkeypatch.setattr(writer_module, "QUICK_SECONDS", -1.0)
        await desk.run()
        assert not desk.last_ran_here


async def test_one_slow_commit_among_quick_ones_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_desk() as desk:
        monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
        await desk.run()
        monkeypatch.setattr(writer_module, "QUICK_SECONDS", 0.02)
        desk.writer._last_seconds.extend([0.001, 3.0])
        await desk.run()
        assert desk.last_ran_here
        desk.writer._last_seconds.extend([3.0, 3.0])
        await desk.run()
        assert not desk.last_ran_here


async def test_while_another_process_is_inside_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        desk.door.enter()
        waiting = asyncio.create_task(desk.run())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        with pytest.raises(StoreUnavailable, match="the test holds the store"):
            await desk.run(patience=0.01)
        desk.door.leave()
        await waiting
        assert not desk.last_ran_here
        assert desk.groups == [1, 1], "what was taken back has not been written"


async def let_in(desk: Desk, first: Coroutine[Any, Any, Any], *, stay_seconds: float) -> asyncio.Task[Any]:
    """A task whose first verb has waited for another process, and gets in now."""
    desk.door.stay_seconds = stay_seconds
    assert desk.door.try_enter()
    task = asyncio.create_task(first)
    assert await asyncio.to_thread(desk.door.is_waited_for.wait, BOUND_SECONDS)
    desk.door.leave()
    return task


async def test_who_had_to_wait_stays_for_the_verbs_that_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)

    async with open_desk() as desk:

        async def write_thrice() -> None:
            run = partial(desk.writer.run, lambda job: None, patience_seconds=PATIENCE_SECONDS)
            await run()
            assert not desk.last_ran_here
            for _ in range(2):
                assert not desk.door.try_enter(), "it is still inside"
                await run()
                assert desk.last_ran_here

        await (await let_in(desk, write_thrice(), stay_seconds=2 * BOUND_SECONDS))


async def test_who_stays_leaves_as_soon_as_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        await (await let_in(desk, desk.run(), stay_seconds=2 * BOUND_SECONDS))
        # Waited for where it would hold up the loop if it did not leave from there.
        await asyncio.to_thread(desk.door.enter)
        desk.door.leave()


async def test_who_stays_leaves_in_time_although_its_loop_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        await (await let_in(desk, desk.run(), stay_seconds=0.01))
        # The loop stands still until the gate is free.
        desk.door.enter()
        desk.door.leave()


async def test_who_could_not_leave_in_time_does_not_stay_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is busy with something that holds up all its threads, and may be so again."""
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    monkeypatch.setattr(gate, "LATE_SECONDS", -BOUND_SECONDS)
    async with open_desk() as desk:
        await (await let_in(desk, desk.run(), stay_seconds=BOUND_SECONDS))
        await asyncio.to_thread(desk.door.enter)
        desk.door.leave()
        desk.door.is_waited_for.clear()

        async def write_and_look() -> bool:
            await desk.writer.run(lambda job: None, patience_seconds=PATIENCE_SECONDS)
            assert not desk.last_ran_here
            return desk.door.try_enter()

        assert await (await let_in(desk, write_and_look(), stay_seconds=BOUND_SECONDS))
        desk.door.leave()


async def test_who_goes_on_and_on_does_not_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        await (await let_in(desk, desk.run(), stay_seconds=0.01))
        other = asyncio.create_task(asyncio.to_thread(desk.door.enter))
        while not other.done():
            await asyncio.wait({other, asyncio.create_task(desk.run())}, return_when=asyncio.FIRST_COMPLETED)
        await other
        desk.door.leave()


async def test_who_is_closed_while_it_stays_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        waiting = await let_in(desk, desk.run(), stay_seconds=2 * BOUND_SECONDS)
        assert await desk.writer.close()
        await waiting
        assert desk.door.try_enter()


async def test_a_caller_cancelled_before_its_verb_began_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        desk.door.enter()
        gone = asyncio.create_task(desk.run())
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        desk.door.leave()
        await desk.run()
        assert sum(desk.groups) == 2, "the first and the last"


async def test_who_comes_alone_runs_at_once_and_who_goes_on_for_long_lets_the_others_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    monkeypatch.setattr(pace, "TURN_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        run = partial(desk.writer.run, lambda job: None, patience_seconds=PATIENCE_SECONDS)
        others: list[str] = []
        asyncio.get_running_loop().call_soon(others.append, "had a turn")
        await run()
        assert others == [], "a turn of the loop costs more than it brings"
        desk.writer._pace._until = 0.0
        await run()
        assert others == ["had a turn"]


async def test_rings_go_out_before_the_answer_wherever_the_verb_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the ring of a later verb, called as soon as this one was answered, could come first."""
    async with open_desk() as desk:
        for quick_seconds in (BOUND_SECONDS, -1.0):
            monkeypatch.setattr(writer_module, "QUICK_SECONDS", quick_seconds)
            for team_id in range(20):
                ring = EventRing(team_id)
                await desk.run(partial(_ring, ring))
                assert desk.rings[-1] is ring


async def test_a_verb_that_fails_raises_for_its_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Any) -> None:
        raise UsageError("no")

    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        with pytest.raises(UsageError, match="no"):
            await desk.run(refuse)
        assert desk.last_ran_here
        outcomes = await asyncio.gather(desk.run(refuse), desk.run(lambda job: "yes"), return_exceptions=True)
        assert isinstance(outcomes[0], UsageError)
        assert outcomes[1] == "yes"


def _ring(ring: Ring, job: Job[Any]) -> None:
    job.rings = [ring]


async def test_a_closed_writer_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUICK_SECONDS", BOUND_SECONDS)
    async with open_desk() as desk:
        await desk.run()
    with pytest.raises(UsageError, match="closed"):
        await desk.run()
