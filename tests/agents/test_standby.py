"""Several processes stand by for one team: one hosts it, the next takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bullpen.domain.event import EventKind
from bullpen.domain.member import LEAD, Member, MemberKind
from bullpen.team import Team
from tests.agents.stage import Recorder
from tests.support.troupe import BOUND_SECONDS, troupe, until

SCRIPT = {"*": lambda request: "I am here."}


@asynccontextmanager
async def standing_by(team: Team) -> AsyncIterator[None]:
    task = asyncio.create_task(team.stand_by())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until_members(team: Team, holds: Callable[[list[Member]], bool]) -> None:
    """Looked at with every event."""
    async with asyncio.timeout(BOUND_SECONDS), team.store.listen_events(team.id) as bell:
        while True:
            bell.clear()
            members = [member for member in await team.list_members() if member.kind is not MemberKind.USER]
            if holds(members):
                return
            await bell.wait()


def on_one_worker(members: list[Member]) -> bool:
    workers = {member.worker_id for member in members}
    return len(workers) == 1 and None not in workers


async def test_who_comes_second_looks_on_and_takes_over_when_the_first_one_leaves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bullpen.db"
    async with (
        troupe(Recorder(SCRIPT), tmp_path, store=url) as first,
        troupe(Recorder(SCRIPT), tmp_path, store=url) as second,
    ):
        await first.wake_up()
        async with AsyncExitStack() as leaving:
            await leaving.enter_async_context(standing_by(first))
            await until(first, EventKind.MEMBER_HOSTED, member=LEAD)
            led_by = (await first.store.get_member(first.id, LEAD)).worker_id
            async with standing_by(second):
                for name in ("ana", "ben", "cat"):
                    await second.spawn(name, prompt="Be there.")
                await until_members(second, lambda members: len(members) == 4 and on_one_worker(members))
                assert (await second.store.get_member(second.id, "cat")).worker_id == led_by
                await leaving.aclose()
                await until_members(second, lambda members: on_one_worker(members) and members[0].worker_id != led_by)


async def test_if_two_take_over_in_the_same_moment_one_of_them_hosts_everyone_in_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bullpen.db"
    async with (
        troupe(Recorder(SCRIPT), tmp_path, store=url) as first,
        troupe(Recorder(SCRIPT), tmp_path, store=url) as second,
    ):
        for name in ("ana", "ben", "cat", "dan"):
            await first.spawn(name, prompt="Be there.")
        await first.wake_up()
        async with standing_by(first), standing_by(second):
            await until_members(first, on_one_worker)
