"""Eight members build one project side by side, all of them in one another's way: with and without kills."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.task import TaskStatus
from bullpen.domain.trunk import Trunk
from bullpen.team import Outcome, Team, open_team
from tests.support.builders import build, make_project, prepare, provider
from tests.support.performance import unconfined
from tests.support.processes import Crew
from tests.support.repository import fingerprint, git, set_apart
from tests.support.theatre import Killer
from tests.support.troupe import events_of

pytestmark = pytest.mark.timeout(600)

MEMBERS = tuple(f"m{number}" for number in range(1, 9))
TASKS = 40
KILLS = 50


async def check_integrated(team: Team, trunk: Trunk, project: Path) -> None:
    """Every task once, the project's tests pass on the result, and the repository is sound."""
    assert all(task.status is TaskStatus.COMPLETED for task in await team.list_tasks())
    log = git(
        project, "log", "--format=%(trailers:key=Bullpen-Task,valueonly,separator=%x2C)", f"{trunk.base}..{trunk.ref}"
    )
    tasks = Counter(line.partition("/")[0] for line in log.split())
    assert tasks == Counter({str(number): 1 for number in range(1, TASKS + 1)})
    integrated = [event.data["task"] for event in await events_of(team, EventKind.WORK_INTEGRATED)]
    assert sorted(integrated) == list(range(1, TASKS + 1))
    checkout = project.parent / "result"
    git(project, "worktree", "add", "-q", "--detach", str(checkout), trunk.ref)
    await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "unittest", "-q"], cwd=checkout, check=True)
    assert len((checkout / "shop/names.txt").read_text().split()) == TASKS
    assert "error" not in git(project, "fsck", "--full")


async def test_forty_tasks_in_the_way_of_one_another_are_each_integrated_once(tmp_path: Path) -> None:
    project, script = make_project(tmp_path / "project"), provider()
    async with open_team(
        "builders",
        store=f"sqlite:///{project}/.bullpen/bullpen.db",
        settings=unconfined(),
        model="scripted:build",
        open_model=lambda model, **_: script,
        workspace=project,
    ) as team:
        before = fingerprint(project)
        trunk = await set_apart(team, project)
        await prepare(team, MEMBERS, TASKS)
        report = await team.run("Build the shop.")
        assert report.outcome is Outcome.DONE, report.lines
        assert (report.branch, report.commits) == ("bullpen/builders", TASKS)
        await check_integrated(team, trunk, project)
    assert fingerprint(project) == before


async def test_fifty_kills_lose_no_work_and_integrate_nothing_twice(
    tmp_path: Path, crew: Crew, chance: random.Random
) -> None:
    project = make_project(tmp_path / "project")
    url = f"sqlite:///{project}/.bullpen/bullpen.db"
    async with open_team("builders", store=url, settings=unconfined()) as team:
        before = fingerprint(project)
        trunk = await set_apart(team, project)
        await prepare(team, MEMBERS, TASKS)
        await team.send("lead", "Build the shop.")
        killer = Killer(crew, chance, build, KILLS, steps=100)
        # Kills all over the work, not only at its beginning.
        await killer.play(team.store, team.id, 1, url=url, name=team.name, workspace=str(project))
        assert len(await events_of(team, EventKind.WORKER_LAPSED)) > KILLS / 2
        await check_integrated(team, trunk, project)
    assert fingerprint(project) == before
