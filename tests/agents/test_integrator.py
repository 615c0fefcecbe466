"""Who cannot reach the team's repository leaves the queue to others, and goes on trying where there are none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.domain.event import EventKind
from bullpen.domain.submission import Work
from bullpen.domain.trunk import Trunk
from bullpen.team import Team
from bullpen.worker.integrator import Integrator
from tests.agents.stage import Recorder, facts, human, mail_of
from tests.support.repository import files_at, git, make_repository, set_apart
from tests.support.troupe import hosted, troupe, until, until_event

BRANCH = "bullpen/troupe"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository", {"a": "one\n"})


@asynccontextmanager
async def with_work_in_its_queue(repository: Path, url: str = "sqlite:///:memory:") -> AsyncIterator[Team]:
    async with troupe(Recorder({}), repository, store=url) as team:
        await set_apart(team, repository)
        base = git(repository, "rev-parse", BRANCH)
        (repository / "made").write_text("made\n")
        git(repository, "add", "made")
        commit = git(repository, "commit-tree", git(repository, "write-tree"), "-p", base, "-m", "made")
        await team.store.submit_work(human(team), Work(base=base, commit=commit), result="made")
        yield team


@asynccontextmanager
async def integrating(team: Team) -> AsyncIterator[int]:
    """A worker that does nothing else; its number."""
    assert team.hosting is not None
    worker = await team.store.register_worker(slots=1)
    house = team.hosting.worker(team).house
    task = asyncio.create_task(Integrator(house, worker_id=lambda: worker.id, team_id=lambda: None).run())
    try:
        yield worker.id
    finally:
        task.cancel()
        await asyncio.wait({task})
        await team.store.stop_worker(worker.id)


async def test_who_cannot_reach_the_repository_leaves_the_queue_to_another_worker(
    repository: Path, shared_store_url: str
) -> None:
    away = repository.with_name("away")
    async with with_work_in_its_queue(repository, shared_store_url) as team:
        await team.store.register_worker(slots=1)
        repository.rename(away)
        async with integrating(team) as lacking:
            released = await until(team, EventKind.WORK_RELEASED, worker=lacking)
            # It tries again after a while, and says nothing more.
            await until(team, EventKind.WORK_RELEASED, worker=lacking, after=released.position)
            await until(team, EventKind.MESSAGE_SENT, to="user")
            [told] = await mail_of(team, "user")
            assert told.content == (
                f"{socket.gethostname()} cannot integrate what this team hands in, and leaves it to another worker: "
                f"the repository {repository}, where the team works, is not on {socket.gethostname()}"
            )
            away.rename(repository)
            async with hosted(team):
                await until(team, EventKind.WORK_INTEGRATED)
    assert files_at(repository, BRANCH)["made"] == "made"


async def test_the_only_worker_keeps_what_it_cannot_integrate_yet_and_goes_on_trying(repository: Path) -> None:
    away = repository.with_name("away")
    async with with_work_in_its_queue(repository) as team:
        repository.rename(away)
        async with integrating(team):
            told = await until_event(team, lambda event: event.kind == EventKind.MESSAGE_SENT)
            assert "waits to be integrated" in str(told.data)
            away.rename(repository)
            await until(team, EventKind.WORK_INTEGRATED)
        assert await facts(team, EventKind.WORK_RELEASED) == []
    assert files_at(repository, BRANCH)["made"] == "made"


async def test_a_branch_that_is_gone_is_not_taken_for_a_repository_that_is_not_here(repository: Path) -> None:
    async with with_work_in_its_queue(repository) as team:
        trunk = Trunk.of((await team.store.get_team(team.id)).settings)
        assert trunk is not None
        git(repository, "update-ref", "-d", trunk.ref)
        async with integrating(team):
            await until_event(team, lambda event: event.kind == EventKind.MESSAGE_SENT)
        [told] = await mail_of(team, "user")
        assert f"the branch {BRANCH} is gone from {repository}" in told.content
