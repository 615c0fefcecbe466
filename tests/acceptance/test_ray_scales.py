"""Workers of Ray come with the members that are wanted, and leave when nobody needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.member import MemberStatus, Worker
from bullpen.runners import RayRunner
from bullpen.team import Team, open_team
from bullpen.team.service import make_house
from tests.support.ray_cluster import ray_cluster
from tests.support.troupe import events_of, settings, until

BOUND_SECONDS = 120.0
SCRIPT = '[[members."*"]]\nsay = "Nothing to do for {{member}}."\nrepeat = true\n'


async def workers(team: Team, label: str = "ray=") -> list[Worker]:
    """Those of the runner; with `runner=ray` its promise of more."""
    return [worker for worker in await team.store.list_workers() if any(one.startswith(label) for one in worker.labels)]


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.1)


@pytest.mark.timeout(280)
async def test_there_are_as_many_workers_as_wanted_members_need(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    with ray_cluster(nodes=1, resources={"gpu": 1}) as cluster:
        runner = RayRunner(address=cluster.address, slots=1, max_workers=3, num_cpus=0.5, idle_seconds=0.5)
        model = f"scripted:{tmp_path}/script.toml"
        async with open_team("crew", store=postgres_url, settings=settings(idle={"on_timeout": "stay"})) as team:
            house = make_house(team.store, model=model, workspace=tmp_path)
            async with runner.host(team.record, house):
                await check_growth(team)
                await check_promise(team)
                await check_shrinking(team)
            await check_rest(team)


async def check_growth(team: Team) -> None:
    # The first of them fills the only place on the worker with its label, which the others could take as well.
    for name, labels in (("gil", ("gpu",)), ("ana", ()), ("ben", ())):
        await team.spawn(name, prompt="Wait.", labels=labels)
        if labels:
            await until(team, EventKind.MEMBER_HOSTED, member=name, bound_seconds=BOUND_SECONDS)
    for name in ("ana", "ben"):
        await until(team, EventKind.MEMBER_HOSTED, member=name, bound_seconds=BOUND_SECONDS)
    mine = {worker.id: worker for worker in await workers(team)}
    members = {member.name: member for member in await team.list_members()}
    assert len(mine) == 3
    able = mine[members["gil"].worker_id or 0]
    assert "gpu" in able.labels, "who asks for a label is placed on a node that has it"
    assert {members[name].worker_id for name in ("ana", "ben", "gil")} == mine.keys()


async def check_promise(team: Team) -> None:
    """Room is promised as long as more workers can be had: else whoever waits for one would count as hopeful."""

    async def is_withdrawn() -> bool:
        return not await workers(team, "runner=ray")

    await eventually(is_withdrawn)


async def check_shrinking(team: Team) -> None:
    for name in ("ben", "gil"):
        await team.shut_down(name)

    async def is_alone() -> bool:
        return len(await workers(team)) == 1

    await eventually(is_alone)
    [left] = await workers(team)
    await until(team, EventKind.MEMBER_HOSTED, member="ana", worker=left.id)
    assert not await events_of(team, EventKind.WORKER_LAPSED), "all left in good order"


async def check_rest(team: Team) -> None:
    assert await team.store.list_workers() == []
    ana = await team.store.get_member(team.id, "ana")
    assert ana.status is MemberStatus.WANTED
    assert not await events_of(team, EventKind.WORKER_LAPSED)
