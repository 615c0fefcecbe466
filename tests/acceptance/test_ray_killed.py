"""A team whose workers are actors of a Ray cluster: processes and whole nodes die, and every task is done once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bullpen.domain.event import Event, EventKind
from bullpen.domain.member import Worker
from bullpen.runners import RayRunner
from bullpen.team import Outcome, Team, open_team
from tests.support.cast import layered
from tests.support.invariants import check_invariants
from tests.support.ray_cluster import RayCluster, ray_cluster
from tests.support.ray_plays import script
from tests.support.troupe import settings, until_event

TEAMMATES = ("ana", "ben", "cy", "dee")
TASKS = 32
BOUND_SECONDS = 200.0


@pytest.mark.timeout(280)
async def test_every_task_is_done_once_although_a_process_and_a_whole_node_of_ray_die(
    postgres_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "script.toml"
    file.write_text(script(layered(TASKS, 4), TEAMMATES))
    workspace = tmp_path / "work"
    workspace.mkdir()
    with ray_cluster(nodes=2) as cluster:
        runner = RayRunner(address=cluster.address, slots=2)
        async with open_team(
            "crew",
            store=postgres_url,
            model=f"scripted:{file}",
            settings=settings(),
            workspace=workspace,
            runner=runner,
        ) as team:
            running = asyncio.create_task(team.run("Do them all", max_minutes=BOUND_SECONDS / 60))
            killed = await kill_as_it_goes(team, cluster)
            report = await running
            past = await check_invariants(team.store, team.id, workspace)
    assert report.outcome is Outcome.DONE
    assert len(report.tasks) == TASKS
    lapsed = {event.data["worker"] for event in past.of(EventKind.WORKER_LAPSED)}
    assert killed <= lapsed, "whoever was killed was declared dead"


async def kill_as_it_goes(team: Team, cluster: RayCluster) -> set[int]:
    """First a process, then, when all are at work again, the node of another one."""
    first, position = await busy_worker(team, "")
    hosts = {cluster.node_of(worker.pid) for worker in await hosting(team)}
    assert len(hosts) == 2, "members are spread over the nodes"
    os.kill(first.pid, signal.SIGKILL)
    second, _ = await busy_worker(team, position)
    cluster.node_of(second.pid).kill()
    return {first.id, second.id}


async def busy_worker(team: Team, after: str) -> tuple[Worker, str]:
    """One that hosts somebody who is in the middle of a command, once some tasks are done and all are hosted."""
    done = 0

    def is_moment(event: Event) -> bool:
        nonlocal done
        done += event.kind == EventKind.TASK_COMPLETED
        return done >= 3 and event.kind == EventKind.TOOL_CALL_STARTED and event.data["tool"] == "bash"

    while True:
        event = await until_event(team, is_moment, bound_seconds=BOUND_SECONDS, after=after)
        members = {member.name: member.worker_id for member in await team.list_members()}
        if all(members.get(name) for name in TEAMMATES):
            return next(worker for worker in await hosting(team) if worker.id == members[event.actor]), event.position
        after, done = event.position, 3


async def hosting(team: Team) -> list[Worker]:
    """The workers that host members now."""
    ids = {member.worker_id for member in await team.list_members()}
    return [worker for worker in await team.store.list_workers() if worker.id in ids]
