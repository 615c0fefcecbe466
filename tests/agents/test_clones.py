"""Members in clones of a repository elsewhere: saved while they work, and patient when it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.agent import apart
from bullpen.domain.event import EventKind
from bullpen.providers.scripted import ScriptedProvider
from bullpen.team import Team, open_team
from tests.agents.stage import Recorder, mail_of, results
from tests.agents.test_apart import WAITS, bash, waiting, worker
from tests.support.performance import unconfined
from tests.support.repository import files_at
from tests.support.troupe import events_of, troupe, until, until_event
from tests.workspaces.conftest import make_bare


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return make_bare(tmp_path)


@asynccontextmanager
async def in_clones(model: Recorder, bare: Path, tmp_path: Path, **sections: Any) -> AsyncIterator[Team]:
    store = f"sqlite:///{tmp_path}/.bullpen/bullpen.db"
    async with troupe(model, tmp_path, store=store, settings=unconfined(**sections)) as team:
        trunk = await team.work_apart(f"git+file://{bare}")
        assert trunk is not None
        assert trunk.branch == "bullpen/troupe"
        yield team


async def test_what_is_in_work_is_saved_now_and_then(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "SAVE_EVERY_SECONDS", 0.0)
    looks = f"git -C {bare} show refs/bullpen/troupe/ana:made"
    model = Recorder({"lead": waiting, "ana": worker("echo half > made", looks)})
    async with in_clones(model, bare, tmp_path) as team:
        await team.create_task("Make it")
        await team.spawn("ana")
        assert (await team.run("Go.")).succeeded
        assert (await results(team, "ana"))[1].startswith("half\n[exit code 0]")
    assert files_at(bare, "bullpen/troupe")["made"] == "half"


async def test_a_repository_that_goes_away_in_the_middle_is_waited_for_and_said_once(
    bare: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away.git"
    model = Recorder({"lead": waiting, "ana": worker("echo whole > made", f"mv {bare} {away}")})
    moves = model.hold("ana", 2)
    async with in_clones(model, bare, tmp_path) as team:
        await team.create_task("Make it")
        await team.spawn("ana")
        run = asyncio.create_task(team.run("Go."))
        # What the lead still reads meanwhile would be there again, and away once more.
        await until(team, EventKind.PHASE_ENDED, member="lead")
        moves.release()
        # Read or written: whoever of both notices first says it.
        told = await until_event(
            team, lambda event: event.kind == EventKind.MESSAGE_SENT and "cannot be" in str(event.data)
        )
        away.rename(bare)
        report = await run
        assert report.succeeded
        assert (report.remote, report.commits) == (f"file://{bare}", 1)
        notices = [event for event in await events_of(team, EventKind.MESSAGE_SENT) if event.data.get("to") == "user"]
        assert [event.position for event in notices if "cannot be" in str(event.data)] == [told.position]
        [said] = [mail.content for mail in await mail_of(team, "user") if "cannot be" in mail.content]
        assert "remote repository. On " in said, "one full stop, whether git says one or not"
    assert files_at(bare, "bullpen/troupe")["made"] == "whole"


async def test_a_team_of_a_program_works_in_clones_if_its_workspace_is_an_address(bare: Path, tmp_path: Path) -> None:
    script = ScriptedProvider({"lead": [bash("echo hello > hello"), WAITS]})
    async with open_team(
        "crew",
        store=f"sqlite:///{tmp_path}/.bullpen/bullpen.db",
        settings=unconfined(),
        model="scripted:x",
        open_model=lambda model, **_: script,
        workspace=f"git+file://{bare}#main",
    ) as team:
        report = await team.run("Say hello")
        assert (report.branch, report.remote, report.files) == ("bullpen/crew", f"file://{bare}", ("hello",))
        assert report.taking == f"git fetch file://{bare} bullpen/crew && git merge FETCH_HEAD"
    assert files_at(bare, "bullpen/crew")["hello"] == "hello"
